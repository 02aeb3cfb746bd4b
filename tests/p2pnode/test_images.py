"""Which images an owner has is a filter in its advert, which errs in one direction only."""

from hashlib import sha256
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.execution.fake_engine import FakeEngine
from p2pnode.image_names import digests_of
from p2pnode.image_stock import LOOK_S
from p2pnode.matching.search import Wish, misfit
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from protocol.digest_filter import DIGESTS_MAX, FILTER_BYTES, filter_of, may_hold
from tests.make_job import make_submission
from tests.make_node import LISTED_S, Party, ended

HERE = sha256(b"an image").digest()
ELSEWHERE = sha256(b"another image").digest()


@given(digests=st.lists(st.binary(min_size=32, max_size=32), max_size=DIGESTS_MAX))
def test_what_is_there_is_never_denied(digests: list[bytes]) -> None:
    stated = filter_of(digests)
    assert len(stated) == FILTER_BYTES
    assert all(may_hold(stated, digest) for digest in digests)


def test_a_full_filter_takes_one_in_a_hundred_others_to_be_there() -> None:
    stated = filter_of(sha256(bytes([n])).digest() for n in range(DIGESTS_MAX))
    others = [sha256(b"other" + n.to_bytes(4, "big")).digest() for n in range(20_000)]
    wrong = sum(may_hold(stated, digest) for digest in others)
    assert wrong < 300


def test_more_than_it_takes_are_left_out_so_that_it_never_says_yes_to_everything() -> None:
    many = [n.to_bytes(4, "big") for n in range(10_000)]
    digests = [sha256(each).digest() for each in many]
    assert filter_of(digests) == filter_of(digests[:DIGESTS_MAX])


def test_the_names_of_an_image_are_its_own_and_those_of_registries() -> None:
    name = f"docker.io/library/python@sha256:{HERE.hex()}"
    image = {"Id": f"sha256:{ELSEWHERE.hex()}", "RepoDigests": [name, "odd", "x@sha256:zz"]}
    assert digests_of(image) == [ELSEWHERE, HERE]
    assert digests_of({"Id": "", "RepoDigests": None}) == []


@pytest.fixture
def party(tmp_path: Path, nursery: trio.Nursery) -> Party:
    return Party(tmp_path, nursery, MemoryHub())


def has(node: Node, *images: bytes) -> None:
    engine = node.ports.engine
    assert isinstance(engine, FakeEngine)
    engine.stock = images


async def test_a_job_goes_where_its_image_is(party: Party, autojump_clock: trio.abc.Clock) -> None:
    owners = [party.build(ask=ask) for ask in (300_000, 400_000)]
    has(owners[0], ELSEWHERE)
    has(owners[1], HERE)
    started = [await party.start(owner) for owner in owners]
    renter = await party.add(ask=None)
    await trio.sleep(LISTED_S)
    job = make_submission(renter.node, image=f"python@sha256:{HERE.hex()}")
    file = renter.node.jobs.submit(job)
    assert (await ended(renter, file.id)).state == "done"
    assert [len(each.node.books.leases()) for each in started] == [0, 1]


async def test_an_image_that_is_loaded_later_is_told_of(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    owner = party.build(ask=300_000)
    has(owner)
    await party.start(owner)
    renter = await party.add(ask=None)
    await trio.sleep(LISTED_S)
    wish = Wish(image=HERE)
    [offer] = renter.node.market.offers()
    assert misfit(offer, wish) == "image"
    has(owner, HERE)
    await trio.sleep(LOOK_S + 3)
    [offer] = renter.node.market.offers()
    assert misfit(offer, wish) is None


async def test_an_owner_without_images_says_nothing_of_them(
    party: Party, autojump_clock: trio.abc.Clock
) -> None:
    await party.add(ask=300_000)
    renter = await party.add(ask=None)
    await trio.sleep(LISTED_S)
    [offer] = renter.node.market.offers()
    assert misfit(offer, Wish(image=HERE)) is None
