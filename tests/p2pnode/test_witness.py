"""A witness signs for one turn once, whatever happens to it."""

from dataclasses import dataclass

import pytest
import trio
from msgspec import UNSET

from ledger.bodies import Accept, Grant
from ledger.witness_bodies import Cosigned, Cosigning, read_cosign
from p2pnode.cabinet import MemoryCabinet
from p2pnode.witness import (
    ASKED_BURST,
    UNITS_KEPT_MAX,
)
from protocol.codec import encode
from protocol.errors import LocalFault, PeerFault, Unavailable
from protocol.signing import peer_id_of
from protocol.units import Digest
from protocol.witness import WitnessAsk
from tests.make_ledger import (
    HOUR,
    OWNER,
    RENTER,
    STRANGER,
    WITNESSES,
    Feed,
    at,
    cosigned,
    grant,
    opened_ledger,
    turn_of,
    witnessed,
    witnessed_lease,
)
from tests.make_witness import FIRST, Stand, is_signed


async def test_a_witness_cosigns_a_grant_and_again_with_the_same_bytes() -> None:
    stand, of = Stand(), witnessed_lease()
    answer = await stand.cosign(of[0])
    assert is_signed(answer, of)
    stand.clock.at = at(9_000)
    assert await stand.cosign(of[0]) == answer
    assert stand.witness.cosigned == 1


async def test_a_second_grant_of_a_turn_gets_the_first_instead_of_a_signature() -> None:
    stand, one, other = Stand(), witnessed_lease(), witnessed_lease(1)
    signed = (await stand.cosign(one[0])).yes
    answer = await stand.cosign(other[0])
    assert answer.yes is UNSET
    assert answer.no is not UNSET
    assert signed is not UNSET
    assert read_cosign(answer.no.item).grant == one[0].id
    assert (answer.no.by, answer.no.grant) == (signed.by[0], one[0].raw)


async def test_a_witness_that_died_between_its_disk_and_its_answer_signs_nothing_else() -> None:
    @dataclass
    class Dying(MemoryCabinet):
        def __post_init__(self) -> None:
            super().__init__()

        def put(self, name: str, record: bytes) -> None:
            super().put(name, record)
            raise LocalFault("the power is gone", "wait")

    cabinet, one, other = Dying(), witnessed_lease(), witnessed_lease(1)
    with pytest.raises(LocalFault):
        await Stand(cabinet=cabinet).cosign(one[0])
    revived = MemoryCabinet()
    for name in cabinet.names("witness"):
        revived.put(name, cabinet.get(name) or b"")
    stand = Stand(cabinet=revived)
    assert (await stand.cosign(other[0])).no is not UNSET
    assert is_signed(await stand.cosign(one[0]), one)


async def test_a_witness_whose_disk_fails_before_the_write_has_signed_nothing() -> None:
    @dataclass
    class Full(MemoryCabinet):
        def __post_init__(self) -> None:
            super().__init__()

        def put(self, name: str, record: bytes) -> None:  # noqa: ARG002
            raise LocalFault("no room", "make room")

    cabinet, one, other = Full(), witnessed_lease(), witnessed_lease(1)
    with pytest.raises(LocalFault):
        await Stand(cabinet=cabinet).cosign(one[0])
    assert cabinet.names("witness") == []
    assert is_signed(await Stand().cosign(other[0]), other)


async def test_a_witness_that_cannot_read_what_it_signed_signs_nothing() -> None:
    stand, (entry, _) = Stand(), witnessed_lease()
    await stand.cosign(entry)
    (name,) = stand.cabinet.names("witness")
    stand.cabinet.put(name, (stand.cabinet.get(name) or b"")[:-1])
    with pytest.raises(Unavailable, match="cannot be read"):
        await stand.cosign(entry)


async def test_a_witness_that_was_rolled_back_signs_twice_and_is_exposed() -> None:
    one, other = witnessed_lease(), witnessed_lease(1)
    first, again = Stand(), Stand()  # the second life knows nothing of the first
    signed, twice = await first.cosign(one[0]), await again.cosign(other[0])
    assert is_signed(signed, one)
    assert is_signed(twice, other)
    bystander = opened_ledger(STRANGER)
    for by, of, answer in ((RENTER, one, signed), (OWNER, other, twice)):
        assert answer.yes is not UNSET
        shown = cosigned(*of)
        each = Cosigning(FIRST.public, answer.yes.at_ms, answer.yes.by)
        feed = Feed(by)
        bystander.ingest(feed.open().raw)
        accept = Accept(grant=of[0].id, cosigned=Cosigned(shown.owner, shown.turns, (each,)))
        bystander.ingest(feed.add(accept).raw)
    (offence,) = bystander.offences()
    assert (offence.rule, offence.offender) == ("A13", FIRST.public)


async def test_a_witness_that_was_rolled_back_believes_what_its_ledger_shows() -> None:
    one, other = witnessed_lease(), witnessed_lease(1)
    signed = (await Stand().cosign(one[0])).yes
    assert signed is not UNSET
    stand, feed, shown = Stand(), Feed(RENTER), cosigned(*one)
    stand.ledger.ingest(feed.open().raw)
    each = Cosigning(FIRST.public, signed.at_ms, signed.by)
    accept = Accept(grant=one[0].id, cosigned=Cosigned(shown.owner, shown.turns, (each,)))
    stand.ledger.ingest(feed.add(accept).raw)
    answer = await stand.cosign(other[0])
    assert answer.no is not UNSET
    assert read_cosign(answer.no.item).grant == one[0].id
    assert answer.no.grant is UNSET  # the GRANT itself never came here


async def test_a_witness_goes_on_with_the_turns_of_a_unit_and_never_back() -> None:
    feed = Feed(OWNER)
    feed.open()
    body = witnessed(grant())
    first = feed.add(body)
    after = turn_of(first, body)
    second = feed.add(witnessed(grant(after, start=2 * HOUR, end=3 * HOUR, nonce=1)))
    stand = Stand()
    assert (await stand.cosign(second)).yes is not UNSET
    with pytest.raises(Unavailable, match="later turn"):
        await stand.cosign(first)


async def test_a_witness_signs_for_the_renter_and_if_it_is_named() -> None:
    stand, of = Stand(), witnessed_lease()
    for entry, asker in (
        (of[0], STRANGER),
        (witnessed_lease(of=(WITNESSES[1].public,))[0], RENTER),
    ):
        with pytest.raises(PeerFault) as caught:
            await stand.cosign(entry, asker=asker)
        assert caught.value.rule == "witness.grant"
    feed = Feed(OWNER)
    with pytest.raises(PeerFault) as caught:
        await stand.cosign(feed.open())
    assert caught.value.rule == "witness.grant"
    assert stand.cabinet.names("witness") == []


async def test_a_witness_judges_what_it_signs() -> None:
    stand, (entry, _) = Stand(), witnessed_lease()
    bad = entry.raw.replace(entry.signature, bytes(64))
    asked = encode(WitnessAsk(grant=bad))
    with pytest.raises(PeerFault) as caught:
        await stand.witness.handlers["witness.cosign"](peer_id_of(RENTER.public), asked)
    assert caught.value.rule == "entry.seal"


async def test_who_does_not_want_to_be_a_witness_is_none() -> None:
    with pytest.raises(Unavailable, match="no witness"):
        await Stand(is_willing=False).cosign(witnessed_lease()[0])


async def test_one_peer_cannot_make_a_witness_sign_without_end(
    autojump_clock: trio.abc.Clock,
) -> None:
    stand, (entry, _) = Stand(), witnessed_lease()
    for _ in range(ASKED_BURST):
        await stand.cosign(entry)
    with pytest.raises(Unavailable, match="too often"):
        await stand.cosign(entry)
    await trio.sleep(10)
    assert (await stand.cosign(entry)).yes is not UNSET


def test_a_witness_keeps_so_many_units_of_an_owner_and_signs_for_no_more() -> None:
    stand = Stand()
    for number in range(UNITS_KEPT_MAX + 1):
        unit = number.to_bytes(16, "big")
        entry, body = witnessed_lease()
        turn = type(body.units[0])(unit, 0, 0, bytes(32), ())  # type: ignore[arg-type]
        other = Grant(
            units=(turn,),
            start_ms=body.start_ms,
            end_ms=body.end_ms,
            request=body.request,
            witnesses=body.witnesses,
            quorum=body.quorum,
        )
        if number < UNITS_KEPT_MAX:
            assert stand.witness.cosign(entry, other).yes is not UNSET
            continue
        with pytest.raises(Unavailable, match="too many"):
            stand.witness.cosign(entry, other)


def running(stand: Stand) -> Digest:
    """A lease that runs from 1,000 on and is known to the witness with its ACCEPT."""
    owner, renter = Feed(OWNER), Feed(RENTER)
    body = witnessed(grant())
    entries = [owner.open(), renter.open(), owner.add(body)]
    lease = entries[-1].id
    entries.append(renter.add(Accept(grant=lease)))
    for entry in entries:
        stand.ledger.ingest(entry.raw)
    return lease


@pytest.mark.parametrize("answers", [True, False])
async def test_a_witness_writes_what_it_found_once_for_each_period(
    answers: bool, autojump_clock: trio.abc.Clock
) -> None:
    stand = Stand(owner_says=answers)
    lease = running(stand)
    entry = await stand.probe(lease)
    assert await stand.probe(lease) == entry
    (said,) = stand.ledger.state.probes(lease, 0).values()
    assert (said.witness, said.verdict) == (FIRST.public, "ok" if answers else "fail")
    stand.clock.at = at(1_000 + 60_000)
    assert await stand.probe(lease) != entry
    assert stand.grown == 2
    assert stand.ledger.offences() == []


async def test_a_witness_probes_for_the_renter_while_the_lease_runs() -> None:
    stand = Stand()
    lease = running(stand)
    with pytest.raises(PeerFault) as caught:
        await stand.probe(lease, asker=STRANGER)
    assert caught.value.rule == "witness.lease"
    for instant in (999, 1_000 + HOUR):
        stand.clock.at = at(instant)
        with pytest.raises(PeerFault) as caught:
            await stand.probe(lease)
        assert caught.value.rule == "witness.lease"
    with pytest.raises(Unavailable, match="not known"):
        await stand.probe(Digest(bytes(32)))
