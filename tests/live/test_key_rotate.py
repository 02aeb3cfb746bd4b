"""An owner and its renter give up their feeds, and deal with each other again."""

from pathlib import Path
from typing import Any

import pytest

from tests.live.commands import document, p2pnode, up

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]

GPU = '[[gpu.simulated]]\nmodel = "RTX 4090"\nvram = "24GiB"\ncount = 1\n'


def founded(folder: Path) -> tuple[str, str]:
    """The homes of an owner and a renter of one test network, none of them running."""
    owner, renter = str(folder / "rig"), str(folder / "laptop")
    p2pnode("network", "create", "club", "--test", "--home", owner)
    p2pnode(
        "init", "--name", "rig", "--roles", "owner", "--region", "DE",
        "--ask", "3.60 TEST/gpu-h", "--join", "", "--home", owner,
    )  # fmt: skip
    config = folder / "rig" / "config.toml"
    config.write_text(config.read_text() + GPU)
    with up(owner, {"P2PNODE_WORKLOADS__ENGINE": "process"}):
        link = p2pnode("network", "invite", "--home", owner).strip()
    p2pnode(
        "init", "--name", "laptop", "--roles", "renter", "--region", "DE",
        "--ask", "", "--join", link, "--home", renter,
    )  # fmt: skip
    return owner, renter


def rents(renter: str) -> Any:
    return document(
        "run", "--region", "DE", "--time", "1m", "--wait", "1m", "--home", renter, "--", "true"
    )


def test_they_deal_with_each_other_again_in_new_feeds(tmp_path: Path) -> None:
    owner, renter = founded(tmp_path)
    variables = {"P2PNODE_WORKLOADS__ENGINE": "process"}
    with up(owner, variables):
        link = p2pnode("network", "invite", "--home", owner).strip()
        p2pnode("network", "join", link, "--home", renter)
        with up(renter):
            assert rents(renter)["outcome"]["exit_code"] == 0
    rotated = {home: document("key", "rotate", "--yes", "--home", home) for home in (owner, renter)}
    assert rotated[owner]["open_leases"] == 0
    with up(owner, variables):
        link = p2pnode("network", "invite", "--home", owner).strip()
        p2pnode("network", "join", link, "--home", renter)
        with up(renter):
            job = rents(renter)
            assert job["outcome"]["exit_code"] == 0
            new = [rotated[home]["new"] for home in (owner, renter)]
            lease = document("lease", "list", "--home", owner)["items"][-1]
            assert lease["peer_feed"] == new[1]
            for home in (owner, renter):
                assert document("ledger", "verify", "--home", home)["ok"]
                assert document("ledger", "evidence", "--home", home)["items"] == []
                for feed in new:
                    begin = document("ledger", "show", feed, "--home", home)["items"]
                    assert "SUCCESSOR" in "".join(entry["what"] for entry in begin)
