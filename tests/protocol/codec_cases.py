"""Encodings, good and bad, for protocol/vectors/codec.json and offers.json."""

from typing import Any

from protocol.codec import encode, encode_plain
from protocol.hello import Answer, Question
from protocol.limits import INT_MAX
from protocol.offers import Heads, HeadsAsk, Offers, OwnOffers, OwnOffersAsk, group_key, root_of
from tests.make import FEED, GROUP, terms

Case = dict[str, Any]

B, T, ID = "616240", "61746470696e67", "62696401"
"""The three fields of the question {"b": h'', "t": "ping", "id": 1}, in canonical order."""


def case(name: str, raw: bytes | str, rule: str | None, shape: str, size_max: int = 1_024) -> Case:
    raw = bytes.fromhex(raw) if isinstance(raw, str) else raw
    return {"name": name, "shape": shape, "size_max": size_max, "bytes": raw.hex(), "rule": rule}


def question(name: str, hexes: str, rule: str | None) -> Case:
    return case(name, hexes, rule, "question")


def id_is(name: str, hexes: str, rule: str | None) -> Case:
    return question(f"id is {name}", "a3" + B + T + "626964" + hexes, rule)


def b_is(name: str, hexes: str, rule: str | None) -> Case:
    return question(f"b is {name}", "a36162" + hexes + T + ID, rule)


def t_is(name: str, hexes: str, rule: str | None) -> Case:
    return question(f"t is {name}", "a3" + B + "6174" + hexes + ID, rule)


GOOD = "a3" + B + T + ID


def framing() -> list[Case]:
    whole = bytes.fromhex(GOOD)
    return [
        question("the smallest question", GOOD, None),
        case("as long as allowed", whole, None, "question", len(whole)),
        case("a byte longer than allowed", whole, "codec.size", "question", len(whole) - 1),
        question("nothing", "", "codec.form"),
        question("cut short", GOOD[:-2], "codec.form"),
        question("a trailing byte", GOOD + "00", "codec.form"),
        question("the same value twice", GOOD * 2, "codec.form"),
        question("keys out of order, same length", "a3" + T + B + ID, "codec.form"),
        question("keys out of order, longer first", "a3" + ID + B + T, "codec.form"),
        question("a key twice, same value", "a4" + B + B + T + ID, "codec.form"),
        question("a key twice, other value", "a4" + B + T + ID + "62696402", "codec.form"),
        question("a field missing", "a2" + B + T, "codec.shape"),
        question("a field unknown", "a4" + B + T + "617a00" + ID, "codec.shape"),
        question("map length not minimal", "b803" + B + T + ID, "codec.form"),
        question("map of indefinite length", "bf" + B + T + ID + "ff", "codec.form"),
        question("map longer than its bytes", "bbffffffffffffffff" + B, "codec.form"),
        question("key length not minimal", "a3" + "78016240" + T + ID, "codec.form"),
        question("a key of bytes", "a3" + "416240" + T + ID, "codec.shape"),
        question("a key that is an integer", "a3" + "0040" + T + ID, "codec.form"),
        question("a key that is a list", "a3" + "8040" + T + ID, "codec.form"),
        question("a key that is NaN", "a3" + "f97e0040" + T + ID, "codec.form"),
        question("a list in place of a map", "83" + "40" + "6470696e67" + "01", "codec.shape"),
        question("an integer", "00", "codec.shape"),
        question("a text", "6470696e67", "codec.shape"),
        question("a break alone", "ff", "codec.form"),
        question("a whole message in a tag", "d9d9f7" + GOOD, "codec.form"),
        question("containers six deep", "81" * 6, "codec.form"),
        question("containers 500 deep", "81" * 500 + "00", "codec.form"),
        question("maps 500 deep", "a16162" * 300 + "00", "codec.form"),
    ]


def integers() -> list[Case]:
    edges = {0: "00", 23: "17", 24: "1818", 255: "18ff", 256: "190100", 65_535: "19ffff"}
    edges |= {65_536: "1a00010000", 2**32 - 1: "1affffffff", 2**32: "1b0000000100000000"}
    edges |= {INT_MAX: "1b7fffffffffffffff"}
    return [
        *(id_is(f"{value}", hexes, None) for value, hexes in edges.items()),
        id_is("2**63", "1b8000000000000000", "codec.shape"),
        id_is("2**64 - 1", "1bffffffffffffffff", "codec.shape"),
        id_is("-1", "20", "codec.shape"),
        id_is("-2**64", "3bffffffffffffffff", "codec.shape"),
        id_is("1 in two bytes", "1801", "codec.form"),
        id_is("1 in three bytes", "190001", "codec.form"),
        id_is("1 in five bytes", "1a00000001", "codec.form"),
        id_is("1 in nine bytes", "1b0000000000000001", "codec.form"),
        id_is("1 as a bignum", "c24101", "codec.form"),
        id_is("2**64 as a bignum", "c249010000000000000000", "codec.form"),
        id_is("a negative bignum", "c34101", "codec.form"),
        id_is("1 in a tag for time", "c101", "codec.form"),
        id_is("1 in an unknown tag", "d9ffff01", "codec.form"),
        id_is("1 in the largest tag", "dbffffffffffffffff01", "codec.form"),
        id_is("1.0 in a half float", "f93c00", "codec.shape"),
        id_is("1.0 in a double", "fb3ff0000000000000", "codec.shape"),
        id_is("NaN", "f97e00", "codec.shape"),
        id_is("true", "f5", "codec.shape"),
        id_is("null", "f6", "codec.shape"),
        id_is("undefined", "f7", "codec.shape"),
        id_is("simple value 0", "e0", "codec.shape"),
        id_is("simple value 255", "f8ff", "codec.shape"),
        id_is("simple value 20 in two bytes", "f814", "codec.form"),
        id_is("of a reserved width", "1c", "codec.form"),
        id_is("the text 1", "6131", "codec.shape"),
    ]


def strings() -> list[Case]:
    return [
        b_is("23 bytes", "57" + "00" * 23, None),
        b_is("24 bytes", "5818" + "00" * 24, None),
        b_is("256 bytes", "590100" + "00" * 256, None),
        b_is("no bytes, length not minimal", "5800", "codec.form"),
        b_is("bytes of indefinite length", "5f40ff", "codec.form"),
        b_is("longer than what follows", "5bffffffffffffffff", "codec.form"),
        b_is("a text", "60", "codec.shape"),
        b_is("null", "f6", "codec.shape"),
        b_is("a list", "80", "codec.shape"),
        b_is("a list longer than what follows", "9bffffffffffffffff", "codec.form"),
        b_is("a shared value", "d81c40", "codec.form"),
        b_is("a reference to a shared value", "d81d00", "codec.form"),
        b_is("a list that holds itself", "d81c81d81d00", "codec.form"),
        b_is("a set", "d9010280", "codec.form"),
        b_is("a regular expression", "d823622828", "codec.form"),
        t_is("1 character", "6120", None),
        t_is("64 characters", "7840" + "61" * 64, None),
        t_is("65 characters", "7841" + "61" * 65, "codec.shape"),
        t_is("empty", "60", "codec.shape"),
        t_is("of indefinite length", "7f6470696e67ff", "codec.form"),
        t_is("bytes", "4470696e67", "codec.shape"),
        t_is("with a line feed at its end", "6570696e670a", "codec.shape"),
        t_is("with an escape character", "621b5b", "codec.shape"),
        t_is("with a delete character", "617f", "codec.shape"),
        t_is("not ASCII", "62c3a9", "codec.shape"),
        t_is("not UTF-8", "61ff", "codec.form"),
        t_is("a surrogate", "63eda080", "codec.form"),
        t_is("UTF-8 in more bytes than needed", "62c1a1", "codec.form"),
    ]


def extensions() -> list[Case]:
    plain = {"v": 1, "isolation": "container", "network": "none"}

    def x_is(name: str, x: Any, rule: str | None) -> Case:
        return case(f"x has {name}", encode_plain({**plain, "x": x}), rule, "terms", 4_096)

    return [
        case("no extensions", encode(terms()), None, "terms"),
        case(
            "the version absent",
            encode_plain({k: plain[k] for k in ("isolation", "network")}),
            "codec.form",
            "terms",
        ),
        case("another version", encode_plain({**plain, "v": 2}), "codec.shape", "terms"),
        x_is("no members", {}, "codec.shape"),
        x_is("eight members", {f"k{i}": "" for i in range(8)}, None),
        x_is("nine members", {f"k{i}": "" for i in range(9)}, "codec.shape"),
        x_is("an empty key", {"": ""}, "codec.shape"),
        x_is("a key of 23 bytes", {"k" * 23: ""}, None),
        x_is("a key of 24 bytes", {"k" * 24: ""}, "codec.shape"),
        x_is("a key of 22 bytes in 11 characters", {"\u00e9" * 11: ""}, None),
        x_is("a key of 24 bytes in 12 characters", {"\u00e9" * 12: ""}, "codec.shape"),
        x_is("a text of 256 bytes", {"k": "a" * 256}, None),
        x_is("a text of 257 bytes", {"k": "a" * 257}, "codec.shape"),
        x_is("a text of 256 bytes in 128 characters", {"k": "\u00e9" * 128}, None),
        x_is("a text of 258 bytes in 129 characters", {"k": "\u00e9" * 129}, "codec.shape"),
        x_is("an integer", {"k": 1}, "codec.shape"),
        x_is("bytes", {"k": b""}, "codec.shape"),
        x_is("null", {"k": None}, "codec.shape"),
        case("x is null", encode_plain({**plain, "x": None}), "codec.shape", "terms"),
    ]


def conversation() -> list[Case]:
    def answer(name: str, fields: dict[str, Any], rule: str | None) -> Case:
        return case(f"an answer with {name}", encode_plain({"id": 1, **fields}), rule, "answer")

    return [
        case("a question", encode(Question(id=3, t="offers.get", b=b"\x01")), None, "question"),
        case("an answer", encode(Answer(id=3, b=b"")), None, "answer"),
        answer("a rule", {"rule": "question.kind"}, None),
        answer("a rule and why", {"rule": "codec.size", "why": "9999 bytes"}, None),
        answer("a body and a rule", {"b": b"", "rule": "question.kind"}, "codec.shape"),
        answer("neither body nor rule", {}, "codec.shape"),
        answer("a body and why", {"b": b"", "why": "because"}, "codec.shape"),
        answer("why of 200 characters", {"rule": "a.b", "why": "\u00e9" * 200}, None),
        answer("why of 201 characters", {"rule": "a.b", "why": "\u00e9" * 201}, "codec.shape"),
    ]


def codec_cases() -> list[Case]:
    return [*framing(), *integers(), *strings(), *extensions(), *conversation()]


HEADS = [
    (bytes([n]) * 16, 1, n, bytes([n + 1]) * 16) for n in range(3)
]  # in order of their keys, as `root_of` wants them


def offers_cases() -> list[Case]:
    root = root_of(HEADS)

    def groups(name: str, count: int, rule: str | None) -> Case:
        raw = encode_plain({"groups": [bytes([n]) * 16 for n in range(count)]})
        return case(name, raw, rule, "offers-ask")

    def heads(name: str, head: list[Any], rule: str | None) -> Case:
        return case(name, encode_plain({"root": root, "heads": [head]}), rule, "heads")

    return [
        case("from the start", encode(HeadsAsk(root=root)), None, "heads-ask", 256),
        case(
            "from a key on",
            encode(HeadsAsk(root=root, after=group_key(FEED.public, GROUP))),
            None,
            "heads-ask",
            256,
        ),
        case("a root of 31 bytes", encode_plain({"root": root[:31]}), "codec.shape", "heads-ask"),
        case("three heads", encode(Heads(root=root, heads=tuple(HEADS))), None, "heads"),
        case("no heads", encode(Heads(root=root, heads=())), None, "heads"),
        heads("a head of three", [bytes(16), 1, 2], "codec.shape"),
        heads("a head of five", [bytes(16), 1, 2, bytes(16), 0], "codec.shape"),
        heads("a head with a short key", [bytes(15), 1, 2, bytes(16)], "codec.shape"),
        groups("no groups", 0, "codec.shape"),
        groups("one group", 1, None),
        groups("32 groups", 32, None),
        groups("33 groups", 33, "codec.shape"),
        case("no adverts", encode(Offers(adverts=())), None, "offers"),
        case("an advert", encode(Offers(adverts=(b"\x00",))), None, "offers"),
        case("33 adverts", encode_plain({"adverts": [b""] * 33}), "codec.shape", "offers"),
        case("own offers", encode(OwnOffersAsk()), None, "own-offers-ask", 256),
        case(
            "own offers from a key on",
            encode(OwnOffersAsk(after=bytes(16))),
            None,
            "own-offers-ask",
            256,
        ),
        case(
            "own offers from a short key on",
            encode_plain({"after": bytes(15)}),
            "codec.shape",
            "own-offers-ask",
            256,
        ),
        case("no own adverts", encode(OwnOffers(adverts=())), None, "own-offers"),
        case(
            "an own advert, and more",
            encode(OwnOffers(adverts=(b"",), more_after=bytes(16))),
            None,
            "own-offers",
        ),
        case("33 own adverts", encode_plain({"adverts": [b""] * 33}), "codec.shape", "own-offers"),
    ]
