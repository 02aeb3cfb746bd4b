"""What an owner has already is not moved, and a filter errs in one direction only."""

from dataclasses import replace
from hashlib import sha256

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.matching.book import Offer
from p2pnode.matching.staging import DOWN_KBIT_S, Cargo, Luggage, bytes_to_move, stage_ms
from protocol.advert import Host
from protocol.digest_filter import DIGESTS_MAX, FILTER_BYTES, filter_of, may_hold
from tests.make_desk import Clock, Owner

IMAGE = Cargo(sha256(b"image").digest(), 8_000_000_000)
DATA = Cargo(sha256(b"data").digest(), 500_000_000)
ALL = Luggage(image=IMAGE, data=(DATA,))


def offer(**changes: object) -> Offer:
    plain = Owner(10, Clock()).offer()
    return replace(plain, advert=msgspec.structs.replace(plain.advert, **changes))


@given(digests=st.lists(st.binary(min_size=32, max_size=32), max_size=DIGESTS_MAX))
def test_what_is_there_is_never_denied(digests: list[bytes]) -> None:
    stated = filter_of(digests)
    assert len(stated) == FILTER_BYTES
    assert all(may_hold(stated, digest) for digest in digests)


def test_a_full_filter_takes_one_in_a_hundred_others_to_be_there() -> None:
    stated = filter_of(sha256(bytes([n])).digest() for n in range(DIGESTS_MAX))
    others = [sha256(b"other" + n.to_bytes(4, "big")).digest() for n in range(20_000)]
    wrong = sum(may_hold(stated, digest) for digest in others)
    assert wrong < 300


def test_more_than_it_takes_are_left_out_so_that_it_never_says_yes_to_everything() -> None:
    many = [n.to_bytes(4, "big") for n in range(10_000)]
    digests = [sha256(each).digest() for each in many]
    assert filter_of(digests) == filter_of(digests[:DIGESTS_MAX])


def test_only_what_is_missing_is_moved() -> None:
    images, data = filter_of([IMAGE.digest]), filter_of([DATA.digest])
    assert bytes_to_move(offer(), ALL) == IMAGE.bytes + DATA.bytes
    assert bytes_to_move(offer(images=images), ALL) == DATA.bytes
    assert bytes_to_move(offer(images=images, data=data), ALL) == 0
    assert bytes_to_move(offer(images=images), Luggage()) == 0


def test_staging_takes_as_long_as_the_stated_bandwidth_says() -> None:
    fast = offer(host=Host(down_kbit_s=1_000_000))
    assert stage_ms(fast, Luggage(data=(DATA,))) == 4_000
    assert stage_ms(offer(), Luggage(data=(DATA,))) == 8 * DATA.bytes // DOWN_KBIT_S
    assert stage_ms(offer(host=Host(down_kbit_s=0)), Luggage(data=(DATA,))) == 40_000
    assert stage_ms(fast, Luggage()) == 0
