"""A frame about a lease says one thing, and fits."""

from itertools import combinations

import pytest

from protocol.auction import Take
from protocol.codec import decode, encode
from protocol.errors import PeerFault
from protocol.lease_stream import Open, Part
from protocol.limits import FRAME_BYTES_MAX, JOB_BYTES_MAX, JOB_SEAL_BYTES, PART_BYTES_MAX
from tests import make
from tests.make import LEASE

FIELDS = {"b": b"piece", "outcome": b"sealed", "saved": b"sealed", "rule": "output.gone"}


@pytest.mark.parametrize("names", [*combinations(FIELDS, 2), tuple(FIELDS)], ids=str)
def test_a_part_says_one_thing(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="a piece, an outcome, a checkpoint or a rule"):
        Part(offset=0, **{name: FIELDS[name] for name in names})  # type: ignore[arg-type]


def test_an_input_has_no_offset_of_the_renters() -> None:
    with pytest.raises(ValueError, match="from where the owner says"):
        Open(lease=LEASE, want="input", offset=1)


@pytest.mark.parametrize(
    ("value", "most"),
    [
        (lambda size: Part(offset=0, b=bytes(size)), PART_BYTES_MAX),
        (lambda size: make.take(job=bytes(size)), JOB_BYTES_MAX + JOB_SEAL_BYTES),
    ],
    ids=["piece", "job"],
)
def test_a_piece_and_a_job_may_be_as_long_as_the_limit_says(value: object, most: int) -> None:
    assert callable(value)
    shape = type(value(1))
    assert shape in {Part, Take}
    longest = encode(value(most))
    assert decode(longest, shape, size_max=FRAME_BYTES_MAX) == value(most)
    with pytest.raises(PeerFault, match=r"codec\.shape"):
        decode(encode(value(most + 1)), shape, size_max=FRAME_BYTES_MAX)
