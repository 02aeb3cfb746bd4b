"""protocol/vectors replayed as another implementation would: from the files alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from protocol.advert import Advert, check_advert, device_mark
from protocol.answers import check_bid, check_refusal, check_takes
from protocol.auction import (
    Bid,
    BidCommit,
    BidReveal,
    Refusal,
    Reply,
    Rfq,
    Take,
    check_rfq,
    hidden_bid,
)
from protocol.certificate import check_in_force, read_certificate
from protocol.codec import Wire, decode, encode
from protocol.errors import PeerFault
from protocol.genesis import net_of, read_genesis
from protocol.gpu_class import CLASSES, REGION_GROUPS, GpuClass, gpu_class, group_of, topic_index
from protocol.hello import Answer, Hello, Question, check_hello
from protocol.job import open_job, read_job, seal_job
from protocol.lease import LeaseRequest, Terms, charge, check_request
from protocol.lease_stream import CosignAsk, Cosigned, Kept, LeaseName, Open, Part, Settle
from protocol.limits import AUCTION_BYTES_MAX, HELLO_BYTES_MAX, QUOTE_BYTES_MAX, TICK_BYTES_MAX
from protocol.offers import (
    Heads,
    HeadsAsk,
    OfferHead,
    Offers,
    OffersAsk,
    OwnOffers,
    OwnOffersAsk,
    group_key,
    root_of,
    supersedes,
)
from protocol.payment import PaymentReference, reference_of
from protocol.pool import PoolOffer, PoolRecord, check_pool, plan
from protocol.rail import RailReceipt, check_rail_receipt
from protocol.rules import RULES, RULES_DIGEST
from protocol.scoring import AuctionRecord, check_auction
from protocol.signing import digest, is_signed
from protocol.tick import Outcome, Saved, Tick, check_saved, check_tick
from protocol.units import (
    Digest,
    Mebibytes,
    Micros,
    Millis,
    MillisSpan,
    NetId,
    PeerId,
    PublicKey,
    Signature,
)
from protocol.wire import unpack
from protocol.witness import WitnessAnswer, WitnessAsk
from tests.vectors import FOLDER, text_of, vectors

Case = dict[str, Any]

FILES: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))
}

SHAPES: dict[str, type[Wire]] = {
    "question": Question,
    "answer": Answer,
    "terms": Terms,
    "heads-ask": HeadsAsk,
    "heads": Heads,
    "offers-ask": OffersAsk,
    "offers": Offers,
    "own-offers-ask": OwnOffersAsk,
    "own-offers": OwnOffers,
    "take": Take,
    "reply": Reply,
    "witness-ask": WitnessAsk,
    "witness-answer": WitnessAnswer,
    "open": Open,
    "part": Part,
    "cosign-ask": CosignAsk,
    "cosigned": Cosigned,
    "settle": Settle,
    "kept": Kept,
    "lease-name": LeaseName,
}


def raw(case: Case, key: str = "bytes") -> bytes:
    return bytes.fromhex(case[key])


def judge_shape(case: Case) -> None:
    decode(raw(case), SHAPES[case["shape"]], size_max=case["size_max"])


def judge_genesis(case: Case) -> None:
    assert net_of(read_genesis(raw(case))).hex() == case["net"]


def judge_certificate(case: Case) -> None:
    certificate = read_certificate(raw(case), NetId(raw(case, "net")))
    check_in_force(certificate, Millis(case["now"]))


def judge_advert(case: Case) -> None:
    genesis = read_genesis(raw(case, "genesis"))
    net = net_of(genesis)
    sealed = unpack(raw(case), net, Advert)
    now = Millis(case["now"])
    check_advert(sealed.body, signer=sealed.signer, genesis=genesis, net=net, now=now)


def judge_hello(case: Case) -> None:
    hello, net = decode(raw(case), Hello, size_max=HELLO_BYTES_MAX), NetId(raw(case, "net"))
    check_hello(hello, remote=PeerId(raw(case, "remote")), net=net, now=Millis(case["now"]))


def judge_rfq(case: Case) -> None:
    genesis = read_genesis(raw(FILES["rfq"], "genesis"))
    body = unpack(raw(case), net_of(genesis), Rfq).body
    owner, now = PublicKey(raw(case, "owner")), Millis(case["now"])
    check_rfq(body, owner=owner, genesis=genesis, now=now)


def judge_bid(case: Case) -> None:
    genesis = read_genesis(raw(case, "genesis"))
    question = unpack(raw(case, "question"), net_of(genesis), Rfq)
    bid = unpack(raw(case), net_of(genesis), Bid)
    check_bid(bid, question, genesis=genesis, now=Millis(case["now"]))


def judge_refusal(case: Case) -> None:
    check_refusal(
        unpack(raw(case), NetId(raw(FILES["refusal"], "net")), Refusal),
        of=Digest(raw(case, "of")),
        owner=PublicKey(raw(case, "owner")),
        renter=PublicKey(raw(case, "renter")),
    )


def judge_rail(case: Case) -> None:
    check_rail_receipt(unpack(raw(case), NetId(raw(FILES["rail"], "net")), RailReceipt).body)


def judge_auction(case: Case) -> None:
    record = decode(raw(case), AuctionRecord, size_max=AUCTION_BYTES_MAX)
    tried = check_auction(record, NetId(raw(FILES["auction"], "net")))
    assert (tried and tried.hex()) == case["tried"]


def judge_pool(case: Case) -> None:
    record = decode(raw(case), PoolRecord, size_max=AUCTION_BYTES_MAX)
    assert check_pool(record, NetId(raw(FILES["pool"], "net"))) == record.chosen


@pytest.mark.parametrize("case", FILES["pool"]["plans"], ids=lambda case: case["name"])
def test_places_are_planned_as_the_vectors_say(case: Case) -> None:
    offers = [
        PoolOffer(
            key=bytes.fromhex(key),
            owner=PublicKey(bytes.fromhex(owner)),
            account=PublicKey(bytes.fromhex(account)),
            places=places,
            score=Micros(score),
        )
        for key, owner, account, places, score in case["offers"]
    ]
    assert [offer.key.hex() for offer in plan(offers, case["nodes"])] == case["asked"]


def judge_job(case: Case) -> None:
    read_job(raw(case), named=Digest(raw(case, "named")))


def judge_tick(case: Case) -> None:
    file = FILES["tick"]
    body = unpack(raw(case), NetId(raw(file, "net")), Tick).body
    request = decode(raw(file, "request"), LeaseRequest, size_max=QUOTE_BYTES_MAX)
    before = case["before"] and decode(raw(case, "before"), Tick, size_max=TICK_BYTES_MAX)
    given = {name: case[name] for name in ("now", "skew", "saved_ms")}
    check_tick(body, request, before=before, **given)


def judge_saved(case: Case) -> None:
    file = FILES["saved"]
    request = decode(raw(file, "request"), LeaseRequest, size_max=QUOTE_BYTES_MAX)
    body = unpack(raw(case), NetId(raw(file, "net")), Saved).body
    given = {name: file[name] for name in ("bytes_max", "now", "skew")}
    check_saved(body, request, **given)


def judge_seal(name: str, shape: type[Wire]) -> Callable[[Case], None]:
    """Of what has no rules beyond its seal and its fields."""

    def judge(case: Case) -> None:
        unpack(raw(case), NetId(raw(FILES[name], "net")), shape)

    return judge


def judge_request(case: Case) -> None:
    sealed = unpack(raw(case), NetId(raw(FILES["lease-request"], "net")), LeaseRequest)
    owner, now, skew = PublicKey(raw(case, "owner")), Millis(case["now"]), MillisSpan(case["skew"])
    check_request(sealed.body, owner=owner, renter=sealed.signer, now=now, skew=skew)


JUDGES: dict[str, Callable[[Case], None]] = {
    "codec": judge_shape,
    "offers": judge_shape,
    "genesis": judge_genesis,
    "certificate": judge_certificate,
    "advert": judge_advert,
    "hello": judge_hello,
    "rfq": judge_rfq,
    "bid": judge_bid,
    "refusal": judge_refusal,
    "bid-commit": judge_seal("bid-commit", BidCommit),
    "bid-reveal": judge_seal("bid-reveal", BidReveal),
    "auction": judge_auction,
    "pool": judge_pool,
    "take": judge_shape,
    "witness": judge_shape,
    "job": judge_job,
    "tick": judge_tick,
    "outcome": judge_seal("outcome", Outcome),
    "saved": judge_saved,
    "payment": judge_seal("payment", PaymentReference),
    "rail": judge_rail,
    "lease-stream": judge_shape,
    "lease-request": judge_request,
}


def rule_of(name: str, case: Case) -> str | None:
    """The rule by which the case is refused; None if it is good."""
    return broken(lambda: JUDGES[name](case))


ROWS = [
    pytest.param(name, case, id=f"{name}: {case['name']} -> {case['rule'] or 'good'}")
    for name in JUDGES
    for case in FILES[name]["cases"]
]


@pytest.mark.parametrize(("name", "case"), ROWS)
def test_each_case_is_judged_as_the_vectors_say(name: str, case: Case) -> None:
    assert rule_of(name, case) == case["rule"]


def test_the_files_are_what_the_makers_make() -> None:
    written = {path.stem: path.read_text() for path in FOLDER.glob("*.json")}
    made = {name: text_of(document) for name, document in vectors().items()}
    assert written.keys() == made.keys(), "python -m tests.vectors"
    for name, text in made.items():
        assert written[name] == text, f"{name}: python -m tests.vectors"


def test_no_two_cases_of_a_file_have_one_name() -> None:
    for name in JUDGES:
        names = [case["name"] for case in FILES[name]["cases"]]
        assert len(names) == len(set(names)), name


def test_marks_of_devices_are_those_of_the_vectors() -> None:
    for row in FILES["advert"]["marks"]:
        assert device_mark(row["device"], NetId(raw(row, "net"))).hex() == row["mark"], row


def test_classes_and_topics_are_those_of_the_vectors() -> None:
    file = FILES["classes"]
    assert file["classes"] == list(CLASSES)
    assert file["region_groups"] == list(REGION_GROUPS)
    for row in file["vram"]:
        assert gpu_class(Mebibytes(row["vram_mib"])) == row["class"], row
    for row in file["regions"]:
        assert group_of(row["region"]) == row["group"], row
    for row in file["topics"]:
        of = GpuClass(row["class"])
        assert topic_index(of, row["region"], topics=row["topics"]) == row["index"], row


def test_charges_and_digests_are_those_of_the_vectors() -> None:
    file = FILES["lease-request"]
    for row in file["charges"]:
        used, price = MillisSpan(row["used_ms"]), Micros(row["micro_per_gpu_hour"])
        assert charge(used, price) == row["micro"], row
    assert digest("terms", raw(file["terms"])).hex() == file["terms"]["digest"]
    sealed = unpack(raw(file["cases"][0]), NetId(raw(file, "net")), LeaseRequest)
    assert sealed.digest.hex() == file["digests"]["lease-request"]
    assert sealed.body.bid.hex() == file["digests"]["bid"]
    assert sealed.body.terms.hex() == file["terms"]["digest"]
    bid = unpack(raw(FILES["bid"]["cases"][0]), NetId(raw(file, "net")), Bid)
    assert bid.body.rfq.hex() == file["digests"]["rfq"]
    job = FILES["job"]["cases"][0]
    assert digest("job", raw(job)).hex() == job["named"]


def broken(judge: Callable[[], object]) -> str | None:
    try:
        judge()
    except PeerFault as fault:
        return fault.rule
    return None


@pytest.mark.parametrize("case", FILES["lease-request"]["takes"], ids=lambda c: c["name"])
def test_a_request_takes_a_bid_as_the_vectors_say(case: Case) -> None:
    net = NetId(raw(FILES["lease-request"], "net"))
    request, bid = unpack(raw(case), net, LeaseRequest), unpack(raw(case, "bid"), net, Bid)
    assert broken(lambda: check_takes(request, bid)) == case["rule"]


@pytest.mark.parametrize("case", FILES["job"]["sealed"], ids=lambda c: c["name"])
def test_jobs_are_sealed_and_opened_as_the_vectors_say(case: Case) -> None:
    public, box = PublicKey(raw(case, "public")), raw(case, "sealed")
    made = seal_job(raw(case, "job"), to=public, ephemeral=raw(case, "ephemeral_seed"))
    assert (made == box) is (case["name"] in {"good", "to another key"})
    found: list[bytes] = []
    rule = broken(lambda: found.append(open_job(box, public=public, secret=raw(case, "secret"))))
    assert rule == case["rule"]
    assert found == ([] if rule else [raw(case, "job")])


@pytest.mark.parametrize("case", FILES["job"]["weak_keys"], ids=lambda c: c["name"])
def test_nothing_is_sealed_to_a_key_that_everybody_has(case: Case) -> None:
    def seal() -> bytes:
        return seal_job(b"job", to=PublicKey(raw(case, "public")), ephemeral=bytes(32))

    assert broken(seal) == case["rule"] == "job.key"


def test_a_tick_is_cosigned_over_its_body() -> None:
    case, net = FILES["tick"]["cosign"], NetId(raw(FILES["tick"], "net"))
    key, by = PublicKey(raw(case, "public")), Signature(raw(case, "by"))
    assert is_signed(key, case["domain"], net, raw(case, "body"), by=by)
    assert not is_signed(key, "tick", net, raw(case, "body"), by=by)


def test_what_hides_a_bid_and_names_an_account_is_as_the_vectors_say() -> None:
    for row in FILES["bid-commit"]["hidden"]:
        assert hidden_bid(raw(row, "salt"), raw(row, "bid")).hex() == row["hidden"]
    for row in FILES["payment"]["references"]:
        owner, renter = PublicKey(raw(row, "owner")), PublicKey(raw(row, "renter"))
        assert reference_of(owner, renter, row["money"]) == row["reference"]


def test_the_rules_bundle_is_that_of_the_vectors() -> None:
    assert FILES["genesis"]["rules"] == {"bytes": RULES.hex(), "digest": RULES_DIGEST.hex()}


def head_of(row: list[Any]) -> OfferHead:
    key, incarnation, seq, advert = row
    return bytes.fromhex(key), incarnation, seq, bytes.fromhex(advert)


def test_heads_and_roots_are_those_of_the_vectors() -> None:
    file = FILES["offers"]
    group = file["group_key"]
    assert group_key(PublicKey(raw(group, "feed")), raw(group, "group")).hex() == group["key"]
    advert = decode(raw(file["head"], "body"), Advert, size_max=6_144)
    assert (advert.incarnation, advert.seq) == (file["head"]["incarnation"], file["head"]["seq"])
    assert digest("advert", encode(advert))[:16].hex() == file["head"]["digest16"]
    for row in file["roots"]:
        assert root_of([head_of(head) for head in row["heads"]]).hex() == row["root"]
    for row in file["supersedes"]:
        newer, older = (
            (b"", row[which]["incarnation"], row[which]["seq"], raw(row[which], "digest16"))
            for which in ("newer", "older")
        )
        assert supersedes(newer, older)
        assert not supersedes(older, newer)
