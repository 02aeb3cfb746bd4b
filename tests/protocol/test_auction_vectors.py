"""What bids cost and how they are ranked, replayed from protocol/vectors/auction.json alone."""

import json

import pytest
from msgspec.structs import asdict

from protocol.auction import Bid, Rfq
from protocol.codec import decode
from protocol.limits import QUOTE_BYTES_MAX
from protocol.scoring import Judged, Weights, deal_of, expected_cost, ranking
from protocol.units import Digest, Micros, NetId
from protocol.wire import unpack
from tests.protocol.test_vectors import Case, raw
from tests.vectors import FOLDER

FILE = json.loads((FOLDER / "auction.json").read_text())


@pytest.mark.parametrize("case", FILE["rankings"], ids=lambda c: c["name"])
def test_bids_are_ranked_as_the_vectors_say(case: Case) -> None:
    bids = [(Digest(bytes.fromhex(digest)), Micros(score)) for digest, score in case["bids"]]
    assert [digest.hex() for digest in ranking(bids, raw(case, "seed"))] == case["order"]


@pytest.mark.parametrize("case", FILE["costs"])
def test_expected_costs_are_those_of_the_vectors(case: Case) -> None:
    net = NetId(raw(FILE, "net"))
    rfq, bid = unpack(raw(case, "rfq"), net, Rfq).body, unpack(raw(case, "bid"), net, Bid).body
    judged = decode(raw(case, "judged"), Judged, size_max=QUOTE_BYTES_MAX)
    weights = decode(raw(case, "weights"), Weights, size_max=QUOTE_BYTES_MAX)
    assert asdict(expected_cost(deal_of(rfq, bid, weights), judged, weights)) == case["terms"]
