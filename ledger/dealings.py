"""Whom our own feed names: these are no strangers, however many feeds there are already.

SPEC.md section 11.8. What others write of us does not count, or anybody could write it.
"""

from collections.abc import Iterator

from msgspec import UNSET

from ledger.bodies import Accept, Body, Grant, Statement, read_body, requested
from ledger.continuity_bodies import Successor
from ledger.entry import read_entry
from ledger.ledger import Ledger
from protocol.certificate import certificate_known
from protocol.units import PublicKey


class Dealings:
    """The feeds that our entries name, read as our feed grows."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._named: dict[PublicKey, None] = {}
        self._next = 0
        self._catch_up()

    def __contains__(self, feed: PublicKey) -> bool:
        self._catch_up()
        return feed in self._named

    def _catch_up(self) -> None:
        head = self._ledger.head(self._ledger.feed)
        stop = 0 if head is None else head.seq + 1
        if self._next == stop:
            return
        for raw in self._ledger.entries(self._ledger.feed, self._next, stop):
            body = read_body(read_entry(raw, self._ledger.net).draft)
            self._named.update(dict.fromkeys(_named_by(body)))
        self._next = stop


def _named_by(body: Body | None) -> Iterator[PublicKey]:
    match body:
        case Grant():
            yield requested(body)[0]
            yield from body.witnesses or ()
        case Accept() if body.cosigned is not UNSET:
            # Without cosignatures it names a GRANT alone, whose feed is here or was asked for.
            yield body.cosigned.owner
            yield from (each.witness for each in body.cosigned.by)
        case Statement():
            yield body.peer
        case Successor():
            yield certificate_known(body.certificate).feed
        case _:
            pass
