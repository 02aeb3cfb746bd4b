"""Writes protocol/vectors: `python -m tests.vectors`. A test fails when they would change."""

import json
from pathlib import Path
from typing import Any, Final

from protocol.advert import device_mark
from protocol.codec import encode
from protocol.gpu_class import CLASSES, REGION_GROUPS, gpu_class, group_of, topic_index
from protocol.lease import charge, digest_of_terms
from protocol.limits import INT_MAX
from protocol.offers import group_key, root_of
from protocol.rules import RULES, RULES_DIGEST
from protocol.signing import digest
from protocol.units import Mebibytes, Micros, MillisSpan, NetId
from tests import make
from tests.protocol.auction_cases import (
    auction_cases,
    bid_cases,
    cost_vectors,
    ranking_vectors,
    refusal_cases,
    rfq_cases,
)
from tests.protocol.codec_cases import HEADS, codec_cases, offers_cases
from tests.protocol.key_cases import (
    certificate_cases,
    genesis_cases,
    peer_cases,
    preimage_cases,
    signature_cases,
    sound_cases,
)
from tests.protocol.lease_cases import (
    job_cases,
    outcome_cases,
    saved_vectors,
    sealed_job_vectors,
    stream_cases,
    take_cases,
    take_vectors,
    tick_vectors,
    weak_keys,
    witness_cases,
)
from tests.protocol.message_cases import advert_cases, hello_cases, request_cases
from tests.protocol.money_cases import (
    commit_cases,
    hidden_vectors,
    payment_cases,
    rail_cases,
    reference_vectors,
    reveal_cases,
)
from tests.protocol.pool_cases import plan_vectors, pool_cases

FOLDER: Final = Path(__file__).parent.parent / "protocol" / "vectors"

CARDS: Final = {
    "none": 0,
    "GTX 1060 6GB": 6_144,
    "RTX 3070": 8_192,
    "RTX 3060": 12_288,
    "RTX 4080": 16_376,
    "RTX 4090": 24_564,
    "RTX 5090": 32_607,
    "L40S": 46_068,
    "A100 80GB": 81_920,
    "H100 80GB": 81_559,
    "H100 NVL": 95_830,
    "H200": 143_771,
    "B200": 183_359,
}
"""MiB as drivers report them."""


def class_vectors() -> dict[str, Any]:
    edges = [-(-of * 10**9 * 100 // (2**20 * 103)) for of in CLASSES]
    sizes = [*CARDS.items(), *(("edge", mib - below) for mib in edges[1:] for below in (1, 0))]
    regions = ("IN", "US", "DE", "TR", "RU", "BR", "AU", "ZA", "AQ", "ZZ", "XK")
    return {
        "classes": list(CLASSES),
        "region_groups": list(REGION_GROUPS),
        "vram": [
            {"name": name, "vram_mib": mib, "class": gpu_class(Mebibytes(mib))}
            for name, mib in sizes
        ],
        "regions": [{"region": region, "group": group_of(region)} for region in regions],
        "topics": [
            {
                "class": of,
                "region": region,
                "topics": topics,
                "index": topic_index(of, region, topics=topics),
            }
            for of in CLASSES
            for region in ("AQ", "IN", "DE")
            for topics in (1, 7, 77, 65_536)
        ],
    }


def charge_vectors() -> list[dict[str, int]]:
    pairs = [(0, 5), (1, 0), (1, 1), (3_600_000, 1), (3_600_001, 1), (3_599_999, 1)]
    pairs += [(60_000, 390_000), (86_400_000, 2_500_000), (INT_MAX, 3_600_000)]
    return [
        {
            "used_ms": used,
            "micro_per_gpu_hour": price,
            "micro": charge(MillisSpan(used), Micros(price)),
        }
        for used, price in pairs
    ]


def offers_vectors() -> dict[str, Any]:
    advert = encode(make.advert())
    newer = [(7, 42, 1, 7, 42, 0), (7, 43, 0, 7, 42, 1), (8, 0, 0, 7, 99, 1)]
    return {
        "cases": offers_cases(),
        "group_key": {
            "feed": make.FEED.public.hex(),
            "group": make.GROUP.hex(),
            "key": group_key(make.FEED.public, make.GROUP).hex(),
        },
        "head": {
            "body": advert.hex(),
            "incarnation": 7,
            "seq": 42,
            "digest16": digest("advert", advert)[:16].hex(),
        },
        "roots": [
            {"heads": [_head(head) for head in HEADS[:count]], "root": root_of(HEADS[:count]).hex()}
            for count in range(len(HEADS) + 1)
        ],
        "supersedes": [
            {
                "newer": {"incarnation": a, "seq": b, "digest16": (bytes([c]) * 16).hex()},
                "older": {"incarnation": d, "seq": e, "digest16": (bytes([f]) * 16).hex()},
            }
            for a, b, c, d, e, f in newer
        ],
    }


def mark_vectors() -> list[dict[str, str]]:
    devices = ("GPU-5a1f6c2e-0d3b-4c55-9a77-1e8f0c2b7d94", "GPU-1")
    return [
        {"net": net.hex(), "device": device, "mark": device_mark(device, net).hex()}
        for net in (make.NET, NetId(bytes(32)))
        for device in devices
    ]


def _head(head: tuple[bytes, int, int, bytes]) -> list[str | int]:
    key, incarnation, seq, advert = head
    return [key.hex(), incarnation, seq, advert.hex()]


def vectors() -> dict[str, dict[str, Any]]:
    """Name of a file -> what is in it."""
    net = make.NET.hex()
    terms = encode(make.terms())
    return {
        "codec": {"cases": codec_cases()},
        "signing": {
            "preimages": preimage_cases(),
            "signatures": signature_cases(),
            "keys": sound_cases(),
            "peer_ids": peer_cases(),
        },
        "genesis": {
            "rules": {"bytes": RULES.hex(), "digest": RULES_DIGEST.hex()},
            "cases": genesis_cases(),
        },
        "certificate": {"cases": certificate_cases()},
        "classes": class_vectors(),
        "advert": {"cases": advert_cases(), "marks": mark_vectors()},
        "offers": offers_vectors(),
        "hello": {"cases": hello_cases()},
        "rfq": {"genesis": encode(make.GENESIS).hex(), "cases": rfq_cases()},
        "bid": {"cases": bid_cases()},
        "bid-commit": {"net": net, "cases": commit_cases(), "hidden": hidden_vectors()},
        "bid-reveal": {"net": net, "cases": reveal_cases()},
        "refusal": {"net": net, "cases": refusal_cases()},
        "pool": {"net": net, "cases": pool_cases(), "plans": plan_vectors()},
        "auction": {
            "net": net,
            "cases": auction_cases(),
            "rankings": ranking_vectors(),
            "costs": cost_vectors(),
        },
        "take": {"cases": take_cases()},
        "witness": {"cases": witness_cases()},
        "job": {"cases": job_cases(), "sealed": sealed_job_vectors(), "weak_keys": weak_keys()},
        "tick": tick_vectors(),
        "outcome": {"net": net, "cases": outcome_cases()},
        "saved": saved_vectors(),
        "payment": {"net": net, "cases": payment_cases(), "references": reference_vectors()},
        "rail": {"net": net, "cases": rail_cases()},
        "lease-stream": {"cases": stream_cases()},
        "lease-request": {
            "net": net,
            "cases": request_cases(),
            "takes": take_vectors(),
            "charges": charge_vectors(),
            "terms": {"bytes": terms.hex(), "digest": digest_of_terms(make.terms()).hex()},
            "digests": {
                kind: digest(kind, encode(body)).hex()
                for kind, body in (
                    ("rfq", make.rfq()),
                    ("bid", make.bid()),
                    ("lease-request", make.lease_request()),
                )
            },
        },
    }


def text_of(document: dict[str, Any]) -> str:
    """The document as a file holds it: one row a line, so that a diff shows which changed."""
    lines: list[str] = []
    for name, value in document.items():
        rows = value if isinstance(value, list) else None
        if rows is not None and rows and isinstance(rows[0], dict):
            inner = ",\n".join("  " + json.dumps(row) for row in rows)
            lines.append(f" {json.dumps(name)}: [\n{inner}\n ]")
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, document in vectors().items():
        (FOLDER / f"{name}.json").write_text(text_of(document))


if __name__ == "__main__":
    main()
