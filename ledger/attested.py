"""What witnesses attest of a lease: class B, never proof. SPEC.md 14.8. Pure.

It is true only as far as k of n named witnesses are honest, and its types never meet those of
evidence: nobody is punished for it, it only weighs in what its renter is believed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ledger.fold import Granted, State
from protocol.units import Digest, Millis, PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Attested:
    """One fact, and how many of those who were named stand for it."""

    kind: Literal["non-delivery"]
    lease: Digest
    owner: PublicKey
    renter: PublicKey
    period: int
    k: int
    """Named witnesses that say so."""
    n: int
    """Named witnesses."""
    quorum: int
    """How many both sides agreed to take for enough."""
    at_ms: Millis
    """When the last of them said so."""
    by: tuple[Digest, ...]
    """Ids of the PROBEs, sorted."""

    @property
    def is_enough(self) -> bool:
        """Whether what both sides agreed to take for enough is there."""
        return self.k >= self.quorum > 0

    @property
    def text(self) -> str:
        """For people: the class goes with the fact."""
        return f"{self.kind} in period {self.period}, attested {self.k} of {self.n}"


def non_deliveries(state: State) -> list[Attested]:
    """Each period of an accepted lease of which a named witness says that nothing was delivered.

    By lease, then period; those with fewer than the quorum too.
    """
    found = (attested(state, lease, period) for lease, period in state.probed())
    return [each for each in found if each is not None]


def attested(state: State, lease: Digest, period: int) -> Attested | None:
    """Who of the lease's witnesses attest that nothing was delivered in this period; None: nobody.

    A PROBE counts if its author is named in the GRANT, wrote it within the period by its own
    clock and below any fork of its feed, and wrote no other verdict on that period.
    """
    granted, held = state.granted(lease), state.lease(lease)
    if granted is None or held is None or held.is_forked or not held.is_accepted:
        return None
    if not _begins(granted, period) < held.ended_ms:
        return None
    said = list(_counted(state, granted, (lease, period)))
    if not said:
        return None
    return Attested(
        kind="non-delivery",
        lease=lease,
        owner=granted.owner,
        renter=granted.renter,
        period=period,
        k=len(dict.fromkeys(witness for witness, _, _ in said)),
        n=len(granted.witnesses),
        quorum=granted.quorum,
        at_ms=Millis(max(at_ms for _, at_ms, _ in said)),
        by=tuple(sorted(probe for _, _, probe in said)),
    )


def _begins(granted: Granted, period: int) -> int:
    return granted.request.start_ms + period * granted.request.period_ms


def _counted(
    state: State, granted: Granted, of: tuple[Digest, int]
) -> Iterator[tuple[PublicKey, Millis, Digest]]:
    """Witness, instant and id of each PROBE that counts against the owner."""
    lease, period = of
    probes = state.probes(lease, period)
    # Who says both is exposed by that (A14), and attests neither.
    fine = [said.witness for said in probes.values() if said.verdict == "ok"]
    for probe, said in sorted(probes.items()):
        if (
            said.verdict == "fail"
            and said.witness in granted.witnesses
            and said.witness not in fine
            and not state.is_forked(said.witness, said.seq)
            and _begins(granted, period) <= said.ts_ms < _begins(granted, period + 1)
        ):
            yield said.witness, said.ts_ms, probe
