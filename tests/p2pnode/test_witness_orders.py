"""Whom an order wants as witnesses: those that it names, else those of the configuration."""

from pathlib import Path

import pytest
import trio

from p2pnode.api.wanted_documents import JobOrder
from p2pnode.config import Renting
from p2pnode.job_views import witnesses_of
from p2pnode.network.memory_transport import MemoryHub
from p2pnode.node import Node
from protocol.errors import LocalFault
from protocol.units import PublicKey
from tests.make_ledger import THREE, signer
from tests.make_node import Party


@pytest.fixture
def node(tmp_path: Path, nursery: trio.Nursery) -> Node:
    return Party(tmp_path, nursery, MemoryHub()).build(ask=None)


def order(*witnesses: str, quorum: int = 0) -> JobOrder:
    return JobOrder(argv=("true",), money="TEST", witnesses=witnesses, quorum=quorum)


def hexed(*feeds: PublicKey) -> tuple[str, ...]:
    return tuple(feed.hex() for feed in feeds)


def wanted(
    node: Node, asked: JobOrder, *, witnesses: tuple[str, ...] = (), quorum: int = 0
) -> tuple[tuple[PublicKey, ...], int]:
    renting = Renting(witnesses=witnesses, quorum=quorum)
    return witnesses_of(node, asked, renting)


async def test_an_order_without_witnesses_has_none_unless_they_are_configured(node: Node) -> None:
    assert wanted(node, order()) == ((), 0)
    assert wanted(node, order(), witnesses=hexed(*THREE)) == (THREE, 2)
    assert wanted(node, order(), witnesses=hexed(*THREE), quorum=3) == (THREE, 3)
    assert wanted(node, order(quorum=3), witnesses=hexed(*THREE)) == (THREE, 3)


async def test_an_order_that_names_witnesses_has_these_alone(node: Node) -> None:
    (one,) = hexed(THREE[0])
    assert wanted(node, order(one), witnesses=hexed(*THREE), quorum=3) == (THREE[:1], 1)


@pytest.mark.parametrize("number", range(1, 9))
async def test_a_quorum_is_over_half_where_nobody_says_otherwise(node: Node, number: int) -> None:
    feeds = tuple(signer(each).public for each in range(30, 30 + number))
    _, quorum = wanted(node, order(*hexed(*feeds)))
    assert quorum == number // 2 + 1


async def test_witnesses_that_nobody_could_count_on_are_refused_before_anybody_is_asked(
    node: Node,
) -> None:
    own = node.identity.feed.public
    nine = tuple(signer(each).public for each in range(30, 39))
    for asked in (
        order(*hexed(THREE[0], THREE[0])),
        order(*hexed(own)),
        order(*hexed(*THREE), quorum=1),
        order(*hexed(*THREE), quorum=4),
        order(*hexed(*nine)),
        order(quorum=1),
        order("12345678"),
    ):
        with pytest.raises(LocalFault):
            wanted(node, asked)
