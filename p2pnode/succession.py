"""Our account goes on in a new feed, after the old one forked or its key got into other hands.

ledger/SPEC.md section 3 says what a SUCCESSOR carries over; the node must not run meanwhile.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ledger.continuity_bodies import Successor
from ledger.debts import debts_of
from ledger.guard import MemoryGuard
from ledger.ledger import Ledger, open_ledger
from ledger.store import Store
from ledger.succession import end_of, successors
from p2pnode.home import Home, host_faults, locked, make_folders, sync_folder
from p2pnode.identity import (
    Identity,
    advance_feed,
    is_cut_short,
    is_feed_new,
    keep_succession,
    load_identity,
)
from p2pnode.membership import genesis_of
from p2pnode.own_store import opened_store
from protocol.errors import LocalFault
from protocol.genesis import net_of
from protocol.units import Micros, Millis, PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """What a change to a new feed means, or has meant."""

    old: PublicKey
    new: PublicKey
    ended: int
    """From this place on the old feed gives its author nothing."""
    is_forked: bool
    open_leases: int
    """Leases of the old feed that have not ended: nobody can go on with them."""
    due: dict[str, Micros]
    """Money -> what others owe the old feed. Only that feed could have confirmed that it came."""


def plan_rotation(home: Home, now: Millis) -> Rotation | None:
    """What `rotate_feed` would do; None if it was cut short and has only to be finished.

    Changes nothing. Raises LocalFault as `rotate_feed` does.
    """
    make_folders(home)
    with locked(home):
        return None if is_cut_short(home) else _planned(home, now)[0]


def rotate_feed(home: Home, now: Millis, random_bytes: Callable[[int], bytes]) -> Rotation | None:
    """Give up our feed for the next one, and keep for its begin what the root key says of that.

    After a crash, call it again: then it goes on, and None comes out. The next start of the node
    writes the new feed's first entries.
    Raises LocalFault if a node runs here, if the root key is elsewhere, or if there is no feed yet.
    """
    net = net_of(genesis_of(home))
    make_folders(home)
    with locked(home):
        done = None if is_cut_short(home) else _begun(home, now)
        advance_feed(home, random_bytes)
        load_identity(home, net, now)  # signs the certificate of the new feed
        return done


def _begun(home: Home, now: Millis) -> Rotation:
    """All but the change of keys, by which alone it counts."""
    plan, identity, said = _planned(home, now)
    keep_succession(home, plan.new, said)
    # A feed without its guard is asked about among peers: no harm if we come no further.
    _move_aside(home.feed_guard, f"feed-{identity.feed.public.hex()[:16]}")
    return plan


def _move_aside(path: Path, name: str) -> None:
    with host_faults(f"move {path} aside"):
        if path.exists():
            path.replace(path.with_name(name))
    sync_folder(path.parent)


def _planned(home: Home, now: Millis) -> tuple[Rotation, Identity, list[Successor]]:
    net = net_of(genesis_of(home))
    identity = load_identity(home, net, now)
    if identity.root is None:
        raise LocalFault(
            "Only the root key can say that another feed goes on for this one.",
            f"put root.key into {home.keys} for as long as this takes",
        )
    root, feed = identity.root, identity.feed

    def opened(store: Store) -> Ledger:
        # Nothing is written: what the guard holds is of no account here.
        return open_ledger(store=store, guard=MemoryGuard(), signer=feed, net=net, uuid=bytes(16))

    with opened_store(home.ledger, opened) as ledger:
        head = ledger.head(ledger.feed)
        if is_feed_new(home, feed.public) or head is None:
            raise LocalFault("There is no feed here that could be followed.", "p2pnode up")
        ended = end_of(ledger.state, feed.public, head=head.seq)
        plan = _plan_of(ledger, identity.next_feed, ended, now)
        said = successors(
            ledger.state,
            certificate=identity.certificate_raw,
            ended=ended,
            into=plan.new,
            root=root,
            net=net,
            at=now,
        )
    return plan, identity, said


def _plan_of(ledger: Ledger, new: PublicKey, ended: int, now: Millis) -> Rotation:
    state, old = ledger.state, ledger.feed
    due: Counter[str] = Counter()
    for debt in debts_of(state, old):
        if debt.owner == old and debt.due_micro:
            due[debt.money] += debt.due_micro
    return Rotation(
        old=old,
        new=new,
        ended=ended,
        is_forked=state.fork_of(old) is not None,
        open_leases=sum(
            old in {lease.owner, lease.renter} and lease.ended_ms > now for lease in state.leases()
        ),
        due={money: Micros(micro) for money, micro in sorted(due.items())},
    )
