"""Replicas that do harm: that hide what accuses a liar, and that send what does not hold."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from msgspec import UNSET, structs

from ledger.entry import Entry, read_entry, seal
from ledger.evidence import check
from ledger.fork_evidence import TwoHeaders
from ledger.frontier import Frontier, proof_id, proof_key
from ledger.ledger import Ledger
from ledger.sync_messages import Run, Turn
from protocol.codec import decode, encode
from protocol.errors import PeerFault
from protocol.limits import FRAME_BYTES_MAX
from protocol.units import Digest, PublicKey
from testnet.replica import Replica


class HidingFrontier(Frontier):
    """See Frontier. Says nothing of some feeds and of what accuses them; what comes is taken."""

    def __init__(self, ledger: Ledger, hidden: tuple[PublicKey, ...]) -> None:
        self._hidden = dict.fromkeys(hidden)
        self._accused: dict[Digest, PublicKey] = {}
        super().__init__(ledger)

    def refresh(self, feed: PublicKey) -> None:
        if feed not in self._hidden:
            super().refresh(feed)

    def refresh_proofs(self) -> bool:
        is_changed = super().refresh_proofs()
        for key, proof in self.proofs.under(""):
            if self._offender(proof) in self._hidden:
                self.proofs.drop(key)
        return is_changed

    def _offender(self, proof: Digest) -> PublicKey:
        """Whom this evidence accuses; it is judged once."""
        if proof not in self._accused:
            raw = self.proof(proof)
            assert raw is not None
            self._accused[proof] = check(raw, self._ledger.net).offender
        return self._accused[proof]


class LyingFrontier(Frontier):
    """See Frontier. Has evidence besides, which proves nothing."""

    def __init__(self, ledger: Ledger, lies: tuple[bytes, ...]) -> None:
        self._lies = {proof_id(raw): raw for raw in lies}
        super().__init__(ledger)

    def refresh_proofs(self) -> bool:
        is_changed = super().refresh_proofs()
        for lie in self._lies:
            if self.proofs.get(proof_key(lie)) is None:
                self.proofs.put(proof_key(lie), lie, lie)
        return is_changed

    def proof(self, proof: Digest) -> bytes | None:
        return self._lies.get(proof) or super().proof(proof)


@dataclass(slots=True, kw_only=True)
class Garbler(Replica):
    """See Replica. Whatever it says goes through `spoil` first."""

    spoil: Callable[[bytes], bytes]

    def speak(self, frame: bytes) -> bytes:
        return self.spoil(frame)


def garbler(of: Replica, spoil: Callable[[bytes], bytes]) -> Garbler:
    """The same replica, from now on with garbage."""
    return Garbler(
        number=of.number,
        signer=of.signer,
        store=of.store,
        ledger=of.ledger,
        frontier=of.frontier,
        spoil=spoil,
    )


def flipping(dice: random.Random) -> Callable[[bytes], bytes]:
    """Every other frame has some bytes that are not what they were."""

    def spoil(frame: bytes) -> bytes:
        changed = bytearray(frame)
        if dice.randrange(2):
            for _ in range(dice.randrange(1, 4)):
                changed[dice.randrange(len(changed))] = dice.randrange(256)
        return bytes(changed)

    return spoil


def forging(of: Replica) -> Callable[[bytes], bytes]:
    """Entries of others have other contents than their authors gave them, signed by the liar."""

    def spoil(frame: bytes) -> bytes:
        try:
            turn = decode(frame, Turn, size_max=FRAME_BYTES_MAX)
        except PeerFault:
            return frame  # A HELLO.
        if turn.runs is UNSET:
            return frame
        runs = tuple(
            Run(run.feed, tuple(_forged(of, raw) for raw in run.entries)) for run in turn.runs
        )
        return encode(structs.replace(turn, runs=runs))

    return spoil


def _forged(of: Replica, raw: bytes) -> bytes:
    entry = read_entry(raw, of.ledger.net)
    header = structs.replace(entry.header, rules=b"no rules")
    draft = structs.replace(entry.draft, header=header, hdr=encode(header))
    return seal(draft, signer=of.signer, net=of.ledger.net).raw


def void_evidence(one: Entry, other: Entry, by: Replica) -> tuple[bytes, ...]:
    """What looks as if it accused the author of these two entries that follow each other."""
    forged = read_entry(_forged(by, one.raw), by.ledger.net)
    first, second = sorted((one, forged), key=lambda entry: entry.draft.hdr)
    return (_two(1, one, one), _two(1, first, second), _two(2, one, other), _two(1, one, other))


def _two(rule: Literal[1, 2], one: Entry, other: Entry) -> bytes:
    return encode(TwoHeaders(rule, one.draft.hdr, one.signature, other.draft.hdr, other.signature))
