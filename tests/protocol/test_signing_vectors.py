"""Keys, preimages, signatures and peer ids, as the vectors have them."""

import json
from typing import Any, Final

import pytest

from protocol.signing import Signer, digest, is_signed, is_sound, key_of, preimage
from protocol.units import NetId, PeerId, PublicKey
from tests.vectors import FOLDER

Case = dict[str, Any]
VECTORS: Final[dict[str, Any]] = json.loads((FOLDER / "signing.json").read_text())


def raw(case: Case, key: str) -> bytes:
    return bytes.fromhex(case[key])


@pytest.mark.parametrize("case", VECTORS["preimages"], ids=lambda c: c["domain"])
def test_preimages_signatures_and_digests_are_those_of_the_vectors(case: Case) -> None:
    net, data, signer = NetId(raw(case, "net")), raw(case, "data"), Signer(raw(case, "seed"))
    assert signer.public == raw(case, "public")
    assert preimage(case["domain"], net, data) == raw(case, "preimage")
    assert signer.sign(case["domain"], net, data) == raw(case, "signature")
    assert digest(case["domain"], data) == raw(case, "digest")


@pytest.mark.parametrize("case", VECTORS["signatures"], ids=lambda c: c["name"])
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


@pytest.mark.parametrize("case", VECTORS["keys"], ids=lambda c: c["name"])
def test_only_a_point_of_the_prime_order_group_is_a_sound_key(case: Case) -> None:
    assert is_sound(PublicKey(raw(case, "key"))) is case["sound"]
    assert case["sound"] is (case["name"] == "a feed key")


@pytest.mark.parametrize("case", VECTORS["peer_ids"], ids=lambda c: c["name"])
def test_a_peer_id_holds_an_ed25519_key_or_none(case: Case) -> None:
    key = key_of(PeerId(raw(case, "peer_id")))
    assert (key and key.hex()) == case["key"]
