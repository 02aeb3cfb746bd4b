"""What must hold in a world: safety at any time, the rest once faults have stopped."""

from collections.abc import Sequence
from itertools import pairwise

from ledger.fold import Lease
from ledger.ledger import Ledger
from ledger.receipt import Proven, check_receipt
from ledger.statements import stated_of
from p2pnode.jobs.jobfile import ENDED
from p2pnode.node import Node
from protocol.errors import PeerFault
from protocol.units import Digest, Millis, NetId, PublicKey
from testnet.world_host import Host


class Broken(AssertionError):
    """An invariant does not hold."""


def check(*, holds: bool, what: str) -> None:
    """Raises Broken with `what` unless it holds."""
    if not holds:
        raise Broken(what)


def check_safety(hosts: Sequence[Host]) -> None:
    """No honest node ever proves an offence, leases twice, or says what it may forget."""
    for host in hosts:
        check(holds=not host.witness.broken, what=f"{host.plan.name}: {host.witness.broken}")
        if host.node is None:
            continue
        ledger = host.node.ports.ledger
        check(holds=not ledger.evidence(), what=f"{host.plan.name} holds evidence")
        check_single(host.plan.name, ledger)


def check_single(name: str, ledger: Ledger) -> None:
    """No unit is leased to two at a time."""
    held: dict[tuple[PublicKey, bytes], list[Lease]] = {}
    for lease in ledger.state.leases():
        for each in lease.request.units:
            held.setdefault((lease.owner, each.unit), []).append(lease)
    for leases in held.values():
        leases.sort(key=lambda lease: (lease.request.start_ms, lease.id))
        for one, other in pairwise(leases):
            # One that was released before it began holds nothing.
            is_clear = one.ended_ms <= max(one.request.start_ms, other.request.start_ms)
            check(
                holds=is_clear or other.ended_ms <= other.request.start_ms,
                what=f"{name}: leases {one.id.hex()} and {other.id.hex()} overlap",
            )


def open_questions(hosts: Sequence[Host], now: Millis) -> list[str]:
    """What has still to happen before a healed world is at rest."""
    found: list[str] = []
    heads: dict[tuple[tuple[PublicKey, int, Digest], ...], str] = {}
    for host in hosts:
        if host.node is None:
            found.append(f"{host.plan.name} is down")
            continue
        found += _unfinished(host.plan.name, host.node, now)
        if not host.plan.is_light:
            all_heads = host.node.ports.ledger.heads()
            heads.setdefault(tuple((h.feed, h.seq, h.id) for h in all_heads), host.plan.name)
    if len(heads) > 1:
        found.append(f"{', '.join(heads.values())} have different heads")
    return found


def _unfinished(name: str, node: Node, now: Millis) -> list[str]:
    found = [
        f"{name}: {file.id} is {file.state}: {file.why}"
        for file in node.jobs.files()
        if file.state not in ENDED
    ]
    for lease in node.books.leases():
        worker = node.workplace.worker(lease.id)
        if lease.ended_ms > now or (worker is not None and not worker.ended.is_set()):
            found.append(f"{name}: lease {lease.id.hex()[:16]} goes on")
    return found


def check_rest(hosts: Sequence[Host], submitted: Sequence[tuple[Host, str]]) -> list[Proven]:
    """All that must hold in a world at rest; what its receipts prove. Raises Broken."""
    ledgers = [_ledger_of(host) for host in hosts]
    for host, ledger in zip(hosts, ledgers, strict=True):
        report = ledger.verify()
        check(holds=report.broken is None, what=f"{host.plan.name}: {report.broken}")
        for grant in host.witness.granted:
            lease = ledger.lease(grant)
            check(holds=lease is not None, what=f"{host.plan.name} lost GRANT {grant.hex()}")
        for lease in ledger.state.leases():
            # A light client does not follow what others accept.
            is_ours = ledger.feed in {lease.owner, lease.renter}
            check(
                holds=(host.plan.is_light and not is_ours)
                or lease.is_accepted
                or lease.reason is not None,
                what=f"{host.plan.name}: lease {lease.id.hex()} has one half and no reason",
            )
    for host, job in submitted:
        files = () if host.node is None else host.node.jobs.files()
        is_ended = any(file.id == job and file.state in ENDED for file in files)
        check(holds=is_ended, what=f"{host.plan.name} lost {job}")
    full = [host for host in hosts if not host.plan.is_light]
    return [proven for host in hosts for proven in _check_receipts(host, full)]


def _check_receipts(host: Host, full: Sequence[Host]) -> list[Proven]:
    """The receipts of one renter hold, and every full ledger tells the same."""
    found = []
    net = _ledger_of(host).net
    for name in host.cabinet.names("jobs"):
        raw = host.cabinet.get(f"{name}/receipt")
        if raw is None:
            continue
        proven = _proven(raw, net, f"{host.plan.name}: {name}")
        found.append(proven)
        for other in (host, *full):
            _check_known(proven, _ledger_of(other), other.plan.name)
    return found


def _proven(raw: bytes, net: NetId, name: str) -> Proven:
    try:
        proven = check_receipt(raw, net)
    except PeerFault as fault:
        raise Broken(f"the receipt of {name} does not hold: {fault}") from fault
    check(holds=proven.is_settled, what=f"the receipt of {name} is not settled")
    return proven


def _check_known(proven: Proven, ledger: Ledger, name: str) -> None:
    lease = ledger.lease(proven.lease)
    check(
        holds=lease is not None and lease.is_accepted and not lease.is_forked,
        what=f"{name} does not know the lease of a receipt",
    )
    money = proven.request.money
    sides = ((proven.owner, proven.renter, False), (proven.renter, proven.owner, True))
    for author, peer, is_answer in sides:
        halves = ledger.state.halves(author, peer, money=money, is_answer=is_answer)
        stated = stated_of([half.statement for half in halves], proven.lease)
        agreed = (proven.used_ms, proven.amount_micro)
        check(holds=stated == agreed, what=f"{name} has {stated} of a receipt over {agreed}")


def _ledger_of(host: Host) -> Ledger:
    check(holds=host.node is not None, what=f"{host.plan.name} is down")
    assert host.node is not None
    return host.node.ports.ledger
