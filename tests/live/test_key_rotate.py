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
        "run",
        "--region",
        "DE",
        "--time",
        "1m",
        "--wait",
        "1m",
        "--home",
        renter,
        "--",
        "sleep",
        "1",
    )


def accounts(renter: str) -> Any:
    return document("spend", "list", "--home", renter)["items"]


def debts(renter: str, of: str | None = None) -> set[tuple[str | None, ...]]:
    """Of which owner's and renter's feed, and how to pay or why that is not known."""
    items = document("spend", "settle", "--home", renter)["items"]
    names = ("peer_feed", "own_feed", "payout", "why")
    return {tuple(each[n] for n in names) for each in items if of in {None, each["peer_feed"]}}


def test_they_deal_with_each_other_again_in_new_feeds(tmp_path: Path) -> None:
    owner, renter = founded(tmp_path)
    variables = {"P2PNODE_WORKLOADS__ENGINE": "process", "P2PNODE_PRICING__PAYOUT": "by hand"}
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
            old = [rotated[home]["old"] for home in (owner, renter)]
            assert debts(renter) == {
                (*old, None, "the owner cannot be reached: it goes on in another feed"),
                (*new, "by hand", ""),
            }
        # What its feed owed an owner that has not changed is paid as before.
        newest = document("key", "rotate", "--yes", "--home", renter)["new"]
        with up(renter):
            assert debts(renter, of=new[0]) == {(*new, "by hand", "")}
            assert newest not in {each["own_feed"] for each in accounts(renter)}
