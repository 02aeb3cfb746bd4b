"""An author that appends to a real ledger as fast as it can and says so, until it is killed.

`python -m testnet.ledger_author HOME NAME SYNCED GROUP`. It tells its parent on standard output, in
records of one length, that an entry is being signed, before it is, and that an append has returned.
"""

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.bodies import Genesis, Statement
from ledger.entry import Header, id_of
from ledger.file_guard import open_file_guard
from ledger.ledger import Ledger, open_ledger
from ledger.limits import HEADER_BYTES_MAX
from ledger.store import Store
from p2pnode.own_store import open_own_store
from protocol.codec import decode
from protocol.signing import Signer
from protocol.units import Digest, Micros, Millis, MillisSpan, NetId, PublicKey, Signature
from testnet.made_up import UnsyncedStore, genesis_of
from testnet.world_dice import dice_of

NET: Final = NetId(b"ledger-crash".ljust(32, b"\0"))
BEGIN: Final = Millis(1_800_000_000_000)
PEERS: Final = 8
SIGNING: Final = b"s"
APPENDED: Final = b"a"
RECORD_BYTES: Final = 41


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One record."""

    what: bytes
    seq: int
    id: Digest

    def packed(self) -> bytes:
        """RECORD_BYTES bytes."""
        return self.what + self.seq.to_bytes(8, "big") + self.id


Tell = Callable[[Told], None]


def read_told(raw: bytes) -> list[Told]:
    """The whole records in these bytes; a kill may have cut the last one."""
    stop = len(raw) - len(raw) % RECORD_BYTES
    cuts = [raw[n : n + RECORD_BYTES] for n in range(0, stop, RECORD_BYTES)]
    return [
        Told(what=cut[:1], seq=int.from_bytes(cut[1:9], "big"), id=Digest(cut[9:])) for cut in cuts
    ]


class TellingSigner(Signer):
    """Tells of each entry before it is signed."""

    def __init__(self, seed: bytes, tell: Tell) -> None:
        super().__init__(seed)
        self._tell = tell

    def sign(self, domain: str, net: NetId, data: bytes) -> Signature:
        if domain == "entry":
            header = decode(data, Header, size_max=HEADER_BYTES_MAX)
            self._tell(Told(what=SIGNING, seq=header.seq, id=id_of(data, net)))
        return super().sign(domain, net, data)


def make_folders(home: Path) -> None:
    """The directories of the database and of the guard."""
    (home / "db").mkdir(parents=True, exist_ok=True)
    (home / "guard").mkdir(exist_ok=True)


@contextmanager
def opened_author(
    home: Path, name: str, tell: Tell, *, is_synced: bool = True
) -> Iterator[tuple[Ledger, Signer]]:
    """The ledger in this home, written by the author of this name. Raises as `open_ledger`."""
    signer = TellingSigner(dice_of(name).randbytes(32), tell)
    with closing(open_own_store(home / "db")) as database:
        # To forget to sync shows that a loss of power is noticed.
        store: Store = database if is_synced else UnsyncedStore(database)
        guard = open_file_guard(home / "guard" / "feed", NET)
        uuid = secrets.token_bytes(16)
        yield open_ledger(store=store, guard=guard, signer=signer, net=NET, uuid=uuid), signer


def _genesis_of(feed: Signer) -> Genesis:
    """No two are equal, so that one written twice shows."""
    return genesis_of(feed, NET, BEGIN, incarnation=secrets.randbits(60))


def statement_after(seq: int) -> Statement:
    """What follows this entry; no two are equal, so that a place written twice shows."""
    return Statement(
        peer=PublicKey(bytes([seq % PEERS]) * 32),
        ctr=seq,
        used_ms=MillisSpan(seq),
        amount_micro=Micros(seq),
        money="TEST",
        lease=Digest(secrets.token_bytes(32)),
    )


def append_next(ledger: Ledger, signer: Signer, *, group: int = 1) -> list[Told]:
    """As many entries more, made durable together. Raises as `Ledger.append_all`."""
    head = ledger.head(ledger.feed)
    if head is None:
        entries = [ledger.append(_genesis_of(signer), BEGIN)]
    elif group == 1:
        entries = [ledger.append(statement_after(head.seq), Millis(BEGIN + head.seq))]
    else:
        bodies = [statement_after(head.seq + n) for n in range(group)]
        entries = ledger.append_all(bodies, Millis(BEGIN + head.seq))
    return [Told(what=APPENDED, seq=entry.seq, id=entry.id) for entry in entries]


def main() -> None:
    """Append until killed."""
    home, name, synced, group = sys.argv[1:]

    def tell(told: Told) -> None:
        os.write(1, told.packed())

    with opened_author(Path(home), name, tell, is_synced=synced == "1") as (ledger, signer):
        while True:
            for told in append_next(ledger, signer, group=int(group)):
                tell(told)


if __name__ == "__main__":
    main()
