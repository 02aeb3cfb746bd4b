"""What this node thinks of others, by its ledger: whom it shuns, and whom it expects to finish.

Wiring between the ledger's derivation and those who ask; reckons anew when the ledger has changed.
"""

from collections.abc import Callable, Mapping
from typing import Final

from ledger.ledger import Ledger
from ledger.rules import Case, Verdict, ending, judge, read_case, verdicts_by_feed
from ledger.trust import Record, Trust
from ledger.view import Failure, epoch_of, look
from p2pnode.clock import WallClock
from p2pnode.matching.judging import hazard_of
from p2pnode.matching.spread import NEWCOMER_BELOW_PPM
from p2pnode.words import offence_words
from protocol.rules import BUNDLE, KEPT_PPM_MAX
from protocol.units import PublicKey

REST_US_PER_ACCOUNT: Final = 600
"""How long a reckoning is good although entries came, for each account in it: it took about 30
microseconds for each, so that reckoning takes at most a twentieth of the time."""


class Standing:
    """One node's view of everybody.

    Whom nobody should deal with is known as soon as the evidence is here. Weights follow when the
    last reckoning is old enough, so that peers cannot make the node reckon without end.
    """

    def __init__(
        self,
        *,
        ledger: Ledger,
        money: str,
        failures: Callable[[], Mapping[PublicKey, int]],
        clock: WallClock,
    ) -> None:
        """`failures` tells how often this node has seen an owner fail."""
        self._ledger = ledger
        self.money: Final = money
        self._failures = failures
        self._clock = clock
        self._cases: dict[bytes, Case] = {}
        self._barred: dict[PublicKey, Verdict] = {}
        self._judged = -1
        self._trust: Trust | None = None
        self._reckoned: tuple[int, int] = (-1, 0)
        self._used: tuple[Failure, ...] = ()
        """What this node had seen itself by then: the view has what witnesses attest besides."""
        self._records: dict[PublicKey, Record] = {}
        self._hazards: dict[PublicKey, int] = {}

    def bars(self, peer: PublicKey) -> str | None:
        """Why nobody should deal with the peer, in a sentence; None if nothing is known."""
        self._judge()
        worst = self._barred.get(peer)
        if worst is None:
            return None
        return f"proved: {worst.name}, it {offence_words(worst.name)}"

    def _judge(self) -> None:
        """Looks through the evidence again if the ledger has changed; each is verified once."""
        if self._judged == self._ledger.changes:
            return
        self._judged = self._ledger.changes
        known, net = self._cases, self._ledger.net
        self._cases = {
            raw: known.get(raw) or read_case(raw, net) for raw in self._ledger.evidence()
        }
        verdicts = judge(self._cases.values(), self._ledger.state)
        answers = verdicts_by_feed(verdicts, self._ledger.state.feeds_of_account)
        self._barred = {
            feed: worst for feed, of in answers.items() if (worst := ending(of)) is not None
        }

    def reliability_ppm(self, owner: PublicKey) -> int:
        """How likely the owner serves to the end, at least, by what this node can tell."""
        return self._record(owner).reliability_ppm

    def hazard_ppm_per_hour(self, owner: PublicKey) -> int:
        """How often its bronze leases are interrupted, by those that we had of it."""
        self.trust()
        if owner not in self._hazards:
            state = self._ledger.state
            leases = map(state.lease, state.leases_of(owner, self._ledger.feed))
            found = (lease for lease in leases if lease is not None)
            self._hazards[owner] = hazard_of(found, self._clock.now())
        return self._hazards[owner]

    def is_clean(self, owner: PublicKey) -> bool:
        """Whether nothing bad is proved or believed of the owner."""
        kept_ppm = self.trust().view.kept_ppm(owner)
        return kept_ppm == KEPT_PPM_MAX and not self._record(owner).bad_micro

    def is_newcomer(self, owner: PublicKey) -> bool:
        """Whether nothing bad is known of the owner, and little good yet."""
        return self.is_clean(owner) and self.reliability_ppm(owner) < NEWCOMER_BELOW_PPM

    def _record(self, owner: PublicKey) -> Record:
        trust = self.trust()
        if owner not in self._records:
            self._records[owner] = trust.record(owner, self.money)
        return self._records[owner]

    def credit_micro(self, peer: PublicKey, money: str) -> int:
        """With how much in this money the peer can be trusted, as of a moment ago."""
        return self.trust().credit(peer, money)

    def trust(self) -> Trust:
        """The numbers of this epoch, as they are or were a moment ago."""
        if (
            self._trust is None
            or (self._trust.view.epoch, self._used) != (self.epoch(), self._seen())
            or self._is_due()
        ):
            return self.reckon()
        return self._trust

    def reckon(self) -> Trust:
        """The numbers as they are now, whatever that takes."""
        self._judge()
        self._used = self._seen()
        view = look(
            self._ledger.state,
            tuple(self._cases.values()),
            ego=self._ledger.feed,
            epoch=self.epoch(),
            failures=self._used,
        )
        self._reckoned = (self._ledger.changes, self._clock.now())
        self._records.clear()
        self._hazards.clear()
        self._trust = Trust(view)
        return self._trust

    def epoch(self) -> int:
        """The epoch that it is now."""
        return epoch_of(self._clock.now(), BUNDLE)

    def _seen(self) -> tuple[Failure, ...]:
        """What this node has seen itself: it needs no entry to be believed, and no epoch."""
        own = self._ledger.feed
        return tuple(
            Failure(reporter=own, subject=owner, epoch=0, periods=times)
            for owner, times in sorted(self._failures().items())
        )

    def _is_due(self) -> bool:
        """Whether entries came, and the last reckoning is old enough for what one costs."""
        changes, at_ms = self._reckoned
        rest_us = REST_US_PER_ACCOUNT * len(self._ledger.state.accounts())
        return changes != self._ledger.changes and 1_000 * (self._clock.now() - at_ms) >= rest_us
