"""A sealed message is taken for what it is, where and when it is meant; or for nothing."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.advert import Advert, check_advert
from protocol.auction import Bid
from protocol.codec import Wire, encode
from protocol.errors import PeerFault
from protocol.limits import SEAL_BYTES
from protocol.signing import digest
from protocol.units import Millis
from protocol.wire import KINDS, Envelope, Sealed, pack, unpack
from tests import make
from tests.make import FEED, GENESIS, NET, NOW, OTHER_NET, STRANGER
from tests.protocol.strategies import HALF, edited, structs

FEW = settings(max_examples=5)
"""For what does not depend on the body."""
EACH = pytest.mark.parametrize("shape", list(KINDS), ids=lambda shape: shape.__name__)


def refused(raw: bytes, shape: type[Wire], net: bytes = NET) -> str:
    with pytest.raises(PeerFault) as caught:
        unpack(raw, net, shape)  # type: ignore[arg-type]
    return caught.value.rule


@EACH
@FEW
@given(data=st.data())
def test_what_is_packed_unpacks_to_the_same(shape: type[Wire], data: st.DataObject) -> None:
    body = data.draw(structs(shape))
    kind, _ = KINDS[shape]
    assert unpack(pack(body, signer=FEED, net=NET), NET, shape) == Sealed(
        signer=FEED.public, body=body, digest=digest(kind, encode(body))
    )


@EACH
@FEW
@given(data=st.data())
def test_a_message_is_refused_as_any_other_kind(shape: type[Wire], data: st.DataObject) -> None:
    raw = pack(data.draw(structs(shape)), signer=FEED, net=NET)
    for other in KINDS:
        if other is not shape:
            assert refused(raw, other) in {"seal.kind", "codec.size"}


@EACH
@FEW
@given(data=st.data())
def test_a_message_is_refused_in_another_network(shape: type[Wire], data: st.DataObject) -> None:
    raw = pack(data.draw(structs(shape)), signer=FEED, net=NET)
    assert refused(raw, shape, OTHER_NET) == "seal.bad"


@EACH
@FEW
@given(data=st.data())
def test_a_message_is_refused_under_another_signer(shape: type[Wire], data: st.DataObject) -> None:
    raw = pack(data.draw(structs(shape)), signer=FEED, net=NET)
    assert refused(raw.replace(FEED.public, STRANGER.public), shape) == "seal.bad"


@EACH
def test_a_body_that_is_one_byte_longer_than_its_kind_may_be_is_refused(shape: type[Wire]) -> None:
    kind, size_max = KINDS[shape]
    for size, rule in ((size_max, "codec.form"), (size_max + 1, "codec.size")):
        body = b"\xff" * size
        seal = FEED.sign(kind, NET, body)
        raw = encode(Envelope(t=kind, k=FEED.public, s=seal, b=body))
        assert len(raw) <= size + SEAL_BYTES
        assert refused(raw, shape) == rule


def test_the_seal_is_judged_before_the_body_is_parsed() -> None:
    raw = encode(Envelope(t="bid", k=FEED.public, s=FEED.sign("bid", NET, b"\xff"), b=b"\xff"))
    assert refused(raw, Bid) == "codec.form"
    assert refused(raw, Bid, OTHER_NET) == "seal.bad"


@EACH
@HALF
@given(data=st.data())
def test_no_change_to_a_sealed_message_goes_unseen(shape: type[Wire], data: st.DataObject) -> None:
    raw = pack(data.draw(structs(shape)), signer=FEED, net=NET)
    changed = data.draw(edited(raw))
    if changed != raw:
        refused(changed, shape)


@EACH
@HALF
@given(data=st.data())
def test_a_sealed_body_is_refused_or_says_what_its_bytes_say(
    shape: type[Wire], data: st.DataObject
) -> None:
    kind, _ = KINDS[shape]
    body = data.draw(edited(encode(data.draw(structs(shape)))))
    raw = encode(Envelope(t=kind, k=FEED.public, s=FEED.sign(kind, NET, body), b=body))
    try:
        sealed = unpack(raw, NET, shape)
    except PeerFault:
        return
    assert encode(sealed.body) == body


def replayed(now: int = NOW, net: bytes = NET, **changes: Any) -> str | None:
    """The rule by which a peer refuses an advert that was good at NOW."""
    raw = pack(make.advert(**changes), signer=FEED, net=NET)
    try:
        sealed = unpack(raw, net, Advert)  # type: ignore[arg-type]
        check_advert(
            sealed.body,
            signer=sealed.signer,
            genesis=GENESIS,
            net=net,  # type: ignore[arg-type]
            now=Millis(now),
        )
    except PeerFault as fault:
        return fault.rule
    return None


def test_an_advert_cannot_be_replayed_later_earlier_or_elsewhere() -> None:
    assert replayed() is None
    assert replayed(now=NOW + 121_000) == "advert.expired"
    assert replayed(now=NOW - 3_600_000) == "advert.future"
    assert replayed(net=OTHER_NET) == "seal.bad"
    other = make.signed_certificate(net=OTHER_NET)
    assert replayed(certificate=other) == "certificate.net"


@pytest.mark.parametrize(("ahead_ms", "rule"), [
    (-90_000, None), (-5_000, None), (-400, None), (400, None), (5_000, None), (30_000, None),
    (30_001, "advert.future"), (3_600_000, "advert.future"), (-90_001, "advert.expired"),
    (-3_600_000, "advert.expired"),
])  # fmt: skip
def test_an_owner_whose_clock_is_a_little_off_is_still_heard(
    ahead_ms: int, rule: str | None
) -> None:
    assert replayed(now=NOW - ahead_ms) == rule
