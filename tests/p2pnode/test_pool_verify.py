"""A third peer recomputes which nodes a job on several nodes had to take, or says what deviates."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from msgspec import UNSET
from msgspec.structs import replace

from p2pnode.api.auction_documents import PoolAuctionDocument
from p2pnode.api.schemas import schema_of
from p2pnode.auction_check import auction_document, pool_document, verify_auction
from p2pnode.job_views import JobViews
from p2pnode.jobs.baggage import FileBaggage
from p2pnode.known_network import KnownNetwork
from p2pnode.matching.pooling import Pool
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.pool_views import PoolViews
from protocol.advert import Advert
from protocol.auction import Bid, Rfq
from protocol.codec import decode, encode
from protocol.errors import LocalFault, PeerFault
from protocol.lease import LeaseRequest
from protocol.limits import AUCTION_BYTES_MAX
from protocol.offers import group_key
from protocol.pool import Asked, PoolRecord, check_pool, plan, recompute
from protocol.units import Digest
from protocol.wire import pack, unpack
from tests import make
from tests.json_schema import faults
from tests.make import NET
from tests.make_node import LISTED_S, Party
from tests.make_pools import GPUS, Holder, dearer, pooled, pooling, random_holders
from tests.p2pnode.test_cli import run
from tests.p2pnode.test_pools import ended, submit

UNRULY = ("hold", "hold", "hold", "hold", "refuse", "be silent", "not hold", "lie")


def read(record: PoolRecord) -> PoolRecord:
    """As a third peer reads it."""
    return decode(encode(record), PoolRecord, size_max=AUCTION_BYTES_MAX)


def judged_by_a_third(record: PoolRecord) -> PoolAuctionDocument:
    return pool_document(read(record), NET)


def owners_of(pool: Pool) -> list[bytes]:
    return [taking.owner for taking in pool.takings]


async def test_a_third_peer_agrees_with_three_hundred_honest_renters(
    autojump_clock: trio.abc.Clock,
) -> None:
    dice = random.Random(1)
    seen = {"held": 0, "tries": 0, "none": 0}
    for _ in range(300):
        holders = random_holders(dice, does=UNRULY)
        if dice.random() < 0.3:
            holders = [dearer(each, dice.choice((0, 0, 400_000))) for each in holders]
        nodes = dice.randint(2, 5)
        found = await pooled(pooling(holders), nodes)
        if (record := found.record) is None:
            seen["none"] += 1
            continue
        document = judged_by_a_third(record)
        assert document.deviation is None
        assert check_pool(record, NET) == record.chosen
        if isinstance(found, Pool):
            seen["held"] += 1
            seen["tries"] += len(record.tries) > 1
            requests = [unpack(each.request, NET, LeaseRequest).body for each in found.takings]
            assert [request.bid for request in requests] == list(record.chosen)
            assert len(record.chosen) == nodes
        else:
            assert record.chosen == ()
    assert min(seen.values()) > 5, seen


Tampered = tuple[PoolRecord, str, bytes | None]
"""The record, the rule that it breaks, and what was to be there instead."""


def an_owner_made_worse(record: PoolRecord, dice: random.Random) -> Tampered:
    """Of all offers but the dearest the renter thinks what would have made them lose."""
    worse = make.judged(reliability_ppm=0, unmet_ppm=1_000_000)
    first = unpack(record.tries[0][0].rfq, NET, Rfq).body.owner
    offers = tuple(
        replace(each, judged=worse) if _owner(each.advert) == first else each
        for each in record.offers
    )
    wrong = replace(record, offers=offers)
    return wrong, "pool.choice", _should(wrong)


def questions_in_another_order(record: PoolRecord, dice: random.Random) -> Tampered:
    [tried] = record.tries
    wrong = replace(record, tries=((*tried[1:], tried[0]),))
    return wrong, "pool.choice", _key(tried[0])


def a_question_left_out(record: PoolRecord, dice: random.Random) -> Tampered:
    [tried] = record.tries
    wrong = replace(record, tries=(tried[:-1],), chosen=record.chosen[:-1])
    return wrong, "pool.choice", _key(tried[-1])


def the_bids_in_another_order(record: PoolRecord, dice: random.Random) -> Tampered:
    chosen = (*record.chosen[1:], record.chosen[0])
    return replace(record, chosen=chosen), "pool.choice", record.chosen[0]


def another_bid_chosen(record: PoolRecord, dice: random.Random) -> Tampered:
    other = Digest(dice.randbytes(32))
    return replace(record, chosen=(other, *record.chosen[1:])), "pool.choice", record.chosen[0]


def asked_on_after_all_were_held(record: PoolRecord, dice: random.Random) -> Tampered:
    [tried] = record.tries
    again = tuple(_asked_anew(each, dice) for each in tried)
    return replace(record, tries=(tried, again), chosen=()), "pool.choice", None


def asked_on_after_a_no(record: PoolRecord, dice: random.Random) -> Tampered:
    """The first is said to have been silent, and the others were asked nevertheless."""
    [tried] = record.tries
    silent = (replace(tried[0], bid=UNSET), *tried[1:])
    return replace(record, tries=(silent,), chosen=record.chosen[1:]), "pool.choice", None


def a_price_altered(record: PoolRecord, dice: random.Random) -> Tampered:
    bid = record.tries[0][0].bid
    assert isinstance(bid, bytes)
    price = unpack(bid, NET, Bid).body.micro_per_gpu_hour.to_bytes(4, "big")
    cheap = replace(record.tries[0][0], bid=bid.replace(price, (200_000).to_bytes(4, "big")))
    return replace(record, tries=((cheap, *record.tries[0][1:]),)), "seal.bad", None


def an_offer_twice(record: PoolRecord, dice: random.Random) -> Tampered:
    return replace(record, offers=(*record.offers, record.offers[0])), "pool.twice", None


def an_offer_left_out(record: PoolRecord, dice: random.Random) -> Tampered:
    asked = unpack(record.tries[0][0].rfq, NET, Rfq).body.owner
    offers = tuple(each for each in record.offers if _owner(each.advert) != asked)
    return replace(record, offers=offers), "pool.order", None


def more_room_than_was_advertised(record: PoolRecord, dice: random.Random) -> Tampered:
    offers = (replace(record.offers[0], places=16), *record.offers[1:])
    return replace(record, offers=offers), "pool.order", None


def an_advert_of_another(record: PoolRecord, dice: random.Random) -> Tampered:
    """As if one account had offered what another did."""
    advert = make.advert(certificate=make.CERTIFICATE, free=GPUS, units=GPUS)
    forged = replace(record.offers[0], advert=pack(advert, signer=make.STRANGER, net=NET))
    return replace(record, offers=(*record.offers, forged)), "advert.signer", None


def answers_swapped(record: PoolRecord, dice: random.Random) -> Tampered:
    [tried] = record.tries
    one, other, *rest = tried
    swapped = (replace(one, bid=other.bid), replace(other, bid=one.bid), *rest)
    return replace(record, tries=(swapped,)), "bid.answer", None


def a_question_of_another_renter(record: PoolRecord, dice: random.Random) -> Tampered:
    [tried] = record.tries
    rfq = unpack(tried[1].rfq, NET, Rfq).body
    foreign = Asked(rfq=pack(rfq, signer=make.STRANGER, net=NET))
    return replace(record, tries=((tried[0], foreign),), chosen=()), "pool.order", None


def a_bid_that_held_nothing(record: PoolRecord, dice: random.Random) -> Tampered:
    [tried] = record.tries
    rfq = unpack(tried[0].rfq, NET, Rfq)
    assert isinstance(tried[0].bid, bytes)
    bid = replace(unpack(tried[0].bid, NET, Bid).body, exclusive=UNSET)
    owner = next(n for n in range(10, 20) if make.signer(n).public == rfq.body.owner)
    plain = replace(tried[0], bid=pack(bid, signer=make.signer(owner), net=NET))
    return replace(record, tries=((plain, *tried[1:]),)), "pool.order", None


def _owner(advert: bytes) -> bytes:
    return unpack(advert, NET, Advert).signer


def _key(asked: Asked) -> bytes:
    rfq = unpack(asked.rfq, NET, Rfq).body
    return group_key(rfq.owner, rfq.group)


def _should(record: PoolRecord) -> bytes | None:
    """Whom the rule would have asked first, of the same offers."""
    return plan(recompute(replace(record, tries=(), chosen=()), NET).offers, record.nodes)[0].key


def _asked_anew(asked: Asked, dice: random.Random) -> Asked:
    rfq = replace(unpack(asked.rfq, NET, Rfq).body, nonce=dice.randbytes(16))
    return Asked(rfq=pack(rfq, signer=make.RENTER, net=NET))


TAMPERINGS: list[Callable[[PoolRecord, random.Random], Tampered]] = [
    an_owner_made_worse,
    questions_in_another_order,
    a_question_left_out,
    the_bids_in_another_order,
    another_bid_chosen,
    asked_on_after_all_were_held,
    asked_on_after_a_no,
    a_price_altered,
    an_offer_twice,
    an_offer_left_out,
    more_room_than_was_advertised,
    an_advert_of_another,
    answers_swapped,
    a_question_of_another_renter,
    a_bid_that_held_nothing,
]


@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
async def test_records_tampered_with_in_fifteen_ways_name_the_deviation(
    tamper: Callable[[PoolRecord, random.Random], Tampered], autojump_clock: trio.abc.Clock
) -> None:
    dice = random.Random(3)
    for _ in range(10):
        holders = [
            Holder(number=number, ask=dice.randrange(300_000, 400_000)) for number in range(10, 17)
        ]
        found = await pooled(pooling(holders), dice.randint(2, 4))
        assert isinstance(found, Pool)
        wrong, rule, should = tamper(found.record, dice)
        document = judged_by_a_third(wrong)
        assert not document.is_by_the_rule
        assert document.deviation is not None
        assert (document.deviation.rule, document.deviation.text != "") == (rule, True)
        assert document.deviation.should == (None if should is None else should.hex())
        with pytest.raises(PeerFault, match=rule):
            check_pool(wrong, NET)


async def test_a_node_keeps_the_record_and_shows_it(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.abc.Clock
) -> None:
    party = Party(tmp_path, nursery, MemoryHub())
    owners = [await party.add(ask=ask) for ask in (300_000, 310_000, 320_000)]
    renter = await party.add(ask=None, gossip="auto")
    await trio.sleep(LISTED_S)
    views = PoolViews(renter.node, FileBaggage(tmp_path))
    waiting = submit(renter.node, 9)
    assert await ended(renter, waiting) == "failed"
    with pytest.raises(LocalFault, match="has asked no owner"):
        views.auction(waiting)
    pool = submit(renter.node, 2)
    assert await ended(renter, pool) == "done"
    document = views.auction(pool)
    assert document.is_by_the_rule
    assert len(document.offers) == 3
    assert {asked.owner for asked in document.asked} == {
        owner.node.identity.feed.public.hex() for owner in owners[:2]
    }
    assert {asked.answer for asked in document.asked} == {"held"}
    raw = views.auction_file(pool)
    assert (
        verify_auction(raw, KnownNetwork(net=renter.node.net, genesis=None, by="option")).pool
        == document
    )
    with pytest.raises(LocalFault, match="several nodes"):
        auction_document(raw, renter.node.net)
    job = renter.node.pools.jobs_of(renter.node.pools.file(pool))[0]
    with pytest.raises(LocalFault) as told:
        JobViews(renter.node, FileBaggage(tmp_path)).auction(job.id)
    assert told.value.cure == f"p2pnode pool bids {pool}"


async def test_the_command_works_on_a_file_alone(
    tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    holders = [Holder(number=n, ask=300_000 + n) for n in range(10, 14)]
    holders[0].does = "refuse"
    found = await pooled(pooling(holders), 2)
    assert isinstance(found, Pool)
    file = tmp_path / "auction"
    file.write_bytes(encode(found.record))
    done = run("auction", "verify", str(file), "--network", NET.hex())
    assert done.returncode == 0, done.stderr
    assert "by the rule   scoring rule 2, pool rule 1" in done.stdout
    assert "refused TAKEN" in done.stdout
    wrong, _, should = the_bids_in_another_order(found.record, random.Random(5))
    assert should is not None
    file.write_bytes(encode(wrong))
    done = run("auction", "verify", str(file), "--network", NET.hex(), "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert faults(document, schema_of("auction.verify")) == []
    assert document["auction"] is None
    assert document["pool"]["deviation"]["should"] == should.hex()
    told = run("auction", "verify", str(file), "--network", NET.hex())
    assert f"it was to be {should.hex()[:12]}" in told.stdout
