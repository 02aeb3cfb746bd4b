"""Two sets compared by fingerprints of ranges, so that the cost follows what differs.

SPEC.md section "Sync". Pure. The items of a set lie in the order of their keys, which are digests
in hexadecimal; a range is all keys with one prefix, and has sixteen parts.
"""

from bisect import bisect_left, insort
from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Final, Generic, TypeVar

from msgspec import UNSET, Meta, UnsetType

from ledger.limits import ITEMS_MAX, LEAF_MAX, PREFIX_MAX
from protocol.codec import Wire
from protocol.errors import PeerFault
from protocol.signing import digest
from protocol.units import Digest

T = TypeVar("T")

NIBBLES: Final = "0123456789abcdef"
PRINT_BYTES: Final = 16
NO_PRINT: Final = bytes(PRINT_BYTES)
"""Of a range without items."""
SPLIT_AT_ONCE: Final = LEAF_MAX**3
"""A set larger than this is opened with its sixteen parts, which saves one message."""
NODE_BYTES: Final = 16 * PRINT_BYTES + PREFIX_MAX + 8
ITEM_BYTES_MAX: Final = 72
LEAF_BYTES: Final = PREFIX_MAX + 8
"""Without its items."""

Prefix = Annotated[str, Meta(max_length=PREFIX_MAX, pattern=r"\A[0-9a-f]*\Z")]


class Node(Wire, frozen=True, array_like=True):
    """A range that is split: the fingerprints of its sixteen parts."""

    prefix: Prefix
    prints: Annotated[bytes, Meta(min_length=16 * PRINT_BYTES, max_length=16 * PRINT_BYTES)]


class Leaf(Wire, Generic[T], frozen=True, array_like=True):
    """A range that is listed: all that the speaker has there."""

    prefix: Prefix
    items: Annotated[tuple[T, ...], Meta(max_length=LEAF_MAX)]


class Part(Wire, Generic[T], frozen=True, kw_only=True):
    """What one turn says of one set."""

    nodes: tuple[Node, ...] | UnsetType = UNSET
    leaves: tuple[Leaf[T], ...] | UnsetType = UNSET
    others: tuple[T, ...] | UnsetType = UNSET
    """What the speaker has in ranges of which the other side has told all that it has."""


class Items(Generic[T]):
    """A set of items, each under a key, with the bytes that stand for it in fingerprints."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._items: dict[str, tuple[T, bytes]] = {}
        self._root: Digest | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def put(self, key: str, item: T, stamp: bytes) -> None:
        """The item is the one under this key now."""
        if key not in self._items:
            insort(self._keys, key)
        self._items[key] = (item, stamp)
        self._root = None

    def drop(self, key: str) -> None:
        """Nothing is under this key now."""
        if self._items.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]
            self._root = None

    def get(self, key: str) -> T | None:
        """The item under this key."""
        found = self._items.get(key)
        return None if found is None else found[0]

    def root(self) -> Digest:
        """Equal for equal sets."""
        if self._root is None:
            self._root = digest("sync-root", self._stamps(self._keys))
        return self._root

    def count(self, prefix: str) -> int:
        """How many items the range has."""
        return len(self._under(prefix))

    def under(self, prefix: str) -> list[tuple[str, T]]:
        """The range's keys and items, in order."""
        return [(key, self._items[key][0]) for key in self._under(prefix)]

    def fingerprint(self, prefix: str) -> bytes:
        """Equal for ranges with equal items."""
        keys = self._under(prefix)
        return sha256(self._stamps(keys)).digest()[:PRINT_BYTES] if keys else NO_PRINT

    def _under(self, prefix: str) -> list[str]:
        first = bisect_left(self._keys, prefix)
        return self._keys[first : bisect_left(self._keys, prefix + "g")]

    def _stamps(self, keys: list[str]) -> bytes:
        return b"".join([self._items[key][1] for key in keys])


class Compare(Generic[T]):
    """One side of a comparison: takes what the peer says, gives what is to be answered.

    The peer may only speak of ranges that we have opened, and of each once.
    """

    def __init__(self, ours: Items[T], key_of: Callable[[T], str], *, is_first: bool) -> None:
        self._ours = ours
        self._key_of = key_of
        self._open: dict[str, None] = {}
        self._listed: dict[str, None] = {}
        self._told: dict[str, None] = {}
        self._to_split: list[str] = []
        self._to_list: list[str] = []
        self._to_tell: list[T] = []
        self._given = 0
        """Of what was to be told."""
        self._differing: list[tuple[T, T]] = []
        if not is_first:
            self._open = dict.fromkeys(("", *NIBBLES))
        elif len(ours) > SPLIT_AT_ONCE:
            self._to_split = list(NIBBLES)
        else:
            self._answer("")

    def differing(self) -> list[tuple[T, T]]:
        """The pairs, theirs and ours, of items that the peer's last leaves have otherwise."""
        pairs, self._differing = self._differing, []
        return pairs

    def take(self, part: Part[T]) -> list[T]:
        """The items of the peer that we do not have so.

        Raises PeerFault `sync.range` or `sync.items`.
        """
        for node in part.nodes or ():
            self._take_node(node)
        news = [item for leaf in part.leaves or () for item in self._take_leaf(leaf)]
        return news + self._take_others(part.others or ())

    def _take_node(self, node: Node) -> None:
        self._close(node.prefix)
        for index, digit in enumerate(NIBBLES):
            part = node.prefix + digit
            theirs = node.prints[index * PRINT_BYTES : (index + 1) * PRINT_BYTES]
            if theirs == self._ours.fingerprint(part):
                continue
            if theirs == NO_PRINT:
                self._to_tell += [item for _, item in self._ours.under(part)]
            else:
                self._answer(part)

    def _take_leaf(self, leaf: Leaf[T]) -> list[T]:
        self._close(leaf.prefix)
        theirs = {self._key_of(item): item for item in leaf.items}
        if list(theirs) != sorted(theirs) or len(theirs) != len(leaf.items):
            raise PeerFault("sync.items", "not in order")
        if not all(key.startswith(leaf.prefix) for key in theirs):
            raise PeerFault("sync.items", "outside the range")
        for key, item in self._ours.under(leaf.prefix):
            other = theirs.get(key)
            if other != item:
                self._to_tell.append(item)
            if other is not None and other != item:
                self._differing.append((other, item))
        return [item for key, item in theirs.items() if self._ours.get(key) != item]

    def _take_others(self, items: tuple[T, ...]) -> list[T]:
        news: list[T] = []
        for item in items:
            key = self._key_of(item)
            if not any(key[:size] in self._listed for size in range(PREFIX_MAX + 1)):
                raise PeerFault("sync.items", "of a range that was not listed")
            if key in self._told:
                raise PeerFault("sync.items", "told twice")
            if len(self._told) == ITEMS_MAX:
                break  # Whoever has so much is at no fault; another session finds the rest.
            self._told[key] = None
            if self._ours.get(key) != item:
                news.append(item)
        return news

    def _close(self, prefix: str) -> None:
        if prefix not in self._open:
            raise PeerFault("sync.range", "not open, or spoken of before")
        del self._open[prefix]

    def _answer(self, prefix: str) -> None:
        is_small = self._ours.count(prefix) <= LEAF_MAX
        (self._to_list if is_small else self._to_split).append(prefix)

    def give(self, room: int) -> tuple[Part[T], int]:
        """What is to be said next, and the bytes that are left of `room`."""
        nodes: list[Node] = []
        leaves: list[Leaf[T]] = []
        others: list[T] = []
        while self._to_split and room >= NODE_BYTES:
            nodes.append(self._node(self._to_split.pop(0)))
            room -= NODE_BYTES
        while self._to_list and room >= LEAF_BYTES + LEAF_MAX * ITEM_BYTES_MAX:
            leaves.append(self._leaf(self._to_list.pop(0)))
            room -= LEAF_BYTES + len(leaves[-1].items) * ITEM_BYTES_MAX
        del self._to_tell[max(0, ITEMS_MAX - self._given) :]
        while self._to_tell and room >= ITEM_BYTES_MAX:
            others.append(self._to_tell.pop())
            room -= ITEM_BYTES_MAX
        self._given += len(others)
        part = Part(
            nodes=tuple(nodes) or UNSET,
            leaves=tuple(leaves) or UNSET,
            others=tuple(others) or UNSET,
        )
        return part, room

    def _node(self, prefix: str) -> Node:
        prints: list[bytes] = []
        for digit in NIBBLES:
            prints.append(self._ours.fingerprint(prefix + digit))
            speakable = self._listed if prints[-1] == NO_PRINT else self._open
            speakable[prefix + digit] = None
        return Node(prefix, b"".join(prints))

    def _leaf(self, prefix: str) -> Leaf[T]:
        self._listed[prefix] = None
        # More than LEAF_MAX can only have come since the range was measured: the next session's.
        return Leaf(prefix, tuple(item for _, item in self._ours.under(prefix)[:LEAF_MAX]))
