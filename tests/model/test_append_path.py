"""The shipping append path, stopped at each of its steps: every short history of one author.

A history is a word of steps. What is asked: was any place of the feed ever signed, or published,
with two contents? A guard that is kept rules that out, whatever becomes of the store. One that is
rolled back together with the store does not: that is what SPEC.md section 6 says is left.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest

from ledger.entry import Draft, read_draft, read_entry
from ledger.guard import Guard, MemoryGuard
from ledger.records import Records
from ledger.store import MemoryStore, Store
from protocol.errors import LocalFault
from protocol.signing import Signer
from protocol.units import NetId, Signature
from tests.make_ledger import NET, OWNER, at, genesis, ledger, statement
from tests.make_ledger_faults import Crash, FaultyGuard, FaultyStore, Fuse, copy_of

STEPS = 5 if os.environ.get("HYPOTHESIS_PROFILE") == "night" else 4
CRASHES = ("guard not written", "guard written", "store not written", "store written")
APPEND, BACK_UP, LOSE_STORE, LOSE_BOTH = "append", "back up", "lose store", "lose both"


class Witness(Signer):
    """Remembers every header that it has put the feed's signature to."""

    def __init__(self) -> None:
        super().__init__(bytes([1]) * 32)
        self.signed: tuple[bytes, ...] = ()

    def sign(self, domain: str, net: NetId, data: bytes) -> Signature:
        if domain == "entry":
            self.signed = (*self.signed, data)
        return super().sign(domain, net, data)


class NoGuard:
    """See Guard. Believes whatever the store says: what an author without a guard would do."""

    def __init__(self, store: Store) -> None:
        self._records = Records(store=store, net=NET)

    def reserved(self) -> Draft | None:
        head = self._records.head(OWNER.public)
        entry = None if head is None else self._records.entry(OWNER.public, head.seq)
        return None if entry is None else entry.draft

    def reserve(self, draft: Draft) -> None:
        pass


def kept(guard: Guard, store: Store) -> Guard:
    return guard


def absent(guard: Guard, store: Store) -> Guard:
    return NoGuard(store)


GuardOf = Callable[[Guard, Store], Guard]
GENESIS = genesis(OWNER)


def forks(headers: tuple[bytes, ...]) -> bool:
    """Whether two of the headers are for one place."""
    by_place: dict[int, bytes] = {}
    places = ((read_draft(each, b"", NET).header.seq, each) for each in headers)
    return any(by_place.setdefault(place, each) != each for place, each in places)


@dataclass
class Machine:
    """One author's disk, and what has become of it."""

    guard_of: GuardOf
    store: MemoryStore = field(default_factory=MemoryStore)
    draft: Draft | None = None
    """What the guard holds."""
    backup: tuple[MemoryStore, Draft | None] = field(default_factory=lambda: (MemoryStore(), None))
    signed: tuple[bytes, ...] = ()
    published: tuple[bytes, ...] = ()
    """Headers of the entries that were in the store once: from there they go to the peers."""

    def after(self, step: str) -> "Machine":
        """What becomes of it."""
        match step:
            case "back up":
                return replace(self, backup=(copy_of(self.store), self.draft))
            case "lose store":
                return replace(self, store=copy_of(self.backup[0]))
            case "lose both":
                return replace(self, store=copy_of(self.backup[0]), draft=self.backup[1])
            case "append":
                return self._append(Fuse(99, after=False))
            case _:
                index = CRASHES.index(step)
                return self._append(Fuse(1 + index // 2, after=index % 2 == 1))

    def _append(self, fuse: Fuse) -> "Machine":
        """Another entry each time, as a node would write after it has come back."""
        store, inner, witness = copy_of(self.store), MemoryGuard(), Witness()
        if self.draft is not None:
            inner.reserve(self.draft)
        guard = self.guard_of(inner, store)
        with suppress(Crash, LocalFault):
            here = ledger(witness, store=FaultyStore(store, fuse), guard=FaultyGuard(guard, fuse))
            if here.head(OWNER.public) is None:
                here.append(GENESIS, at(0))
            else:
                used = len(self.signed)
                here.append(statement(ctr=used, used=used), at(0))
        held = Records(store=store, net=NET).raw_entries(OWNER.public, 0, 99)
        published = tuple(read_entry(raw, NET).draft.hdr for raw in held)
        return replace(
            self,
            store=store,
            draft=inner.reserved(),
            signed=self.signed + witness.signed,
            published=self.published + published,
        )


def histories(machine: Machine, steps: tuple[str, ...], left: int) -> Iterator[Machine]:
    """The ends of all histories of that many steps, each with one more append."""
    if left == 0:
        yield machine.after(APPEND)
        return
    for step in (APPEND, *CRASHES, *steps):
        yield from histories(machine.after(step), steps, left - 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("guard_of", "steps", "signs_twice", "publishes_twice"),
    [
        (kept, (), False, False),
        (kept, (BACK_UP, LOSE_STORE), False, False),
        (kept, (BACK_UP, LOSE_BOTH), True, True),
        (absent, (), True, False),
        (absent, (BACK_UP, LOSE_STORE), True, True),
    ],
    ids=["guard", "guard, store lost", "both lost", "no guard", "no guard, store lost"],
)
def test_an_author_forks_itself_only_where_all_that_remembers_is_rolled_back(
    guard_of: GuardOf, steps: tuple[str, ...], signs_twice: bool, publishes_twice: bool
) -> None:
    begin = Machine(guard_of).after(APPEND).after(BACK_UP)
    count = signed = published = 0
    for end in histories(begin, steps, STEPS):
        count += 1
        signed += forks(end.signed)
        published += forks(end.published)
    say = f"{count:,} histories; in {signed:,} a place is signed twice, in {published:,} it"
    print(f"{say} is published twice")  # noqa: T201 - shown by `pytest -s`
    assert (signed > 0, published > 0) == (signs_twice, publishes_twice)
