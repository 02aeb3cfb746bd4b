"""protocol/vectors replayed as another implementation would: from the files alone."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from protocol.advert import Advert, check_advert
from protocol.auction import Bid, Refusal, Rfq
from protocol.certificate import check_in_force, read_certificate
from protocol.codec import Wire, decode, encode
from protocol.errors import PeerFault
from protocol.genesis import net_of, read_genesis
from protocol.gpu_class import CLASSES, REGION_GROUPS, GpuClass, gpu_class, group_of, topic_index
from protocol.hello import Answer, Hello, Question, check_hello
from protocol.lease import LeaseRequest, Terms, charge, check_request
from protocol.limits import HELLO_BYTES_MAX
from protocol.offers import (
    Heads,
    HeadsAsk,
    OfferHead,
    Offers,
    OffersAsk,
    group_key,
    root_of,
    supersedes,
)
from protocol.rules import RULES, RULES_DIGEST
from protocol.signing import Signer, digest, is_signed, is_sound, key_of, preimage
from protocol.units import Mebibytes, Micros, Millis, MillisSpan, NetId, PeerId, PublicKey
from protocol.wire import unpack
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
}
QUOTES: dict[str, type[Wire]] = {"rfq": Rfq, "bid": Bid, "refusal": Refusal}


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
    check_advert(
        sealed.body, signer=sealed.signer, genesis=genesis, net=net, now=Millis(case["now"])
    )


def judge_hello(case: Case) -> None:
    hello = decode(raw(case), Hello, size_max=HELLO_BYTES_MAX)
    net = NetId(raw(case, "net"))
    check_hello(hello, remote=PeerId(raw(case, "remote")), net=net, now=Millis(case["now"]))


def judge_quote(kind: str) -> Callable[[Case], None]:
    net = NetId(raw(FILES[kind], "net"))

    def judge(case: Case) -> None:
        unpack(raw(case), net, QUOTES[kind])

    return judge


def judge_request(case: Case) -> None:
    sealed = unpack(raw(case), NetId(raw(FILES["lease-request"], "net")), LeaseRequest)
    check_request(
        sealed.body,
        owner=PublicKey(raw(case, "owner")),
        now=Millis(case["now"]),
        skew=MillisSpan(case["skew"]),
    )


JUDGES: dict[str, Callable[[Case], None]] = {
    "codec": judge_shape,
    "offers": judge_shape,
    "genesis": judge_genesis,
    "certificate": judge_certificate,
    "advert": judge_advert,
    "hello": judge_hello,
    "rfq": judge_quote("rfq"),
    "bid": judge_quote("bid"),
    "refusal": judge_quote("refusal"),
    "lease-request": judge_request,
}


def rule_of(name: str, case: Case) -> str | None:
    """The rule by which the case is refused; None if it is good."""
    try:
        JUDGES[name](case)
    except PeerFault as fault:
        return fault.rule
    return None


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


@pytest.mark.parametrize("case", FILES["signing"]["preimages"], ids=lambda c: c["domain"])
def test_preimages_signatures_and_digests_are_those_of_the_vectors(case: Case) -> None:
    net, data, signer = NetId(raw(case, "net")), raw(case, "data"), Signer(raw(case, "seed"))
    assert signer.public == raw(case, "public")
    assert preimage(case["domain"], net, data) == raw(case, "preimage")
    assert signer.sign(case["domain"], net, data) == raw(case, "signature")
    assert digest(case["domain"], data) == raw(case, "digest")


@pytest.mark.parametrize("case", FILES["signing"]["signatures"], ids=lambda c: c["name"])
def test_signatures_hold_as_the_vectors_say(case: Case) -> None:
    held = is_signed(
        PublicKey(raw(case, "key")),
        case["domain"],
        NetId(raw(case, "net")),
        raw(case, "data"),
        by=raw(case, "signature"),  # type: ignore[arg-type]
    )
    assert held is case["valid"]
    assert held is (case["name"] in {"good", "made by hand"})


@pytest.mark.parametrize("case", FILES["signing"]["keys"], ids=lambda c: c["name"])
def test_only_a_point_of_the_prime_order_group_is_a_sound_key(case: Case) -> None:
    assert is_sound(PublicKey(raw(case, "key"))) is case["sound"]
    assert case["sound"] is (case["name"] == "a feed key")


@pytest.mark.parametrize("case", FILES["signing"]["peer_ids"], ids=lambda c: c["name"])
def test_a_peer_id_holds_an_ed25519_key_or_none(case: Case) -> None:
    key = key_of(PeerId(raw(case, "peer_id")))
    assert (key and key.hex()) == case["key"]


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
