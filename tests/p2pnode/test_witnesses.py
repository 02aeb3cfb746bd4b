"""A renter counts the cosignatures that hold, and tells on who signs twice."""

from dataclasses import dataclass, field

import pytest
import trio
from msgspec import UNSET

from ledger.bodies import Grant, consent_bytes
from ledger.entry import Entry
from ledger.witness_bodies import Cosigned, turns_to_cosign
from p2pnode.matching.witnesses import COSIGN_S, Witnesses
from protocol.codec import decode, encode
from protocol.errors import PeerFault, Unavailable
from protocol.lease_stream import Settle
from protocol.signing import Signer, is_signed, peer_id_of
from protocol.units import Millis, PeerId, PublicKey
from protocol.witness import Cosignatures, OtherGrant, WitnessAnswer
from tests.make_desk import Clock
from tests.make_ledger import (
    NET,
    OWNER,
    RENTER,
    UNIT,
    WITNESSES,
    at,
    cosigned,
    ledger,
    witnessed_lease,
)

OWNERS_PEER = peer_id_of(OWNER.public)


@dataclass
class Asking:
    """A renter and its witnesses, each answering as it is told."""

    says: dict[PublicKey, WitnessAnswer | Exception] = field(default_factory=dict)
    silent: tuple[PublicKey, ...] = ()

    def __post_init__(self) -> None:
        self.ledger = ledger(RENTER)
        self.let_go: list[Settle] = []
        self.fetched: list[tuple[PeerId, PublicKey, int]] = []
        self.witnesses = Witnesses(
            ledger=self.ledger,
            signer=RENTER,
            ask_feed=self.ask,
            fetch=self.fetch,
            clock=Clock(at(500)),
        )

    async def fetch(self, peer: PeerId, feed: PublicKey, seq: int) -> None:
        await trio.lowlevel.checkpoint()
        self.fetched.append((peer, feed, seq))
        raise Unavailable("gone")

    async def ask(self, feed: PublicKey, kind: str, body: bytes) -> bytes:
        await trio.lowlevel.checkpoint()
        if kind == "lease.settle":
            assert feed == OWNER.public
            self.let_go.append(decode(body, Settle, size_max=512))
            return b""
        if feed in self.silent:
            await trio.sleep_forever()
        answer = self.says[feed]
        if isinstance(answer, Exception):
            raise answer
        return encode(answer)

    async def gather(self, of: tuple[Entry, Grant]) -> Cosigned | None:
        return await self.witnesses.gather(OWNERS_PEER, of[0].raw, of[1].request)


def yes(of: tuple[Entry, Grant], by: Signer, *, at_ms: int = 5) -> WitnessAnswer:
    (each,) = cosigned(*of, by=(by,), at_ms=at_ms).by
    return WitnessAnswer(yes=Cosignatures(at_ms=each.at_ms, by=each.by))


def no(of: tuple[Entry, Grant], by: Signer, *, with_grant: bool = True) -> WitnessAnswer:
    entry, body = of
    (each,) = cosigned(entry, body, by=(by,)).by
    (item,) = turns_to_cosign(entry.feed, cosigned(entry, body).turns, entry.id, each.at_ms)
    raw = entry.raw if with_grant else UNSET
    return WitnessAnswer(no=OtherGrant(item=encode(item), by=each.by[0], grant=raw))


async def test_a_quorum_is_enough_and_nobody_waits_for_the_rest(
    autojump_clock: trio.abc.Clock,
) -> None:
    of, (one, two, three) = witnessed_lease(), WITNESSES
    asking = Asking({each.public: yes(of, each) for each in (one, two)}, silent=(three.public,))
    began = trio.current_time()
    gathered = await asking.gather(of)
    assert asking.fetched == [(OWNERS_PEER, OWNER.public, of[0].seq)], "witnesses may lack it"
    assert gathered == cosigned(*of, by=(one, two))
    assert trio.current_time() == began


async def test_too_few_in_time_are_told_by_number(autojump_clock: trio.abc.Clock) -> None:
    of, (one, two, three) = witnessed_lease(), WITNESSES
    asking = Asking(
        {one.public: yes(of, one), two.public: Unavailable("down")}, silent=(three.public,)
    )
    began = trio.current_time()
    with pytest.raises(Unavailable, match="1 of 3 witnesses have cosigned, 2 are needed"):
        await asking.gather(of)
    assert trio.current_time() == began + COSIGN_S
    (settle,) = asking.let_go
    signed = consent_bytes(of[0].id, ((UNIT, 0),), settle.at_ms)
    assert is_signed(RENTER.public, "release-consent", NET, signed, by=settle.consent)


async def test_signatures_that_are_not_the_witnesss_or_of_another_grant_count_nothing() -> None:
    of, other, (one, two, three) = witnessed_lease(), witnessed_lease(1), WITNESSES
    moved = yes(of, two).yes
    assert moved is not UNSET
    later = WitnessAnswer(yes=Cosignatures(at_ms=Millis(moved.at_ms + 1), by=moved.by))
    asking = Asking({one.public: yes(other, one), two.public: later, three.public: yes(of, one)})
    with pytest.raises(Unavailable, match="0 of 3"):
        await asking.gather(of)
    assert asking.ledger.offences() == []


async def test_another_grant_of_the_turn_proves_the_owner_and_ends_it() -> None:
    of, other, (one, two, three) = witnessed_lease(), witnessed_lease(1), WITNESSES
    asking = Asking(
        {one.public: no(other, one), two.public: Unavailable(""), three.public: Unavailable("")}
    )
    with pytest.raises(PeerFault) as caught:
        await asking.gather(of)
    assert caught.value.rule == "witness.conflict"
    assert [(each.rule, each.offender) for each in asking.ledger.offences()] == [
        ("A4", OWNER.public)
    ]


async def test_a_no_without_the_other_grant_is_only_a_no() -> None:
    of, other, (one, two, three) = witnessed_lease(), witnessed_lease(1), WITNESSES
    asking = Asking(
        {
            one.public: no(other, one, with_grant=False),
            two.public: yes(of, two),
            three.public: yes(of, three),
        }
    )
    assert await asking.gather(of) == cosigned(*of, by=(two, three))
    assert asking.ledger.offences() == []


async def test_a_witness_that_says_no_and_then_yes_is_accused() -> None:
    of, other, (one, two, three) = witnessed_lease(), witnessed_lease(1), WITNESSES
    down = Unavailable("down")
    asking = Asking(
        {one.public: no(other, one, with_grant=False), two.public: down, three.public: down}
    )
    with pytest.raises(Unavailable):
        await asking.gather(of)
    asking.says[one.public] = yes(of, one)
    with pytest.raises(PeerFault) as caught:
        await asking.gather(of)
    assert caught.value.rule == "witness.conflict"
    (offence,) = asking.ledger.offences()
    assert (offence.rule, offence.offender) == ("A13", one.public)


async def test_a_grant_for_another_request_is_not_shown_to_any_witness() -> None:
    of, other = witnessed_lease(), witnessed_lease(1)
    with pytest.raises(PeerFault) as caught:
        await Asking().witnesses.gather(OWNERS_PEER, of[0].raw, other[1].request)
    assert caught.value.rule == "grant.lease"
