"""What must hold after a real node was killed and came back, asked through the API of each."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from p2pnode.cli.client import get, post
from protocol.errors import LocalFault
from testnet.world_checks import Broken, check


def check_all(nodes: Sequence[Path], jobs: Sequence[str]) -> int:
    """How many receipts hold on every node; the renter is the last. Raises Broken."""
    *owners, renter = nodes
    for node in nodes:
        report = get(node, "/v1/ledger/verify")
        check(holds=report["ok"], what=f"{node}: {report['broken']}")
        check(holds=not get(node, "/v1/ledger")["offences"], what=f"{node} holds evidence")
    granted = {lease["id"]: lease for owner in owners for lease in _granted(owner)}
    taken = [each for each in get(renter, "/v1/leases")["items"] if each["side"] == "renter"]
    for lease in taken:
        check(holds=lease["id"] in granted, what=f"no owner knows the lease {lease['id']}")
    return sum(_check_job(nodes, job, granted) for job in jobs)


def _granted(owner: Path) -> list[dict[str, Any]]:
    """The leases of an owner of one GPU, which come one after the other."""
    leases: list[dict[str, Any]] = [
        lease for lease in get(owner, "/v1/leases")["items"] if lease["side"] == "owner"
    ]
    held = [lease for lease in leases if lease["end_ms"] > lease["start_ms"]]
    held.sort(key=lambda lease: (lease["start_ms"], lease["id"]))
    for one, other in pairwise(held):
        check(
            holds=one["end_ms"] <= other["start_ms"],
            what=f"{owner}: the leases {one['id']} and {other['id']} overlap",
        )
    return leases


def _check_job(nodes: Sequence[Path], name: str, granted: dict[str, dict[str, Any]]) -> int:
    """A job that was acknowledged is there, is done, and its receipt holds on every node."""
    renter = nodes[-1]
    try:
        job = get(renter, f"/v1/jobs/{name}")
    except LocalFault as fault:
        raise Broken(f"{name} was acknowledged and is lost") from fault
    check(holds=job["state"] == "done", what=f"{name} is {job['state']}: {job['why']}")
    check(holds=job["lease"] in granted, what=f"no owner knows the lease of {name}")
    check(holds=job["outcome"]["output_bytes"] > 0, what=f"{name} left no output")
    if not job["has_receipt"]:
        return 0
    receipt = get(renter, f"/v1/jobs/{name}/receipt")
    for node in nodes:
        told = post(node, "/v1/receipts/check", {"hex": receipt["hex"]})
        check(holds=told["is_settled"], what=f"the receipt of {name} is not settled")
    return 1
