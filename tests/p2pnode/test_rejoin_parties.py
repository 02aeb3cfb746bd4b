"""Whom a node asks for its own feed. ledger/SPEC.md 6.1."""

import trio

from ledger.entry import Entry
from p2pnode.cabinet import MemoryCabinet
from p2pnode.rejoin import LEASES_MAX, PATIENCE_S, Rejoin
from protocol.certificate import read_certificate
from protocol.errors import Unavailable
from protocol.signing import Signer
from protocol.units import PeerId, PublicKey
from tests.make_evidence import changed
from tests.make_ledger import (
    HOUR,
    NET,
    RENTER,
    Feed,
    certificate,
    grant,
    lease_request,
    opened_ledger,
    sealed,
    signer,
    witnessed,
)
from tests.make_node import VirtualClock

OWNERS = [signer(number) for number in range(40, 40 + LEASES_MAX + 1)]
"""Each has granted a lease, one after the other."""
WITNESSES = [signer(number) for number in range(21, 29)]


def peer_of(party: Signer) -> PeerId:
    return read_certificate(certificate(party), NET).peer_id


def granted_by(owner: Signer, *, start: int, of: tuple[PublicKey, ...]) -> Entry:
    """RENTER's lease from this owner, for which it has named these witnesses."""
    feed = Feed(owner)
    feed.open()
    request = sealed(lease_request(owner=owner, start=start, end=start + HOUR))
    body = changed(grant(start=start, end=start + HOUR), request=request)
    return feed.add(witnessed(body, of=of, quorum=len(of) // 2 + 1) if of else body)


class Asking:
    """A renter that ended badly; its peers have all that it has, but those that are gone."""

    def __init__(self, *gone: Signer) -> None:
        self.ledger = opened_ledger(RENTER)
        self.asked: list[PeerId] = []
        self._gone = [peer_of(each) for each in gone]
        for each in (*OWNERS, *WITNESSES):
            self.ledger.ingest(Feed(each).open().raw)
        many = tuple(sorted(each.public for each in WITNESSES))
        for number, owner in enumerate(OWNERS):
            of = many if owner == OWNERS[-1] else ()
            self.ledger.ingest(granted_by(owner, start=number * HOUR, of=of).raw)

    async def compare(self, peer: PeerId) -> None:
        await trio.lowlevel.checkpoint()
        if peer in self._gone:
            raise Unavailable("gone")
        self.asked.append(peer)

    async def held_for(self) -> float:
        """How long the renter signs nothing."""
        rejoin = Rejoin(
            ledger=self.ledger,
            cabinet=MemoryCabinet(),
            neighbours=tuple,
            compare=self.compare,
            begin_feed=lambda _now: None,
            recovered=lambda: None,
            clock=VirtualClock(),
        )
        rejoin.begin()
        began = trio.current_time()
        await rejoin.run()
        return trio.current_time() - began


async def test_the_parties_of_the_eight_newest_leases_are_asked_and_no_others(
    autojump_clock: trio.abc.Clock,
) -> None:
    asking = Asking()
    assert await asking.held_for() < 1
    assert sorted(asking.asked) == sorted(peer_of(each) for each in (*OWNERS[1:], *WITNESSES))


async def test_one_party_that_is_gone_does_not_keep_us_where_three_have_answered(
    autojump_clock: trio.abc.Clock,
) -> None:
    assert await Asking(OWNERS[-1]).held_for() < 1
    few = (*OWNERS[1:], *WITNESSES)[2:]
    assert await Asking(*few).held_for() >= PATIENCE_S
