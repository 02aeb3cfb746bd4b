"""Sealed messages, HELLOs and certificates, good and bad, for protocol/vectors/*.json."""

from collections.abc import Callable
from typing import Any

from nacl.signing import SigningKey

from protocol.advert import Host, Surcharge, TierAsk, WorkloadPolicy
from protocol.codec import Wire, encode
from protocol.genesis import Genesis, net_of
from protocol.lease import UnitTurn
from protocol.limits import ADVERT_BYTES_MAX, QUOTE_BYTES_MAX
from protocol.signing import Signer, peer_id_of, preimage
from protocol.units import Micros, Millis, NetId, PeerId, PublicKey, Signature
from protocol.wire import KINDS, Envelope, pack
from tests import make
from tests.make import DAY, FEED, GENESIS, MAIN, NET, NOW, OTHER_NET, RENTER, STRANGER, UNITS

Case = dict[str, Any]

ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of Ed25519's group."""


def with_order_added(signature: bytes) -> Signature:
    """The same signature in a form that a lax verifier takes as well."""
    scalar = int.from_bytes(signature[32:], "little") + ORDER
    return Signature(signature[:32] + scalar.to_bytes(32, "little"))


def sealed(body: Wire, signer: Signer = FEED, net: NetId = NET) -> bytes:
    return pack(body, signer=signer, net=net)


def resealed(body: Wire, **changes: Any) -> bytes:
    """A sealed message whose envelope says something else than was sealed."""
    kind, _ = KINDS[type(body)]
    raw = encode(body)
    seal = FEED.sign(kind, NET, raw)
    fields = {"t": kind, "k": FEED.public, "s": seal, "b": raw}
    return encode(Envelope(**(fields | changes)))


def envelope_cases(body: Wire) -> list[tuple[str, bytes, str]]:
    """What is refused of every kind, however good its body is: (name, bytes, rule)."""
    kind, size_max = KINDS[type(body)]
    other = "bid" if kind == "rfq" else "rfq"
    raw = encode(body)
    good = FEED.sign(kind, NET, raw)
    flipped = raw[:-1] + bytes([raw[-1] ^ 1])
    unprefixed = Signature(SigningKey(bytes([2]) * 32).sign(raw).signature)
    small = PublicKey(b"\x01" + bytes(31))
    assert preimage(kind, NET, raw) != raw
    return [
        ("sealed for another network", sealed(body, net=OTHER_NET), "seal.bad"),
        ("sealed as another kind", resealed(body, s=FEED.sign(other, NET, raw)), "seal.bad"),
        ("labelled as another kind", resealed(body, t=other), "seal.kind"),
        ("under another key", resealed(body, k=STRANGER.public), "seal.bad"),
        ("under a key of small order", resealed(body, k=small, s=small + bytes(32)), "seal.bad"),
        ("with a flipped bit in the body", resealed(body, b=flipped), "seal.bad"),
        ("with the order added to S", resealed(body, s=with_order_added(good)), "seal.bad"),
        ("with the body signed bare", resealed(body, s=unprefixed), "seal.bad"),
        ("of another envelope version", encode(Envelope(t=kind, k=FEED.public, s=good, b=raw))
            .replace(b"\x61v\x01", b"\x61v\x02"), "codec.shape"),
        ("longer than its kind may be", _padded(body, size_max + 1), "codec.size"),
    ]  # fmt: skip


def _padded(body: Wire, size: int) -> bytes:
    kind, _ = KINDS[type(body)]
    raw = bytes(size)
    return encode(Envelope(t=kind, k=FEED.public, s=FEED.sign(kind, NET, raw), b=raw))


def advert_case(
    name: str,
    rule: str | None,
    *,
    now: int = NOW,
    of: Genesis = GENESIS,
    signer: Signer = FEED,
    **changes: Any,
) -> Case:
    net = net_of(of)
    if of is not GENESIS:
        changes.setdefault("certificate", make.signed_certificate(net=net))
    raw = sealed(make.advert(**changes), signer, net)
    return {"name": name, "genesis": encode(of).hex(), "now": now, "bytes": raw.hex(), "rule": rule}


def advert_rules() -> list[Case]:
    def asks(*pairs: tuple[str, int | None]) -> tuple[TierAsk, ...]:
        return tuple(
            TierAsk(tier=tier) if ask is None  # type: ignore[arg-type]
            else TierAsk(tier=tier, micro_per_gpu_hour=Micros(ask))  # type: ignore[arg-type]
            for tier, ask in pairs
        )  # fmt: skip

    end = NOW + 90_000
    c = advert_case
    return [
        c("as long-lived as allowed", None),
        c("a millisecond too long-lived", "advert.life", not_after_ms=end + 1),
        c("over when it starts", "advert.life", not_after_ms=NOW),
        c("alive for a millisecond", None, not_after_ms=NOW + 1),
        c("as far ahead as allowed", None, now=NOW - 30_000),
        c("a millisecond further ahead", "advert.future", now=NOW - 30_001),
        c("at its last millisecond", None, now=end),
        c("a millisecond later", "advert.expired", now=end + 1),
        c("simulated in a test network", None, gpu="simulated"),
        c("real in a main network", None, of=MAIN),
        c("simulated in a main network", "advert.simulated", of=MAIN, gpu="simulated"),
        c("all units free", None, free=2),
        c("more units free than there are", "advert.free", free=3),
        c("no units", None, units=0, free=0),
        c("of a lower class", "advert.class", gpu_class=16),
        c("of no class", "advert.class", gpu_class=25),
        c("with the least VRAM of class 24", None, vram_mib=22_222),
        c("with a MiB less", "advert.class", vram_mib=22_221),
        c("three tiers in order", None, tiers=asks(("gold", None), ("silver", 2), ("bronze", 1))),
        c("two tiers out of order", "advert.tiers", tiers=asks(("bronze", 1), ("silver", 2))),
        c("a tier twice", "advert.tiers", tiers=asks(("silver", 1), ("silver", 2))),
        c("gold with an ask", "advert.ask", tiers=asks(("gold", 1))),
        c("silver without an ask", "advert.ask", tiers=asks(("silver", None))),
        c("gold with a remedy", None, tiers=(TierAsk(tier="gold", remedy_ppm=1_000_000),)),
        c("silver with a remedy", "advert.ask",
            tiers=(TierAsk(tier="silver", micro_per_gpu_hour=Micros(2), remedy_ppm=1),)),
        c("silver for nothing", None, tiers=asks(("silver", 0))),
        *advert_lists(),
        c("sealed by a feed that its certificate does not name", "advert.signer", signer=STRANGER),
        c("under a certificate of another network", "certificate.net", of=MAIN,
            certificate=make.CERTIFICATE),
        c("under a certificate that is over", "certificate.time",
            certificate=make.signed_certificate(not_after_ms=Millis(NOW - 1))),
        c("issued before its certificate began", "certificate.time", issued_ms=Millis(NOW - 1),
            not_after_ms=Millis(NOW + 1), certificate=make.signed_certificate(not_before_ms=NOW)),
        c("issued as its certificate began", None,
            certificate=make.signed_certificate(not_before_ms=NOW)),
        c("with every field", None, **_every_field()),
        c("withdrawn", None, state="withdrawn"),
    ]  # fmt: skip


def advert_lists() -> list[Case]:
    """What lists in it must be like."""
    c = advert_case

    def steps(*units: int) -> tuple[Surcharge, ...]:
        return tuple(Surcharge(units=number, ppm=1) for number in units)

    return [
        c("rising surcharges", None, surcharges=steps(1, 2)),
        c("two surcharges for one size", "advert.surcharges", surcharges=steps(2, 2)),
        c("falling surcharges", "advert.surcharges", surcharges=steps(2, 1)),
        c("renters of one region", None, policy=WorkloadPolicy(regions=("DE",))),
        c("a list of images", None, policy=WorkloadPolicy(only=("images", "renters"))),
        c("a policy about nothing", "advert.policy", policy=WorkloadPolicy()),
        c("a region twice", "advert.policy", policy=WorkloadPolicy(not_regions=("DE", "DE"))),
        c("lists out of order", "advert.policy", policy=WorkloadPolicy(only=("renters", "images"))),
        c("as many devices as units", None, devices=(bytes(8), bytes(7) + b"\1")),
        c("more devices than units", "advert.devices", units=1,
            devices=(bytes(8), bytes(7) + b"\1")),
        c("a device twice", "advert.devices", devices=(bytes(8), bytes(8))),
        c("falling devices", "advert.devices", devices=(bytes(7) + b"\1", bytes(8))),
    ]  # fmt: skip


def _every_field() -> dict[str, Any]:
    full = make.full_advert()
    return {name: getattr(full, name) for name in full.__struct_fields__}


def advert_shapes() -> list[Case]:
    """Bounds of single fields: the first value that is out of each."""
    wrong: dict[str, tuple[Any, ...]] = {
        "v": (2,),
        "certificate": (bytes(1_025),),
        "group": (bytes(15), bytes(17)),
        "incarnation": (-1, 2**63),
        "seq": (-1, 2**63),
        "state": ("closed",),
        "issued_ms": (0,),
        "gpu": ("amd",),
        "model": ("", "m" * 65, "\u00e9", "m\n"),
        "vram_mib": (0, 2**40 + 1),
        "units": (65,),
        "tiers": (
            (),
            (TierAsk(tier="gold"),) * 4,
            (TierAsk(tier="gold", remedy_ppm=0),),
            (TierAsk(tier="gold", remedy_ppm=1_000_001),),
        ),
        "money": ("US", "USDOL", "usd", "US1"),
        "isolation": ("none",),
        "region": ("I", "IND", "in", "I1", "IN\n"),
        "addresses": (("/",), ("ip4",), ("/" + "a" * 128,), ("/ip 4",), ("/a",) * 9),
        "open_until_ms": (0,),
        "policy": (
            bytes(31),
            WorkloadPolicy(regions=()),
            WorkloadPolicy(regions=("de",)),
            WorkloadPolicy(not_regions=tuple(f"{a}{b}" for a in "ABC" for b in "ABCDEF")[:17]),
            WorkloadPolicy(only=("gpus",)),  # type: ignore[arg-type]
        ),
        "calendar": (bytes(35), bytes(37)),
        "coordinate": (bytes(33),),
        "images": (bytes(63),),
        "data": (bytes(65),),
        "devices": ((), (bytes(7),), (bytes(9),), tuple(bytes([n]) * 8 for n in range(65))),
        "surcharges": ((), tuple(Surcharge(units=n, ppm=1) for n in range(1, 10))),
        "host": (Host(memory_mib=0), Host(driver=""), Host(compute=(8,))),  # type: ignore[arg-type]
    }
    return [
        advert_case(f"{field} out of bounds, {number}", "codec.shape", **{field: value})
        for field, values in wrong.items()
        for number, value in enumerate(values, 1)
    ]


def advert_cases() -> list[Case]:
    """All of them, with what is refused of every kind."""
    whole = make.advert()
    plain = {"genesis": encode(GENESIS).hex(), "now": NOW}
    return [
        *advert_rules(),
        *advert_shapes(),
        *(
            {"name": name, **plain, "bytes": raw.hex(), "rule": rule}
            for name, raw, rule in envelope_cases(whole)
        ),
        {"name": "far too long", **plain, "bytes": (bytes(ADVERT_BYTES_MAX + 193)).hex(),
            "rule": "codec.size"},
    ]  # fmt: skip


def sealed_cases(
    make_one: Callable[..., Wire], signer: Signer, wrong: dict[str, tuple[Any, ...]]
) -> list[Case]:
    """A good message, what is refused of every kind, and fields out of bounds."""
    good = make_one()
    return [
        {"name": "good", "bytes": sealed(good, signer).hex(), "rule": None},
        *(
            {"name": name, "bytes": raw.hex(), "rule": rule}
            for name, raw, rule in envelope_cases(good)
        ),
        *(
            {
                "name": f"{field} out of bounds, {number}",
                "bytes": sealed(make_one(**{field: value}), signer).hex(),
                "rule": "codec.shape",
            }
            for field, values in wrong.items()
            for number, value in enumerate(values, 1)
        ),
    ]


def request_cases() -> list[Case]:
    """Lease requests with the owner and the time at which they are judged."""
    shapes = sealed_cases(make.lease_request, RENTER, {
        "bid": (bytes(31),),
        "units": ((),),
        "terms": (bytes(31),),
        "job": (bytes(33),),
        "nonce": (bytes(17),),
        "lapse_ms": (-1,),
        "witnesses": ((), (bytes(31),), (bytes(32),) * 9),
        "quorum": (0, 9),
    })  # fmt: skip

    def rule(name: str, rule: str | None, now: int = NOW, **changes: Any) -> Case:
        raw = sealed(make.lease_request(**changes), RENTER)
        return {"name": name, "bytes": raw.hex(), "rule": rule, "now": now}

    [one, other] = UNITS
    twice = (UnitTurn(unit=one, ctr=0), UnitTurn(unit=one, ctr=1))
    once = (UnitTurn(unit=one, ctr=0), UnitTurn(unit=other, ctr=0))
    start = NOW + 1_000
    three = tuple(make.signer(number).public for number in (61, 62, 63))
    rules = [
        rule("two of three witnesses", None, witnesses=three, quorum=2),
        rule("three of three witnesses", None, witnesses=three, quorum=3),
        rule("one of one witness", None, witnesses=three[:1], quorum=1),
        rule("half of the witnesses", "request.witnesses", witnesses=three[:2], quorum=1),
        rule("more than all witnesses", "request.witnesses", witnesses=three, quorum=4),
        rule("witnesses without a quorum", "request.witnesses", witnesses=three),
        rule("a quorum without witnesses", "request.witnesses", quorum=1),
        rule("a witness twice", "request.witnesses", witnesses=three[:1] * 2, quorum=2),
        rule("the owner a witness", "request.witnesses", witnesses=(FEED.public,), quorum=1),
        rule("the renter a witness", "request.witnesses", witnesses=(RENTER.public,), quorum=1),
        rule("to another owner", "request.owner", owner=STRANGER.public),
        rule("two units", None, units=once),
        rule("a unit twice", "request.units", units=twice),
        rule("a millisecond long", None, end_ms=start + 1),
        rule("of no length", "request.span", end_ms=start),
        rule("binding for longer than allowed", "request.span", not_after_ms=NOW + 2_001),
        rule("binding for no time", "request.span", not_after_ms=NOW),
        rule("as far ahead as allowed", None, now=NOW - 30_000),
        rule("a millisecond further ahead", "request.future", now=NOW - 30_001),
        rule("at its last millisecond", None, now=NOW + 2_000),
        rule("a millisecond later", "request.stale", now=NOW + 2_001),
    ]
    common = {"owner": FEED.public.hex(), "now": NOW, "skew": 30_000}
    return [common | one for one in (*shapes, *rules)]


def hello_cases() -> list[Case]:
    own = peer_id_of(make.PEER.public)

    def c(
        name: str, rule: str | None, *, remote: PeerId = own, now: int = NOW, **changes: Any
    ) -> Case:
        raw = encode(make.hello(**changes))
        return {"name": name, "remote": remote.hex(), "net": NET.hex(), "now": now,
                "bytes": raw.hex(), "rule": rule}  # fmt: skip

    certificate = make.signed_certificate
    return [
        c("good", None),
        c("with a newer version as well", None, versions=(2, 1)),
        c("of newer versions only", "hello.version", versions=(2, 3)),
        c("of no version", "codec.shape", versions=()),
        c("of no role", "codec.shape", roles=()),
        c("of an unknown role", "codec.shape", roles=("miner",)),
        c("of 33 kinds", "codec.shape", kinds=("k",) * 33),
        c("with an agent", None, agent="p2pnode 0.1"),
        c("of another network", "hello.net", net=OTHER_NET),
        c("from another peer", "hello.peer", remote=peer_id_of(STRANGER.public)),
        c("under a certificate of another network", "certificate.net",
            certificate=certificate(net=OTHER_NET)),
        c("under a certificate that is over", "certificate.time", now=NOW + 30 * DAY + 1),
        c("at its certificate's last millisecond", None, now=NOW + 30 * DAY),
        c("longer than allowed", "codec.size", kinds=("k" * QUOTE_BYTES_MAX,)),
        c("with garbage for a certificate", "codec.form", certificate=b"\xff"),
    ]  # fmt: skip
