"""Makers of valid things for the protocol's tests; a test states only what it is about."""

from typing import Any

from msgspec.structs import replace

from protocol.advert import Advert, Host, Surcharge, TierAsk
from protocol.auction import Bid, Need, Refusal, Rfq
from protocol.certificate import Certificate, sign_certificate
from protocol.codec import encode
from protocol.genesis import Bounds, Genesis, net_of
from protocol.hello import Hello
from protocol.lease import LeaseRequest, Terms, UnitTurn, digest_of_terms
from protocol.signing import Signer, digest, peer_id_of
from protocol.units import Digest, Micros, Millis, MillisSpan, NetId, PublicKey

NOW = Millis(1_800_000_000_000)
DAY = 86_400_000
GROUP = bytes(range(16))
UNITS = (b"unit-number-0001", b"unit-number-0002")
NONCE = b"nonce-of-16-byte"


def signer(number: int) -> Signer:
    return Signer(bytes([number]) * 32)


ROOT, FEED, PEER = signer(1), signer(2), signer(3)
"""The keys of the owner whose certificate and adverts are made here."""
RENTER, STRANGER = signer(4), signer(5)


def genesis(**changes: Any) -> Genesis:
    return replace(
        Genesis(name="vectors", kind="test", nonce=NONCE, bounds=Bounds(), money="TEST"), **changes
    )


GENESIS = genesis()
NET = net_of(GENESIS)
MAIN = genesis(kind="main", money="USD")
OTHER_NET = NetId(bytes(range(32)))


def certificate(**changes: Any) -> Certificate:
    return replace(
        Certificate(
            net=NET,
            root=ROOT.public,
            feed=FEED.public,
            peer_id=peer_id_of(PEER.public),
            x25519=PublicKey(bytes(range(32))),
            not_before_ms=Millis(NOW - DAY),
            not_after_ms=Millis(NOW + 30 * DAY),
            n=1,
        ),
        **changes,
    )


def signed_certificate(**changes: Any) -> bytes:
    return sign_certificate(certificate(**changes), root=ROOT, feed=FEED, peer=PEER)


CERTIFICATE = signed_certificate()


def advert(**changes: Any) -> Advert:
    return replace(
        Advert(
            certificate=CERTIFICATE,
            group=GROUP,
            incarnation=7,
            seq=42,
            state="open",
            issued_ms=NOW,
            not_after_ms=Millis(NOW + 90_000),
            gpu="nvml",
            model="NVIDIA GeForce RTX 4090",
            gpu_class=24,
            vram_mib=24_564,
            units=2,
            free=1,
            tiers=(TierAsk(tier="silver", micro_per_gpu_hour=Micros(400_000)),),
            money="TEST",
            isolation="container",
            region="IN",
            addresses=("/ip4/192.0.2.7/tcp/4001",),
        ),
        **changes,
    )


def full_advert(**changes: Any) -> Advert:
    """An advert with every optional field."""
    everything = advert(
        tiers=(
            TierAsk(tier="gold"),
            TierAsk(tier="silver", micro_per_gpu_hour=Micros(400_000)),
            TierAsk(tier="bronze", micro_per_gpu_hour=Micros(0)),
        ),
        host=Host(
            cpus=16,
            memory_mib=64_000,
            disk_mib=900_000,
            down_kbit_s=500_000,
            up_kbit_s=100_000,
            driver="570.86.15",
            compute=(8, 9),
        ),
        open_until_ms=Millis(NOW + DAY),
        lease_ms_min=MillisSpan(60_000),
        lease_ms_max=MillisSpan(DAY),
        policy=Digest(bytes(32)),
        calendar=b"\xff" * 36,
        coordinate=b"\x01\x02",
        images=bytes(64),
        data=bytes(64),
        surcharges=(Surcharge(units=1, ppm=0), Surcharge(units=2, ppm=50_000)),
        x={"later": "an extension, kept and ignored: \u00e9"},
    )
    return replace(everything, **changes)


def need(**changes: Any) -> Need:
    return replace(Need(gpus=2, vram_mib_min=20_000), **changes)


def rfq(**changes: Any) -> Rfq:
    return replace(
        Rfq(
            owner=FEED.public,
            group=GROUP,
            incarnation=7,
            seq=42,
            need=need(),
            tier="silver",
            start_ms=Millis(NOW + 1_000),
            end_ms=Millis(NOW + 3_601_000),
            notice_ms=MillisSpan(0),
            money="TEST",
            nonce=NONCE,
            issued_ms=NOW,
            not_after_ms=Millis(NOW + 5_000),
        ),
        **changes,
    )


def terms(**changes: Any) -> Terms:
    return replace(Terms(isolation="container"), **changes)


def turns(count: int = 2) -> tuple[UnitTurn, ...]:
    return tuple(UnitTurn(unit=unit, ctr=ctr) for ctr, unit in enumerate(UNITS[:count]))


def bid(**changes: Any) -> Bid:
    return replace(
        Bid(
            rfq=digest("rfq", encode(rfq())),
            renter=RENTER.public,
            group=GROUP,
            units=turns(),
            tier="silver",
            start_ms=Millis(NOW + 1_000),
            end_ms=Millis(NOW + 3_601_000),
            micro_per_gpu_hour=Micros(390_000),
            money="TEST",
            period_ms=MillisSpan(60_000),
            notice_ms=MillisSpan(0),
            lapse_ms=MillisSpan(300_000),
            terms=terms(),
            gpu="nvml",
            head_seq=12,
            issued_ms=NOW,
            valid_until_ms=Millis(NOW + 60_000),
        ),
        **changes,
    )


def refusal(**changes: Any) -> Refusal:
    return replace(
        Refusal(
            of=digest("rfq", encode(rfq())), renter=RENTER.public, reason="TAKEN", issued_ms=NOW
        ),
        **changes,
    )


def lease_request(**changes: Any) -> LeaseRequest:
    return replace(
        LeaseRequest(
            owner=FEED.public,
            bid=digest("bid", encode(bid())),
            units=turns(),
            start_ms=Millis(NOW + 1_000),
            end_ms=Millis(NOW + 3_601_000),
            tier="silver",
            micro_per_gpu_hour=Micros(390_000),
            money="TEST",
            period_ms=MillisSpan(60_000),
            notice_ms=MillisSpan(0),
            lapse_ms=MillisSpan(300_000),
            terms=digest_of_terms(terms()),
            nonce=NONCE,
            issued_ms=NOW,
            not_after_ms=Millis(NOW + 2_000),
        ),
        **changes,
    )


def hello(**changes: Any) -> Hello:
    return replace(
        Hello(
            net=NET,
            roles=("owner", "renter"),
            kinds=("offers.get", "offers.heads", "ping"),
            certificate=CERTIFICATE,
            frame_bytes_max=262_144,
        ),
        **changes,
    )
