"""Our account goes on in a new feed, after the old one forked or was ended from another home.

ledger/SPEC.md section 3 says what a SUCCESSOR carries over; the node must not run meanwhile.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from ledger.continuity_bodies import Successor
from ledger.debts import debts_of
from ledger.ledger import Ledger, open_ledger
from ledger.store import Store
from ledger.succession import end_of, successors
from p2pnode.accounts import certificate_in
from p2pnode.cabinet import FileCabinet
from p2pnode.home import Home, host_faults, locked, make_folders, sync_folder
from p2pnode.identity import (
    Identity,
    enter_next_feed,
    is_between_feeds,
    is_feed_new,
    keep_succession,
    load_identity,
    renew_next_feed,
)
from p2pnode.jobs.jobfile import end_all_under_way
from p2pnode.membership import genesis_of
from p2pnode.own_store import open_own_guard, opened_store
from protocol.certificate import certificate_known
from protocol.errors import LocalFault
from protocol.genesis import net_of
from protocol.signing import Signer
from protocol.units import Micros, Millis, PublicKey

WHY_ENDED: Final = "the feed that had rented for it was given up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """What a change to a new feed means, or has meant."""

    old: PublicKey
    new: PublicKey | None
    """None where it is only planned: the key is made when it is needed."""
    ended: int
    """From this place on the old feed gives its author nothing."""
    is_forked: bool
    open_leases: int
    """Leases of the old feed that have not ended: nobody can go on with them."""
    due: dict[str, Micros]
    """Money -> what others owe the old feed. Only that feed could have confirmed that it came."""
    owes: dict[str, Micros]
    """Money -> what the old feed owes, which it goes on owing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grounds:
    """What was found out, and what the SUCCESSOR of any feed will say."""

    rotation: Rotation
    succeed: Callable[[PublicKey], list[Successor]]


def plan_rotation(home: Home, now: Millis) -> Rotation | None:
    """What `rotate_feed` would do; None if it was cut short and has only to be finished.

    Our feed and keys stay as they are. Raises LocalFault as `rotate_feed` does.
    """
    make_folders(home)
    with locked(home):
        return None if is_between_feeds(home) else _grounds(home, now).rotation


def rotate_feed(
    home: Home, now: Millis, random_bytes: Callable[[int], bytes], *, leave_leases: bool = False
) -> Rotation | None:
    """Give up our feed for another, and keep for its begin what the root key says of that.

    After a crash, call it again: then it goes on, and None comes out. The next start of the node
    writes the new feed's first entries.
    Raises LocalFault if a node runs here, if the root key of our account is elsewhere, if there is
    no feed yet, if the old one should first be recovered from others, or if a lease of it has not
    ended, unless those are to be left.
    """
    make_folders(home)
    with locked(home):
        done = None
        if not is_between_feeds(home):
            done = _enter(home, now, random_bytes, leave_leases=leave_leases)
        _move_guard_aside(home)
        end_all_under_way(FileCabinet(home.records), WHY_ENDED)
        renew_next_feed(home, random_bytes)
        load_identity(home, net_of(genesis_of(home)), now)  # signs the certificate of the new feed
        return done


def _enter(
    home: Home, now: Millis, random_bytes: Callable[[int], bytes], *, leave_leases: bool
) -> Rotation:
    grounds = _grounds(home, now)
    rotation = grounds.rotation
    if rotation.open_leases and not leave_leases:
        raise LocalFault(
            f"Leases that have not ended: {rotation.open_leases}.",
            "wait for their end (p2pnode lease list), or stop their runs and add --leave-leases",
        )
    # Not the key that was kept for this: another copy of this home has it too.
    new = renew_next_feed(home, random_bytes)
    keep_succession(home, new, grounds.succeed(new))
    enter_next_feed(home)
    return replace(rotation, new=new)


def _move_guard_aside(home: Home) -> None:
    """The new feed has signed nothing: what guard there is belongs to the old one."""
    guard = home.feed_guard
    with host_faults(f"move {guard} aside"):
        if guard.exists():
            names = (guard.with_name(f"{guard.name}.before-{n}") for n in count(1))
            guard.rename(next(name for name in names if not name.exists()))
    sync_folder(guard.parent)


def _grounds(home: Home, now: Millis) -> _Grounds:
    net = net_of(genesis_of(home))
    identity = load_identity(home, net, now)
    root = identity.root
    if root is None:
        raise LocalFault(
            "Only the root key can say that another feed goes on for this one.",
            f"put root.key into {home.keys} for as long as this takes",
        )

    def opened(store: Store) -> Ledger:
        guard = open_own_guard(home.feed_guard, net)
        return open_ledger(store=store, guard=guard, signer=identity.feed, net=net, uuid=bytes(16))

    with opened_store(home.ledger, opened) as ledger:
        return _grounds_in(ledger, home, identity, root=root, now=now)


def _grounds_in(
    ledger: Ledger, home: Home, identity: Identity, *, root: Signer, now: Millis
) -> _Grounds:
    head, first = ledger.head(ledger.feed), certificate_in(ledger, ledger.feed)
    if is_feed_new(home, ledger.feed) or head is None or first is None:
        raise LocalFault("There is no feed here that could be followed.", "p2pnode up")
    if certificate_known(first).root != root.public:
        raise LocalFault(
            f"root.key in {home.keys} is not the one with which our feed was begun.",
            f"put that one there, and delete {home.certificate}",
        )
    fault = ledger.fault()
    if fault is not None and not ledger.is_ended():
        # Others have entries of ours that we lack, and an end before these would harm them.
        raise fault
    ended = end_of(ledger.state, ledger.feed, head=head.seq)
    state, certificate, net = ledger.state, identity.certificate_raw, ledger.net

    def succeed(new: PublicKey) -> list[Successor]:
        return successors(
            state, certificate=certificate, ended=ended, into=new, root=root, net=net, at=now
        )

    return _Grounds(rotation=_rotation(ledger, ended, now), succeed=succeed)


def _rotation(ledger: Ledger, ended: int, now: Millis) -> Rotation:
    state, old = ledger.state, ledger.feed
    due: Counter[str] = Counter()
    owes: Counter[str] = Counter()
    for debt in debts_of(state, old):
        if debt.owner == old:
            due[debt.money] += debt.owed_micro
        else:
            owes[debt.money] += debt.due_micro
    leases = [lease for lease in state.leases() if old in {lease.owner, lease.renter}]
    return Rotation(
        old=old,
        new=None,
        ended=ended,
        is_forked=state.fork_of(old) is not None,
        open_leases=sum(lease.ended_ms > now for lease in leases),
        due=_sums(due),
        owes=_sums(owes),
    )


def _sums(found: Counter[str]) -> dict[str, Micros]:
    return {money: Micros(micro) for money, micro in sorted(found.items()) if micro}
