"""Preimages, keys, signatures, certificates and geneses for protocol/vectors/*.json."""

from hashlib import sha512
from typing import Any

from nacl.bindings import crypto_core_ed25519_add, crypto_scalarmult_ed25519_base_noclamp

from protocol.certificate import SignedCertificate
from protocol.codec import encode, encode_plain
from protocol.genesis import Bounds, net_of, read_genesis
from protocol.limits import CERTIFICATE_LIFE_MS_MAX, GENESIS_BYTES_MAX
from protocol.signing import Signer, digest, is_signed, is_sound, peer_id_of, preimage
from protocol.units import Millis, MillisSpan, NetId, PeerId, PublicKey, Signature
from tests import make
from tests.make import DAY, FEED, NET, NOW, OTHER_NET, PEER, ROOT, STRANGER
from tests.protocol.message_cases import ORDER, with_order_added

Case = dict[str, Any]

PRIME = 2**255 - 19
TORSION = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
"""A point of order eight."""
IDENTITY = PublicKey(b"\x01" + bytes(31))
DATA = b"some bytes"


def mixed(point: bytes) -> bytes:
    """The point with a component of order eight: its multiples by eight are the same."""
    return crypto_core_ed25519_add(point, TORSION)


def hand_signed(*, key: bytes, with_torsion: bool, seed: bytes = bytes([2]) * 32) -> Signature:
    """A signature in domain "advert" made without the library's care for its point R."""
    secret = bytearray(sha512(seed).digest()[:32])
    secret[0] &= 248
    secret[31] = secret[31] & 127 | 64
    nonce = 12345678901234567890
    point = crypto_scalarmult_ed25519_base_noclamp(nonce.to_bytes(32, "little"))
    point = mixed(point) if with_torsion else point
    hashed = sha512(point + key + preimage("advert", NET, DATA)).digest()
    scalar = nonce + int.from_bytes(hashed, "little") * int.from_bytes(secret, "little")
    return Signature(point + (scalar % ORDER).to_bytes(32, "little"))


def le(number: int) -> bytes:
    return number.to_bytes(32, "little")


def sound_cases() -> list[Case]:
    keys = {
        "a feed key": FEED.public,
        "the identity": IDENTITY,
        "zero, of order four": bytes(32),
        "minus one, of order two": le(PRIME - 1),
        "of order eight": TORSION,
        "of mixed order": mixed(FEED.public),
        "not on the curve": le(2),
        "the identity, y not reduced": le(PRIME + 1),
        "zero, y not reduced": le(PRIME),
        "the identity with a sign": IDENTITY[:31] + b"\x80",
        "all bits set": b"\xff" * 32,
    }
    return [
        {"name": name, "key": key.hex(), "sound": is_sound(PublicKey(key))}
        for name, key in keys.items()
    ]


def signature_cases() -> list[Case]:
    good = FEED.sign("advert", NET, DATA)
    rows: dict[str, tuple[bytes, str, NetId, bytes, bytes]] = {
        "good": (FEED.public, "advert", NET, DATA, good),
        "made by hand": (
            FEED.public, "advert", NET, DATA, hand_signed(key=FEED.public, with_torsion=False)
        ),
        "in another domain": (FEED.public, "bid", NET, DATA, good),
        "in another network": (FEED.public, "advert", OTHER_NET, DATA, good),
        "of other bytes": (FEED.public, "advert", NET, DATA + b"\0", good),
        "of another key": (STRANGER.public, "advert", NET, DATA, good),
        "with the order added to S": (FEED.public, "advert", NET, DATA, with_order_added(good)),
        "with R of mixed order": (
            FEED.public, "advert", NET, DATA, hand_signed(key=FEED.public, with_torsion=True)
        ),
        "of the identity": (IDENTITY, "advert", NET, DATA, IDENTITY + bytes(32)),
        "of a point of order eight": (TORSION, "advert", NET, DATA, IDENTITY + bytes(32)),
        "a byte short": (FEED.public, "advert", NET, DATA, good[:63]),
        "empty": (FEED.public, "advert", NET, DATA, b""),
        "under a key of 31 bytes": (FEED.public[:31], "advert", NET, DATA, good),
    }  # fmt: skip
    return [
        {
            "name": name,
            "key": key.hex(),
            "domain": domain,
            "net": net.hex(),
            "data": data.hex(),
            "signature": by.hex(),
            "valid": is_signed(PublicKey(key), domain, net, data, by=Signature(by)),
        }
        for name, (key, domain, net, data, by) in rows.items()
    ]


def preimage_cases() -> list[Case]:
    return [
        {
            "seed": (bytes([2]) * 32).hex(),
            "public": FEED.public.hex(),
            "domain": domain,
            "net": NET.hex(),
            "data": data.hex(),
            "preimage": preimage(domain, NET, data).hex(),
            "signature": FEED.sign(domain, NET, data).hex(),
            "digest": digest(domain, data).hex(),
        }
        for domain in ("advert", "certificate", "lease-request")
        for data in (b"", DATA)
    ]


def peer_cases() -> list[Case]:
    good = peer_id_of(PEER.public)
    return [
        {"name": "an Ed25519 peer", "peer_id": good.hex(), "key": PEER.public.hex()},
        {"name": "a hashed peer id", "peer_id": (b"\x12\x20" + bytes(32)).hex(), "key": None},
        {"name": "another key type", "peer_id": (b"\0\x24\x08\2" + good[4:]).hex(), "key": None},
        {"name": "a byte longer", "peer_id": (good + b"\0").hex(), "key": None},
    ]


def certificate_cases() -> list[Case]:
    def c(name: str, rule: str | None, raw: bytes, now: int = NOW) -> Case:
        return {"name": name, "net": NET.hex(), "now": now, "bytes": raw.hex(), "rule": rule}

    def over(body: bytes, **by: bytes) -> bytes:
        """`body` under good signatures, but for those that are given."""
        seals = {
            name: signer.sign("certificate", NET, body)
            for name, signer in (("root", ROOT), ("feed", FEED), ("peer", PEER))
        }
        return encode_plain({"b": body, **seals, **by})

    made = make.signed_certificate
    body = encode(make.certificate())
    start, two_years = NOW - DAY, CERTIFICATE_LIFE_MS_MAX
    other_form = PeerId(b"\0\x24\x08\2" + peer_id_of(PEER.public)[4:])
    odd_keys = {"small order": IDENTITY, "mixed order": mixed(FEED.public), "no point": le(2)}
    return [
        c("good", None, made()),
        c("two years long", None, made(not_after_ms=Millis(start + two_years))),
        c("a millisecond longer", "certificate.span", made(not_after_ms=start + two_years + 1)),
        c("a millisecond long", None, made(not_after_ms=start + 1), start),
        c("of no length", "certificate.span", made(not_after_ms=start)),
        c("at its first millisecond", None, made(), start),
        c("a millisecond earlier", "certificate.time", made(), start - 1),
        c("at its last millisecond", None, made(), NOW + 30 * DAY),
        c("a millisecond later", "certificate.time", made(), NOW + 30 * DAY + 1),
        c("of another network", "certificate.net", made(net=OTHER_NET)),
        c("with a peer of another form", "certificate.key", made(peer_id=other_form)),
        *(
            c(f"with a feed key of {name}", "certificate.key", made(feed=PublicKey(key)))
            for name, key in odd_keys.items()
        ),
        c("with a root key of small order", "certificate.key", made(root=IDENTITY)),
        c(
            "with a peer key of small order",
            "certificate.key",
            made(peer_id=peer_id_of(IDENTITY)),
        ),
        *(
            c(f"with the {by} seal of a stranger", "certificate.seal",
                over(body, **{by: STRANGER.sign("certificate", NET, body)}))
            for by in ("root", "feed", "peer")
        ),
        c("sealed in another domain", "certificate.seal",
            over(body, root=ROOT.sign("advert", NET, body))),
        c("with the order added to S", "certificate.seal",
            over(body, root=with_order_added(ROOT.sign("certificate", NET, body)))),
        c("with a seal missing", "codec.shape", encode_plain({"b": body, "root": bytes(64)})),
        c("with a byte after the body", "codec.form", over(body + b"\0")),
        c("as long as allowed but for its content", "codec.shape",
            _filled(make.certificate(), 256)),
        c("longer than allowed", "codec.size", encode(SignedCertificate(
            b=bytes(1_024), root=Signature(bytes(64)), feed=Signature(bytes(64)),
            peer=Signature(bytes(64))))),
    ]  # fmt: skip


def _filled(certificate: Any, size: int) -> bytes:
    """A certificate with more in an extension than may be."""
    body = encode_plain({**_plain(certificate), "x": {"k": "a" * (size + 1)}})
    seals = {
        name: signer.sign("certificate", NET, body)
        for name, signer in (("root", ROOT), ("feed", FEED), ("peer", PEER))
    }
    return encode_plain({"b": body, **seals})


def _plain(struct: Any) -> dict[str, Any]:
    names = [name for name in struct.__struct_fields__ if name != "x"]
    return {name: getattr(struct, name) for name in names}


def genesis_cases() -> list[Case]:
    def c(name: str, rule: str | None, raw: bytes) -> Case:
        net = None if rule else net_of(read_genesis(raw)).hex()
        return {"name": name, "bytes": raw.hex(), "rule": rule, "net": net}

    def bounds(**changes: int) -> bytes:
        return encode(make.genesis(bounds=Bounds(**changes)))  # type: ignore[arg-type]

    plain = _plain(make.genesis(bounds=_plain(Bounds())))
    long_text = {f"k{number}": "a" * 256 for number in range(8)}
    return [
        c("a test network", None, encode(make.GENESIS)),
        c("a main network", None, encode(make.MAIN)),
        c("another nonce", None, encode(make.genesis(nonce=bytes(16)))),
        c("another rules bundle", None, encode(make.genesis(rules=bytes(32)))),
        c("of another kind", "codec.shape", encode(make.genesis(kind="dev"))),
        c("a nonce of 15 bytes", "codec.shape", encode(make.genesis(nonce=bytes(15)))),
        c("no name", "codec.shape", encode(make.genesis(name=""))),
        c("a name of 64 characters", None, encode(make.genesis(name="n" * 64))),
        c("a name of 65 characters", "codec.shape", encode(make.genesis(name="n" * 65))),
        c("a currency of 3 letters", None, encode(make.genesis(money="INR"))),
        c("a currency of 2 letters", "codec.shape", encode(make.genesis(money="IN"))),
        c("no version", "codec.form",
            encode_plain({name: value for name, value in plain.items() if name != "v"})),
        c("no bounds", "codec.shape",
            encode_plain({name: value for name, value in plain.items() if name != "bounds"})),
        c("a default left out", "codec.form", encode_plain(plain | {"bounds": {}})),
        c("no topics", "codec.shape", bounds(advert_topics=0)),
        c("65,536 topics", None, bounds(advert_topics=65_536)),
        c("65,537 topics", "codec.shape", bounds(advert_topics=65_537)),
        c("no shards", "codec.shape", bounds(dht_shards=0)),
        c("adverts that live a second", None, bounds(advert_life_ms=1_000)),
        c("adverts that live 999 ms", "codec.shape", bounds(advert_life_ms=999)),
        c("an hour of skew", None, bounds(skew_ms=3_600_000)),
        c("more than an hour of skew", "codec.shape", bounds(skew_ms=MillisSpan(3_600_001))),
        c("longer than allowed", "codec.size", encode_plain(plain | {"x": long_text})),
    ]  # fmt: skip


assert GENESIS_BYTES_MAX < 8 * 258
assert Signer(bytes([2]) * 32).public == FEED.public
