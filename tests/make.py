"""Makers of valid things for the protocol's tests; a test states only what it is about."""

from typing import Any

from msgspec.structs import replace

from protocol.advert import Advert, Host, Surcharge, TierAsk, WorkloadPolicy
from protocol.auction import Bid, BidCommit, BidReveal, Need, Refusal, Rfq, Take, hidden_bid
from protocol.certificate import Certificate, sign_certificate
from protocol.codec import decode, encode
from protocol.genesis import Bounds, Genesis, net_of
from protocol.hello import Hello
from protocol.job import Input, Job, JobLimits, digest_of_job
from protocol.lease import LeaseRequest, Terms, UnitTurn, charge, digest_of_terms
from protocol.limits import AUCTION_BYTES_MAX
from protocol.payment import PaymentReference, reference_of
from protocol.rail import RailReceipt
from protocol.scoring import AuctionRecord, Heard, Judged, Weights, order_of
from protocol.signing import Signer, digest, peer_id_of
from protocol.tick import ArchiveName, Outcome, Saved, Tick
from protocol.units import Digest, Micros, Millis, MillisSpan, NetId, PublicKey
from protocol.wire import pack

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
            TierAsk(tier="gold", remedy_ppm=100_000),
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
        policy=WorkloadPolicy(regions=("DE", "NL"), not_regions=("FR",), only=("images",)),
        calendar=b"\xff" * 36,
        coordinate=b"\x01\x02",
        images=bytes(64),
        data=bytes(64),
        devices=(bytes(8), bytes(7) + b"\x01"),
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


def bid_commit(**changes: Any) -> BidCommit:
    hidden = hidden_bid(NONCE, pack(bid(), signer=FEED, net=NET))
    made = BidCommit(rfq=digest("rfq", encode(rfq())), hidden=hidden, issued_ms=NOW)
    return replace(made, **changes)


def bid_reveal(**changes: Any) -> BidReveal:
    named = digest("bid-commit", encode(bid_commit()))
    made = BidReveal(commit=named, bid=pack(bid(), signer=FEED, net=NET), salt=NONCE)
    return replace(made, **changes)


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


def job(**changes: Any) -> Job:
    return replace(
        Job(
            argv=("python", "train.py", "--epochs", "3"),
            variables={"SEED": "7"},
            input=Input(digest=Digest(bytes(32)), bytes=10_240),
            limits=JobLimits(
                time_ms=MillisSpan(3_600_000),
                memory_mib=16_384,
                cpus_milli=4_000,
                pids=256,
                disk_mib=8_192,
                log_bytes=1_048_576,
                output_bytes=1_073_741_824,
            ),
            nonce=NONCE,
        ),
        **changes,
    )


def take(**changes: Any) -> Take:
    request = lease_request(job=digest_of_job(encode(job())))
    return replace(Take(request=pack(request, signer=RENTER, net=NET)), **changes)


LEASE = Digest(b"the-id-of-a-grant".ljust(32, b"."))


def tick(**changes: Any) -> Tick:
    """The first tick of the lease of `lease_request`: both GPUs for a minute."""
    used = MillisSpan(120_000)
    return replace(
        Tick(
            lease=LEASE,
            n=1,
            used_ms=used,
            amount_micro=charge(used, lease_request().micro_per_gpu_hour),
            at_ms=Millis(NOW + 61_000),
            head_seq=13,
        ),
        **changes,
    )


def outcome(**changes: Any) -> Outcome:
    return replace(
        Outcome(
            lease=LEASE,
            cause="exit",
            exit_code=0,
            started_ms=Millis(NOW + 1_000),
            ended_ms=Millis(NOW + 61_000),
            output=ArchiveName(digest=Digest(bytes(32)), bytes=2_048),
            engine="DockerEngine",
            isolation="container",
            enforced="memory, processors, disk, no network",
            gpu="nvml",
        ),
        **changes,
    )


def saved(**changes: Any) -> Saved:
    """What the job of that lease has saved after a minute."""
    return replace(
        Saved(
            lease=LEASE,
            used_ms=MillisSpan(120_000),
            at_ms=Millis(NOW + 61_000),
            archive=ArchiveName(digest=Digest(bytes(32)), bytes=2_048),
        ),
        **changes,
    )


def payment(**changes: Any) -> PaymentReference:
    made = PaymentReference(
        renter=RENTER.public,
        money="TEST",
        payout="account 12 at the bank of tests",
        reference=reference_of(FEED.public, RENTER.public, "TEST"),
        issued_ms=NOW,
    )
    return replace(made, **changes)


def rail_receipt(**changes: Any) -> RailReceipt:
    made = RailReceipt(
        rail="test",
        act="hold",
        lease=Digest(b"l" * 32),
        payer=RENTER.public,
        payee=FEED.public,
        amount_micro=Micros(780_000),
        money="TEST",
        issued_ms=NOW,
        expires_ms=Millis(NOW + DAY),
        simulated="yes",
    )
    return replace(made, **changes)


def judged(**changes: Any) -> Judged:
    return replace(Judged(reliability_ppm=1_000_000), **changes)


def heard(ask: int = 390_000, *, turn: int = 1, **thought: Any) -> Heard:
    """An answered question, different for each ask."""
    question = rfq(nonce=ask.to_bytes(16, "big"))
    answer = bid(rfq=digest("rfq", encode(question)), micro_per_gpu_hour=Micros(ask))
    return Heard(
        rfq=pack(question, signer=RENTER, net=NET),
        bid=pack(answer, signer=FEED, net=NET),
        judged=judged(**thought),
        round=turn,
    )


def record(bids: tuple[Heard, ...], *, tries: int = 1, **changes: Any) -> AuctionRecord:
    """What a renter keeps that tried this many of the bids, by the rule."""
    before = AuctionRecord(
        seed=NONCE, weights=Weights(), offers_seen=9, bids=bids, refusals=(), chosen=()
    )
    return replace(before, **{"chosen": tuple(order_of(before, NET)[:tries]), **changes})


def decoded(value: AuctionRecord) -> AuctionRecord:
    """The record as whoever reads its file finds it."""
    return decode(encode(value), AuctionRecord, size_max=AUCTION_BYTES_MAX)
