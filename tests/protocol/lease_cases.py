"""What is said about a granted lease, and jobs, good and bad, for protocol/vectors/*.json."""

from collections.abc import Callable
from typing import Any

from nacl.bindings import crypto_box_seed_keypair

from protocol.auction import Reply
from protocol.codec import Wire, encode, encode_plain
from protocol.errors import PeerFault
from protocol.job import Input, digest_of_job, open_job, seal_job
from protocol.lease import LeaseRequest, charge
from protocol.lease_stream import CosignAsk, Cosigned, Kept, LeaseName, Open, Part, Settle
from protocol.limits import INT_MAX
from protocol.tick import COSIGN_DOMAIN, ArchiveName, Tick
from protocol.units import Micros, MillisSpan, PublicKey, Signature
from tests import make
from tests.make import FEED, LEASE, NET, NOW, RENTER
from tests.protocol.codec_cases import case
from tests.protocol.message_cases import sealed, sealed_cases

Case = dict[str, Any]


def take_cases() -> list[Case]:
    """The question `lease.take`, and the answers to it and to `rfq`."""
    no = sealed(make.refusal())
    return [
        case("a request with a job", encode(make.take(job=b"\0" * 48)), None, "take", 262_144),
        case("a request without a job", encode(make.take()), None, "take", 262_144),
        case("a job alone", encode_plain({"job": b"j"}), "codec.shape", "take", 262_144),
        case("a request that is too long", encode(make.take(request=bytes(4_289))), "codec.shape",
            "take", 262_144),
        case("a yes", encode(Reply(yes=sealed(make.bid()))), None, "reply", 262_144),
        case("a no", encode(Reply(no=no)), None, "reply", 262_144),
        case("neither yes nor no", encode_plain({}), "codec.shape", "reply", 262_144),
        case("yes and no", encode_plain({"yes": b"y", "no": no}), "codec.shape", "reply", 262_144),
        case("a yes as long as allowed", encode(Reply(yes=bytes(16_384))), None, "reply", 262_144),
        case("a yes that is too long", encode_plain({"yes": bytes(16_385)}), "codec.shape",
            "reply", 262_144),
    ]  # fmt: skip


def witness_cases() -> list[Case]:
    """The question `witness.cosign` and the answers to it."""
    seal = bytes(64)
    yes = {"at_ms": NOW, "by": [seal, seal]}
    no = {"item": bytes(104), "by": seal}

    def asked(name: str, rule: str | None, grant: bytes) -> Case:
        return case(name, encode_plain({"grant": grant}), rule, "witness-ask", 262_144)

    def said(name: str, rule: str | None, /, **fields: Any) -> Case:
        return case(name, encode_plain(fields), rule, "witness-answer", 262_144)

    return [
        asked("a grant", None, bytes(500)),
        asked("a grant as long as allowed", None, bytes(16_384)),
        asked("a grant that is too long", "codec.shape", bytes(16_385)),
        said("signatures for two turns", None, yes=yes),
        said("no signature", "codec.shape", yes={**yes, "by": []}),
        said("nine signatures", "codec.shape", yes={**yes, "by": [seal] * 9}),
        said("signatures at no time", "codec.shape", yes={**yes, "at_ms": 0}),
        said("another item", None, no=no),
        said("another item and its grant", None, no={**no, "grant": bytes(500)}),
        said("an item that is too long", "codec.shape", no={**no, "item": bytes(129)}),
        said("neither yes nor no to a witness", "codec.shape"),
        said("yes and no to a witness", "codec.shape", yes=yes, no=no),
    ]


def stream_cases() -> list[Case]:
    """The frames of `/p2pnode/lease/1`."""
    seal = Signature(bytes(64))

    def opening(name: str, rule: str | None, /, **fields: Any) -> Case:
        plain = {"v": 1, "lease": LEASE, "want": "log", "offset": 0, **fields}
        return case(f"open: {name}", encode_plain(plain), rule, "open", 256)

    def part(name: str, refused: str | None, /, **fields: Any) -> Case:
        return case(
            f"part: {name}", encode_plain({"offset": 0, **fields}), refused, "part", 262_144
        )

    def asked(name: str, shape: str, value: Wire) -> Case:
        return case(f"{shape}: {name}", encode(value), None, shape, 262_144)

    outcome = sealed(make.outcome())
    return [
        asked("the log", "open", Open(lease=LEASE, want="log", offset=0)),
        opening("the log from somewhere", None, offset=7),
        opening("the output from somewhere", None, want="output", offset=7),
        opening("the input", None, want="input"),
        opening("the input from somewhere", "codec.shape", want="input", offset=1),
        opening("what was saved elsewhere", None, want="resume"),
        opening("that from somewhere", "codec.shape", want="resume", offset=1),
        opening("a checkpoint from somewhere", None, want="checkpoint", offset=7),
        opening("something else", "codec.shape", want="disk"),
        opening("of another version", "codec.shape", v=2),
        asked("a count", "part", Part(offset=4_096)),
        part("a piece", None, offset=7, b=b"line\n"),
        part("an empty piece", "codec.shape", b=b""),
        part("a piece at the end of all", None, offset=INT_MAX - 1, b=b"a"),
        part("a piece beyond it", "codec.shape", offset=INT_MAX, b=b"a"),
        part("an outcome", None, offset=5, outcome=outcome),
        part("a checkpoint", None, offset=5, saved=sealed(make.saved())),
        part("a checkpoint and a piece", "codec.shape", b=b"a", saved=sealed(make.saved())),
        part("a rule", None, rule="lease.renter"),
        part("a rule with a place", "codec.shape", offset=1, rule="lease.renter"),
        part("a piece and an outcome", "codec.shape", b=b"a", outcome=outcome),
        part("a piece and a rule", "codec.shape", b=b"a", rule="output.gone"),
        part("an outcome and a rule", "codec.shape", outcome=outcome, rule="output.gone"),
        part("all three", "codec.shape", b=b"a", outcome=outcome, rule="output.gone"),
        part("no place", "codec.shape", offset=-1),
        asked("a tick", "cosign-ask", CosignAsk(tick=sealed(make.tick()))),
        asked("a signature", "cosigned", Cosigned(by=seal)),
        asked("a lease", "lease-name", LeaseName(lease=LEASE)),
        asked("a checkpoint that a renter has", "kept", Kept(lease=LEASE, saved=LEASE)),
        asked("all that a renter gives", "settle",
            Settle(lease=LEASE, at_ms=NOW, consent=seal, cosign=seal)),
        asked("without a signature under the tick", "settle",
            Settle(lease=LEASE, at_ms=NOW, consent=seal)),
        case("settle: without a consent", encode_plain({"lease": LEASE, "at_ms": NOW}),
            "codec.shape", "settle", 262_144),
    ]  # fmt: skip


def tick_cases() -> list[Case]:
    """Ticks of one lease, with the request, the tick before and the time of judgement."""
    shapes = sealed_cases(make.tick, FEED, {
        "lease": (bytes(31),),
        "used_ms": (-1, 2**63),
        "amount_micro": (-1, 2**63),
        "at_ms": (0,),
    })  # fmt: skip
    price = make.lease_request().micro_per_gpu_hour
    start, end, units = NOW + 1_000, NOW + 3_601_000, 2

    def used(ms: int) -> dict[str, Any]:
        return {"used_ms": ms, "amount_micro": charge(MillisSpan(ms), price)}

    def rule(
        name: str, rule: str | None, *, now: int = NOW + 61_000, before: Tick | None = None,
        saved_ms: int | None = None, **changes: Any,
    ) -> Case:  # fmt: skip
        raw = sealed(make.tick(**changes))
        last = None if before is None else encode(before).hex()
        return {"name": name, "bytes": raw.hex(), "rule": rule, "now": now, "before": last,
                "saved_ms": saved_ms}  # fmt: skip

    first = make.tick()
    owed = first.amount_micro
    rules = [
        rule("number 0", "tick.order", n=0),
        rule("number 9 first", None, n=9),
        rule("the next", None, before=first, n=2),
        rule("one left out", None, before=first, n=3),
        rule("a number again", "tick.order", before=first),
        rule("a number before", "tick.order", before=make.tick(n=2)),
        rule("the same use again", None, before=first, n=2),
        rule("a millisecond less", "tick.order", before=first, n=2, **used(119_999)),
        rule("a micro too much", "tick.amount", amount_micro=owed + 1),
        rule("a micro too little", "tick.amount", amount_micro=owed - 1),
        rule("of nothing", None, **used(0), at_ms=NOW),
        rule("a millisecond before the start", "tick.span", **used(1), at_ms=start),
        rule("all of the time", None, **used(1_000 * units), at_ms=start + 1_000),
        rule("a millisecond more", "tick.span", **used(1_000 * units + 1), at_ms=start + 1_000),
        rule("after the end", None, now=end + 9, at_ms=end + 9, **used((end - start) * units)),
        rule("after the end, for it", "tick.span", now=end + 9, at_ms=end + 9,
            **used((end - start) * units + 1)),
        rule("as far ahead as allowed", None, now=NOW + 31_000),
        rule("all that was saved", None, saved_ms=120_000),
        rule("a millisecond that was not", "tick.lost", saved_ms=119_999),
        rule("what was co-signed before it was lost", None, before=first, n=2, saved_ms=0),
        rule("a millisecond further ahead", "tick.future", now=NOW + 30_999),
    ]  # fmt: skip
    common = {"now": NOW + 61_000, "skew": 30_000, "before": None, "saved_ms": None}
    return [common | one for one in (*shapes, *rules)]


def tick_vectors() -> Case:
    body = encode(make.tick())
    return {
        "net": NET.hex(),
        "request": encode(make.lease_request()).hex(),
        "cosign": {
            "domain": COSIGN_DOMAIN,
            "public": RENTER.public.hex(),
            "body": body.hex(),
            "by": RENTER.sign(COSIGN_DOMAIN, NET, body).hex(),
        },
        "cases": tick_cases(),
    }


def saved_vectors() -> Case:
    """What the job of a lease saved, with the request and the most bytes that it may have."""
    shapes = sealed_cases(make.saved, FEED, {
        "lease": (bytes(31),),
        "used_ms": (-1, 2**63),
        "at_ms": (0,),
        "archive": (ArchiveName(digest=LEASE, bytes=-1),),
    })  # fmt: skip
    end, units = NOW + 3_601_000, 2

    def rule(name: str, rule: str | None, **changes: Any) -> Case:
        return {"name": name, "bytes": sealed(make.saved(**changes)).hex(), "rule": rule}

    def sized(size: int) -> ArchiveName:
        return ArchiveName(digest=LEASE, bytes=size)

    return {
        "net": NET.hex(),
        "request": encode(make.lease_request()).hex(),
        "bytes_max": 4_096,
        "now": end + 9 - 30_000,
        "skew": 30_000,
        "cases": [
            *shapes,
            rule("as large as it may be", None, archive=sized(4_096)),
            rule("nothing", "saved.size", archive=sized(0)),
            rule("a byte larger", "saved.size", archive=sized(4_097)),
            rule("all of the time", None, used_ms=60_000 * units),
            rule("a millisecond more", "saved.span", used_ms=60_000 * units + 1),
            rule("before the start", "saved.span", used_ms=1, at_ms=NOW),
            rule("after the end", None, used_ms=3_600_000 * units, at_ms=end + 9),
            rule("from a time to come", "saved.future", at_ms=end + 10),
            rule("after the end, for it", "saved.span", used_ms=3_600_000 * units + 1,
                at_ms=end + 9),
        ],
    }  # fmt: skip


def outcome_cases() -> list[Case]:
    return [
        *sealed_cases(make.outcome, FEED, {
            "lease": (bytes(31),),
            "cause": ("crash",),
            "exit_code": (-1, 256),
            "signal": (0, 65),
            "started_ms": (0,),
            "ended_ms": (0,),
            "output": (ArchiveName(digest=LEASE, bytes=-1),),
            "engine": ("", "e\n"),
            "isolation": ("none",),
            "enforced": ("e" * 501,),
            "detail": ("", "d" * 201),
            "vram_peak_mib": (0, 2**40 + 1, "1"),
            "gpu": ("amd",),
        }),
        *({"name": f"by {cause}", "bytes": sealed(make.outcome(cause=cause)).hex(), "rule": None}
            for cause in ("signal", "memory", "time", "disk", "pids", "stopped", "preempted",
                "renewed", "engine")),
    ]  # fmt: skip


def job_cases() -> list[Case]:
    def c(name: str, rule: str | None, raw: bytes, named: bytes | None = None) -> Case:
        found = digest_of_job(raw) if named is None else named
        return {"name": name, "bytes": raw.hex(), "named": found.hex(), "rule": rule}

    def one(name: str, rule: str | None, **changes: Any) -> Case:
        return c(name, rule, encode(make.job(**changes)))

    good = encode(make.job())
    thirty_two = "A" * 32
    return [
        c("good", None, good),
        c("another than is named", "job.digest", good, bytes(32)),
        c("its digest without the domain", "job.digest", good, LEASE),
        c("not canonical", "codec.form", good + b"\0"),
        one("of an image", None, image="sha256:" + "0" * 64),
        one("of a named image", None, image="a.example/b:1@sha256:" + "f" * 64),
        one("of an image by its name alone", "codec.shape", image="a.example/b:1"),
        one("of an image with a short digest", "codec.shape", image="sha256:" + "0" * 63),
        one("of an image with a name of 201", None, image="a" * 201 + "@sha256:" + "0" * 64),
        one(
            "of an image with a name of 202", "codec.shape", image="a" * 202 + "@sha256:" + "0" * 64
        ),
        one("with what it saved elsewhere", None, checkpoint=Input(digest=LEASE, bytes=7)),
        one("that handles a signal", None, notice_signal="USR1"),
        one("that handles a signal that it cannot", "codec.shape", notice_signal="KILL"),
        one("that outlasts its lease", None, outlasts="yes"),
        one("without arguments", "codec.shape", argv=()),
        one("with an empty argument", None, argv=("",)),
        one("with a zero byte", "codec.shape", argv=("a\0",)),
        one("with a line feed", None, argv=("a\n",)),
        one("an argument of 8,192 characters", None, argv=("a" * 8_192,)),
        one("an argument of 8,193 characters", "codec.shape", argv=("a" * 8_193,)),
        one("64 arguments", None, argv=("a",) * 64),
        one("65 arguments", "codec.shape", argv=("a",) * 65),
        one("no variables", None, variables={}),
        one("variables in the order of their length", None, variables={thirty_two: "1", "B": ""}),
        one("a variable that begins with a digit", "codec.shape", variables={"1A": ""}),
        one("a variable with a line feed", "codec.shape", variables={"A\n": ""}),
        one("a variable without a name", "codec.shape", variables={"": ""}),
        one("64 variables", None, variables={f"V{n}": "" for n in range(64)}),
        one("65 variables", "codec.shape", variables={f"V{n}": "" for n in range(65)}),
        one("a nonce of 15 bytes", "codec.shape", nonce=bytes(15)),
    ]


def sealed_job_vectors() -> list[Case]:
    """What is sealed to whom under which seed, and what the holder of the key makes of it."""
    public, secret = crypto_box_seed_keypair(bytes([6]) * 32)
    raw, seed = encode(make.job()), bytes([8]) * 32
    good = seal_job(raw, to=PublicKey(public), ephemeral=seed)
    _, other = crypto_box_seed_keypair(bytes([7]) * 32)
    rows: dict[str, tuple[bytes, bytes]] = {
        "good": (good, secret),
        "to another key": (good, other),
        "an altered last byte": (good[:-1] + bytes([good[-1] ^ 1]), secret),
        "an altered ephemeral key": (bytes([good[0] ^ 1]) + good[1:], secret),
        "a byte short": (good[:-1], secret),
        "shorter than any": (good[:47], secret),
        "empty": (b"", secret),
    }
    return [
        {
            "name": name,
            "job": raw.hex(),
            "ephemeral_seed": seed.hex(),
            "public": public.hex(),
            "secret": key.hex(),
            "sealed": box.hex(),
            "rule": _rule_of(lambda box=box, key=key: open_job(  # type: ignore[misc]
                box, public=PublicKey(public), secret=key)),
        }
        for name, (box, key) in rows.items()
    ]  # fmt: skip


def weak_keys() -> list[Case]:
    """Keys to which nothing is sealed, since the shared secret would be zero."""
    keys = {"zero": bytes(32), "one": b"\1" + bytes(31), "of order eight": bytes.fromhex(
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800")}  # fmt: skip
    return [
        {"name": name, "public": key.hex(), "rule": _rule_of(
            lambda key=key: seal_job(b"", to=key, ephemeral=bytes(32)))}  # type: ignore[misc]
        for name, key in keys.items()
    ]  # fmt: skip


def _rule_of(judge: Callable[[], object]) -> str | None:
    try:
        judge()
    except PeerFault as fault:
        return fault.rule
    return None


def take_vectors() -> list[Case]:
    """Lease requests and the bid that they take, or do not."""
    bid = make.bid()
    raw = sealed(bid)

    def c(name: str, rule: str | None, request: LeaseRequest, signer: Any = RENTER) -> Case:
        return {"name": name, "bid": raw.hex(), "bytes": sealed(request, signer).hex(),
                "rule": rule}  # fmt: skip

    [one, other] = make.turns()
    changes: dict[str, Any] = {
        "bid": LEASE,
        "owner": make.STRANGER.public,
        "units": (other, one),
        "start_ms": NOW + 1_001,
        "end_ms": NOW + 3_601_001,
        "tier": "bronze",
        "money": "EUR",
        "micro_per_gpu_hour": Micros(bid.micro_per_gpu_hour - 1),
        "period_ms": MillisSpan(60_001),
        "notice_ms": MillisSpan(1),
        "lapse_ms": MillisSpan(300_001),
        "remedy_ppm": 1,
        "renews": LEASE,
        "terms": LEASE,
    }
    request = make.lease_request
    return [
        c("as it was made", None, request()),
        c("with a job", None, request(job=LEASE)),
        c("by another renter", "request.bid", request(), make.STRANGER),
        *(
            c(f"another {name}", "request.bid", request(**{name: value}))
            for name, value in changes.items()
        ),
    ]
