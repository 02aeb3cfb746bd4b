"""`p2pnode auction verify`: a third peer recomputes who had to win, and names what deviates."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from p2pnode.api.auction_documents import AuctionDocument
from p2pnode.api.schemas import schema_of
from p2pnode.auction_check import auction_document
from p2pnode.matching.hearing import Hearing
from protocol.auction import Bid, Rfq
from protocol.codec import encode
from protocol.errors import LocalFault
from protocol.scoring import PPM, AuctionRecord, Heard, Judged, Weights
from protocol.units import Digest, Micros, MillisSpan
from protocol.wire import Sealed, pack, unpack
from tests import make
from tests.json_schema import faults
from tests.make import FEED, NET, RENTER, STRANGER
from tests.make_desk import Clock, Owner
from tests.p2pnode.test_cli import run

OFFER = Owner(10, Clock()).offer()


@dataclass(frozen=True)
class Answer:
    """A question and its bid, sealed once for all auctions in which they come."""

    rfq: Sealed[Rfq]
    bid: Sealed[Bid]
    raw: tuple[bytes, bytes]


def answers(count: int) -> list[Answer]:
    dice = random.Random(1)
    found = []
    for _ in range(count):
        heard = make.heard(dice.randint(300_000, 500_000))
        rfq, bid = unpack(heard.rfq, NET, Rfq), unpack(heard.bid, NET, Bid)
        found.append(Answer(rfq, bid, (heard.rfq, heard.bid)))
    return list({answer.bid.digest: answer for answer in found}.values())


POOL = answers(60)


def thought(dice: random.Random) -> Judged:
    return make.judged(
        reliability_ppm=dice.randint(500_000, PPM),
        stage_ms=MillisSpan(dice.randint(0, 600_000)),
        rtt_ms=dice.randint(1, 300),
        hazard_ppm_per_hour=dice.randint(0, 200_000),
        unmet_ppm=dice.choice((0, 0, 250_000)),
    )


def held(dice: random.Random, *, least: int = 0) -> Hearing:
    """An auction as the renter's own code holds it: bids of a few rounds, some tried in vain."""
    weights = Weights(
        delay_micro_per_hour=Micros(dice.choice((0, 100_000))),
        latency_micro_per_ms=Micros(dice.choice((0, 50))),
        redo_ms=MillisSpan(dice.choice((0, 600_000))),
    )
    hearing = Hearing(seed=dice.randbytes(16), weights=weights)
    left = dice.sample(POOL, dice.randint(least, 8))
    is_over = False
    while left and not is_over:
        hearing.round += 1
        asked = left[: max(least, dice.randint(1, 8))]
        left = left[len(asked) :]
        for answer in asked:
            rfq, bid = (answer.raw[0], answer.rfq.body), (answer.raw[1], answer.bid)
            hearing.hear(OFFER, rfq, bid, thought(dice))
        for digest in hearing.order():
            hearing.chosen.append(digest)
            if is_over := dice.random() < 0.7:
                break
    return hearing


def judged_by_a_third(record: AuctionRecord) -> AuctionDocument:
    return auction_document(encode(record), NET)


def test_a_third_peer_agrees_with_a_thousand_honest_renters() -> None:
    dice = random.Random(2)
    for _ in range(1_000):
        hearing = held(dice)
        document = judged_by_a_third(hearing.record(60))
        assert document.is_by_the_rule
        assert document.deviation is None
        costs = [bid.score_micro for bid in document.bids if bid.round == 1]
        assert not costs or min(costs) * 1.02 >= costs[0]
        assert document.chosen == tuple(digest.hex() for digest in hearing.chosen)


Tampered = tuple[AuctionRecord, str, str | None]
"""The record, the rule that it breaks, and the bid that was to be tried instead."""


def another_first(record: AuctionRecord, dice: random.Random) -> Tampered:
    should = record.chosen[0]
    other = dice.choice([d for d in digests(record) if d != should])
    return replace(record, chosen=(other,)), "auction.choice", should.hex()


def winner_left_out(record: AuctionRecord, dice: random.Random) -> Tampered:
    """As if the renter had dropped a bid of which it says that it took it."""
    bids = tuple(h for h in record.bids if unpack(h.bid, NET, Bid).digest != record.chosen[0])
    wrong = replace(record, bids=bids, chosen=record.chosen[:1])
    return wrong, "auction.choice", judged_by_a_third(replace(wrong, chosen=())).bids[0].bid


def winner_made_worse(record: AuctionRecord, dice: random.Random) -> Tampered:
    """Of the bid that was taken the renter thinks what would have made it lose."""
    worst = make.judged(reliability_ppm=0, unmet_ppm=PPM)
    bids = tuple(
        replace(h, judged=worst) if unpack(h.bid, NET, Bid).digest == record.chosen[0] else h
        for h in record.bids
    )
    wrong = replace(record, bids=bids, chosen=record.chosen[:1])
    return wrong, "auction.choice", judged_by_a_third(replace(wrong, chosen=())).bids[0].bid


def one_tried_twice(record: AuctionRecord, dice: random.Random) -> Tampered:
    [_, *others] = [bid.bid for bid in judged_by_a_third(record).bids]
    return replace(record, chosen=(record.chosen[0],) * 2), "auction.choice", others[0]


def a_price_altered(record: AuctionRecord, dice: random.Random) -> Tampered:
    sealed = record.bids[0].bid
    price = unpack(sealed, NET, Bid).body.micro_per_gpu_hour.to_bytes(4, "big")
    cheap = sealed.replace(price, (300_000).to_bytes(4, "big"))
    bids = (replace(record.bids[0], bid=cheap), *record.bids[1:])
    return replace(record, bids=bids), "seal.bad", None


def a_bid_twice(record: AuctionRecord, dice: random.Random) -> Tampered:
    return replace(record, bids=(*record.bids, record.bids[0])), "auction.twice", None


def bids_swapped(record: AuctionRecord, dice: random.Random) -> Tampered:
    one, other, *rest = record.bids
    swapped = (replace(one, bid=other.bid), replace(other, bid=one.bid), *rest)
    return replace(record, bids=swapped), "bid.answer", None


def another_renters_bid(record: AuctionRecord, dice: random.Random) -> Tampered:
    question = make.rfq(nonce=dice.randbytes(16))
    raw = pack(question, signer=STRANGER, net=NET)
    answer = make.bid(rfq=unpack(raw, NET, Rfq).digest, renter=STRANGER.public)
    foreign = Heard(rfq=raw, bid=pack(answer, signer=FEED, net=NET), judged=make.judged())
    return replace(record, bids=(*record.bids, foreign)), "auction.order", None


def another_job(record: AuctionRecord, dice: random.Random) -> Tampered:
    """A bid that answers another job's question would have been cheaper."""
    question = make.rfq(nonce=dice.randbytes(16), need=make.need(vram_mib_min=1))
    raw = pack(question, signer=RENTER, net=NET)
    answer = make.bid(rfq=unpack(raw, NET, Rfq).digest, micro_per_gpu_hour=Micros(1))
    cheap = Heard(rfq=raw, bid=pack(answer, signer=FEED, net=NET), judged=make.judged())
    return replace(record, bids=(*record.bids, cheap)), "auction.order", None


def another_seed(record: AuctionRecord, dice: random.Random) -> Tampered:
    """The draw among bids that are as good, drawn again until it suits."""
    twin = [replace(heard, judged=make.judged(), round=1) for heard in record.bids]
    even = replace(record, bids=tuple(twin), weights=Weights(), chosen=())
    best = judged_by_a_third(even).bids[0].bid
    chosen = (Digest(bytes.fromhex(best)),)
    worse = [replace(h, judged=make.judged(reliability_ppm=0)) for h in twin]
    bids = tuple(
        h if unpack(h.bid, NET, Bid).digest != chosen[0] else w
        for h, w in zip(twin, worse, strict=True)
    )
    wrong = replace(even, bids=bids, chosen=chosen, seed=dice.randbytes(16))
    return wrong, "auction.choice", judged_by_a_third(replace(wrong, chosen=())).bids[0].bid


def digests(record: AuctionRecord) -> list[Digest]:
    return [unpack(heard.bid, NET, Bid).digest for heard in record.bids]


TAMPERINGS: list[Callable[[AuctionRecord, random.Random], Tampered]] = [
    another_first,
    winner_left_out,
    winner_made_worse,
    one_tried_twice,
    a_price_altered,
    a_bid_twice,
    bids_swapped,
    another_renters_bid,
    another_job,
    another_seed,
]


@pytest.mark.parametrize("tamper", TAMPERINGS, ids=lambda tamper: tamper.__name__)
def test_ten_records_tampered_with_in_each_of_ten_ways_name_the_deviation(
    tamper: Callable[[AuctionRecord, random.Random], Tampered],
) -> None:
    dice = random.Random(3)
    for _ in range(10):
        wrong, rule, should = tamper(held(dice, least=4).record(60), dice)
        document = judged_by_a_third(wrong)
        assert not document.is_by_the_rule
        assert document.deviation is not None
        assert document.deviation.rule == rule
        assert document.deviation.should == should
        assert document.deviation.text


def test_what_is_no_record_is_told_so() -> None:
    with pytest.raises(LocalFault, match="no record of an auction"):
        auction_document(b"\xa0", NET)


def test_the_command_works_on_a_file_alone(tmp_path: Path) -> None:
    record = held(random.Random(4), least=4).record(60)
    file = tmp_path / "auction"
    file.write_bytes(encode(record))
    done = run("auction", "verify", str(file), "--network", NET.hex())
    assert done.returncode == 0, done.stderr
    assert "by the rule   scoring rule 2" in done.stdout
    assert done.stdout.splitlines()[0].split() == [
        "TRY", "BID", "OWNER", "MICRO/GPU-H", "PRICE", "STAGING", "QUEUE", "FAILURE",
        "INTERRUPTION", "LATENCY", "UNMET", "SCORE",
    ]  # fmt: skip
    wrong, _, should = another_first(record, random.Random(5))
    file.write_bytes(encode(wrong))
    done = run("auction", "verify", str(file), "--network", NET.hex(), "--json")
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert faults(document, schema_of("auction.verify")) == []
    assert document["auction"]["deviation"]["should"] == should
    told = run("auction", "verify", str(file), "--network", NET.hex())
    assert told.returncode == 1
    assert f"was to be bid {should and should[:12]}" in told.stdout


def test_a_record_is_checked_against_a_network_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / "auction"
    file.write_bytes(encode(held(random.Random(4), least=4).record(60)))
    done = run("auction", "verify", str(file), home=tmp_path / "none")
    assert done.returncode == 1
    assert "does not name its network" in done.stderr
    done = run("auction", "verify", str(file), "--network", "ab" * 32)
    assert done.returncode == 1
    assert "DEVIATES      seal.bad" in done.stdout
