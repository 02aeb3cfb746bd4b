"""What the winner of a lease may still be refused for, before anything is granted."""

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from p2pnode.gpus import HostFacts
from p2pnode.policy import refusal_of
from protocol.advert import Isolation
from protocol.genesis import Bounds, Genesis
from tests import make
from tests.make_ledger import OWNER, RENTER, lease_request

HOST = HostFacts(cpus=64, memory_mib=1_000_000, disk_mib=1_000_000)
MAIN = Genesis(name="main", kind="main", nonce=bytes(16), bounds=Bounds(), money="USD")
IMAGE = "sha256:" + "0" * 64


def refusal(
    *, image: str | None, isolation: Isolation = "container", genesis: Genesis = MAIN
) -> str:
    job = replace(make.job(), image=UNSET if image is None else image)
    why = refusal_of(
        job,
        lease_request(((bytes(16), 0),)),
        renter=RENTER.public,
        own=OWNER.public,
        genesis=genesis,
        host=HOST,
        isolation=isolation,
    )
    return why or ""


def test_a_job_without_an_image_is_refused_where_containers_have_none_of_their_own() -> None:
    assert "names no image" in refusal(image=None)
    assert refusal(image=IMAGE) == ""
    assert refusal(image=None, genesis=replace(MAIN, kind="test")) == ""


@pytest.mark.parametrize("image", [None, IMAGE])
def test_plain_processes_are_for_the_owners_own_jobs_or_for_test_networks(
    image: str | None,
) -> None:
    assert "only for its owner" in refusal(image=image, isolation="process")
    assert refusal(image=image, isolation="process", genesis=replace(MAIN, kind="test")) == ""
