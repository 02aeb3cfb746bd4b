"""A job is read by nobody but the winner, and is the one that its digest names."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nacl.bindings import crypto_box_seal, crypto_box_seed_keypair
from nacl.exceptions import CryptoError

from protocol.codec import encode
from protocol.errors import PeerFault
from protocol.job import digest_of_job, open_job, read_job, seal_job
from protocol.limits import JOB_BYTES_MAX, JOB_SEAL_BYTES
from protocol.units import PublicKey
from tests import make

JOB = encode(make.job())
KEYS = [crypto_box_seed_keypair(bytes([n]) * 32) for n in range(3)]
seeds = st.binary(min_size=32, max_size=32)
raws = st.binary(max_size=200) | st.just(JOB)


def opened(sealed: bytes, by: int) -> bytes | None:
    public, secret = KEYS[by]
    try:
        return open_job(sealed, public=PublicKey(public), secret=secret)
    except PeerFault as fault:
        assert fault.rule == "job.sealed"  # noqa: PT017
        return None


@given(raw=raws, seed=seeds)
def test_only_the_right_key_opens_a_sealed_job(raw: bytes, seed: bytes) -> None:
    sealed = seal_job(raw, to=PublicKey(KEYS[0][0]), ephemeral=seed)
    assert len(sealed) == len(raw) + JOB_SEAL_BYTES
    assert [opened(sealed, by) for by in range(3)] == [raw, None, None]


@given(raw=raws, seed=seeds, place=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_an_altered_byte_is_refused(raw: bytes, seed: bytes, place: int, flip: int) -> None:
    sealed = bytearray(seal_job(raw, to=PublicKey(KEYS[0][0]), ephemeral=seed))
    sealed[place % len(sealed)] ^= flip
    assert opened(bytes(sealed), 0) is None


@settings(max_examples=20)
@given(raw=raws, cut=st.integers(1, 80))
def test_a_job_cut_short_is_refused(raw: bytes, cut: int) -> None:
    sealed = seal_job(raw, to=PublicKey(KEYS[0][0]), ephemeral=bytes(32))
    assert opened(sealed[:-cut], 0) is None


def test_the_format_is_the_sealed_box_of_libsodium() -> None:
    assert opened(crypto_box_seal(JOB, KEYS[0][0]), 0) == JOB


def test_one_seed_to_two_owners_gives_two_boxes() -> None:
    boxes = {seal_job(JOB, to=PublicKey(public), ephemeral=bytes(32)) for public, _ in KEYS}
    assert len({box[:32] for box in boxes}) == 1
    assert len({box[32:] for box in boxes}) == 3


def test_a_key_that_gives_everybody_the_secret_is_refused_by_rule() -> None:
    with pytest.raises(PeerFault, match=r"job\.key") as caught:
        seal_job(JOB, to=PublicKey(bytes(32)), ephemeral=bytes(32))
    assert isinstance(caught.value.__cause__, CryptoError)


def test_a_job_is_the_one_that_is_named() -> None:
    assert read_job(JOB, named=digest_of_job(JOB)) == make.job()
    other = encode(make.job(nonce=bytes(16)))
    with pytest.raises(PeerFault, match=r"job\.digest"):
        read_job(other, named=digest_of_job(JOB))


def test_a_job_may_be_as_long_as_the_limit_says() -> None:
    long = encode(make.job(argv=("a" * 8_192,) * 7 + ("b" * 7_000,)))
    assert len(long) < JOB_BYTES_MAX
    room = JOB_BYTES_MAX - len(long)
    whole = encode(make.job(argv=("a" * 8_192,) * 7 + ("b" * 7_000, "c" * (room - 3))))
    assert len(whole) == JOB_BYTES_MAX
    assert encode(read_job(whole, named=digest_of_job(whole))) == whole
    longer = encode(make.job(argv=("a" * 8_192,) * 7 + ("b" * 7_000, "c" * (room - 2))))
    with pytest.raises(PeerFault, match=r"codec\.size"):
        read_job(longer, named=digest_of_job(longer))
