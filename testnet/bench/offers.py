"""Made-up offers for the benchmarks of matching: as a book holds them, but sealed by nobody."""

import math
import random
from typing import Final

from p2pnode.matching.book import Offer
from protocol.advert import Advert, TierAsk
from protocol.certificate import Certificate
from protocol.gpu_class import gpu_class
from protocol.units import Mebibytes, Micros, Millis, NetId, PeerId, PublicKey

NOW: Final = Millis(1_800_000_000_000)
LIFE_MS: Final = 90_000
ASK_MEDIAN: Final = 950_000
ASK_SIGMA: Final = 0.157
"""Of the logarithm: the spread of asks for one model that was measured on public markets."""

CARDS: Final = (
    ("NVIDIA GeForce RTX 3060", 12_288, 90_000),
    ("Tesla T4", 15_360, 150_000),
    ("NVIDIA GeForce RTX 3090", 24_576, 220_000),
    ("NVIDIA GeForce RTX 4090", 24_564, 400_000),
    ("NVIDIA L40S", 46_068, 870_000),
    ("NVIDIA A100-SXM4-80GB", 81_920, 1_390_000),
    ("NVIDIA H100 80GB HBM3", 81_559, 2_390_000),
    ("NVIDIA H200", 143_771, 3_590_000),
)
"""Model, VRAM in MiB, median ask."""
REGIONS: Final = tuple(f"{a}{b}" for a in "ABCDEF" for b in "VWXYZ")


def drawn_ask(dice: random.Random, median: int = ASK_MEDIAN) -> Micros:
    """The price that one owner asks for an hour."""
    return Micros(round(median * math.exp(dice.gauss(0, ASK_SIGMA))))


def offer(number: int, asks: dict[str, int], *, seq: int = 1, **facts: object) -> Offer:
    """The advert of owner `number`, each an account of its own."""
    key = PublicKey(number.to_bytes(32, "big"))
    vram = Mebibytes(24_564)
    fields: dict[str, object] = {
        "certificate": b"",
        "group": bytes(16),
        "incarnation": 1,
        "seq": seq,
        "state": "open",
        "issued_ms": NOW,
        "not_after_ms": Millis(NOW + LIFE_MS),
        "gpu": "simulated",
        "model": "NVIDIA GeForce RTX 4090",
        "vram_mib": vram,
        "units": 1,
        "free": 1,
        "tiers": tuple(TierAsk(tier=t, micro_per_gpu_hour=a) for t, a in asks.items()),  # type: ignore[arg-type]
        "money": "TEST",
        "isolation": "container",
        "region": "DE",
        "addresses": (),
        **facts,
    }
    fields["gpu_class"] = gpu_class(fields["vram_mib"])  # type: ignore[arg-type]
    return Offer(
        raw=b"",
        head=(number.to_bytes(16, "big"), 1, seq, bytes(16)),
        signer=key,
        advert=Advert(**fields),  # type: ignore[arg-type]
        certificate=Certificate(
            net=NetId(bytes(32)),
            root=key,
            feed=key,
            peer_id=PeerId(number.to_bytes(38, "big")),
            x25519=key,
            not_before_ms=NOW,
            not_after_ms=Millis(NOW + LIFE_MS),
            n=1,
        ),
        taken_ms=NOW,
    )
