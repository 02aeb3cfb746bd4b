"""Many replicas in one process: how far the proof of a double lease gets, and that all agree.

Simulated: the network (sessions happen one after the other, in a drawn order), keys, clocks and
leases. Real: ledgers, entries, signatures, evidence, and every frame of every session.
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from ledger.entry import read_entry
from ledger.evidence import check
from ledger.frontier import Frontier
from ledger.judging import Offence
from protocol.errors import LocalFault
from protocol.signing import digest
from protocol.units import Millis, NetId, PublicKey
from testnet.replica import Replica, Talks, converse, fold_digest, open_replica
from testnet.replica_liars import (
    HidingFrontier,
    LyingFrontier,
    flipping,
    forging,
    garbler,
    void_evidence,
)
from testnet.replica_story import T0, double_lease, lease, open_feed, signer_of, state_account
from testnet.world_dice import dice_of

ROUND_MS: Final = 30_000
KNOWN_PERCENT: Final = 99
HEALING_ROUNDS_MAX: Final = 64
SLEEPING_WRITERS: Final = 5
"""Silent replicas that have written something of which nobody knows until they wake up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasPlan:
    """Which network, and for how long its faults last."""

    seed: int
    count: int = 1_000
    silent: int = 300
    """Honest, and neither ask nor answer while faults last."""
    malicious: int = 50
    """A tenth of them lease a unit twice; of the others half hide that, half send garbage."""
    rounds: int = 16
    writers: int = 24
    """Honest ones that lease to each other and state their accounts."""

    def __post_init__(self) -> None:
        """Raises LocalFault if there are too few that are honest and speak."""
        wanted = 2 * self.culprits + self.writers
        if self.malicious < 1 or self.count - self.silent - self.malicious < wanted:
            raise LocalFault(
                f"{self.count} replicas are too few for {self.silent} silent and"
                f" {self.malicious} malicious ones.",
                f"leave at least {wanted} others, and one malicious",
            )

    @property
    def culprits(self) -> int:
        """Replicas that lease one unit to two renters."""
        return max(1, self.malicious // 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicasResult:
    """What came of it."""

    shares: tuple[tuple[int, ...], ...]
    """After each round, of the honest ones that speak, how many hold the proof about each
    culprit.
    """
    speaking: int
    accused: int
    """Honest authors that somebody holds evidence against, at the end."""
    healing_rounds: int
    digests: int
    """Different ones among all honest ledgers at the end: of heads, evidence and fold."""
    entries: int
    evidence: int
    """In every honest ledger at the end, if they agree."""
    talks: Talks
    digest: str
    """Of all of that, and of what the ledgers hold."""

    @property
    def known_percent(self) -> int:
        """Of the honest ones that speak, how many hold the proof about the least known culprit."""
        return min(self.shares[-1]) * 100 // self.speaking

    @property
    def rounds_to_know(self) -> int | None:
        """The round after which 99 % hold the proof about every culprit; None: none is."""
        return rounds_to_know(self.shares, self.speaking)


def rounds_to_know(shares: Iterable[tuple[int, ...]], speaking: int) -> int | None:
    """The first round after which 99 % of them hold the proof about every culprit."""
    for number, round_shares in enumerate(shares, 1):
        if min(round_shares) * 100 >= KNOWN_PERCENT * speaking:
            return number
    return None


def run_replicas(plan: ReplicasPlan) -> ReplicasResult:
    """Plays the whole of it: faults for some rounds, then none until all agree."""
    network = Network(plan)
    network.begin()
    shares = tuple(network.rounds(plan.rounds))
    network.heal()
    healing = network.agree()
    return network.result(shares, healing)


def rounds_until_known(*, seed: int, count: int = 1_000, silent: int = 300) -> int | None:
    """Rounds until 99 % of the speaking replicas can prove one double lease; None in 64 rounds.

    Nobody writes anything else, and only the culprit is malicious.
    """
    plan = ReplicasPlan(seed=seed, count=count, silent=silent, malicious=1, writers=0)
    network = Network(plan)
    network.begin()
    shares = []
    for share in network.rounds(HEALING_ROUNDS_MAX):
        shares.append(share)
        if found := rounds_to_know(shares, len(network.speaking)):
            return found
    return None


@dataclass(slots=True)
class Network:
    """All replicas, and who of them is what. `begin` first."""

    plan: ReplicasPlan
    now: Millis = T0
    talks: Talks = field(default_factory=Talks)
    all: list[Replica] = field(default_factory=list)
    culprits: list[Replica] = field(default_factory=list)
    speaking: list[Replica] = field(default_factory=list)
    """Honest ones that ask and answer from the first round on."""
    silent: list[Replica] = field(default_factory=list)
    malicious: list[Replica] = field(default_factory=list)
    """The culprits included."""
    _asleep: dict[int, None] = field(default_factory=dict)
    _offences: dict[bytes, Offence] = field(default_factory=dict)
    _dice: random.Random = field(default_factory=lambda: dice_of("none"))

    @property
    def honest(self) -> list[Replica]:
        """The speaking and the silent ones."""
        return self.speaking + self.silent

    def begin(self) -> None:
        """Opens all ledgers, writes what is there before the first round, and lets liars lie."""
        plan = self.plan
        self._dice = dice_of(f"replicas {plan.seed}")
        net = NetId(digest("simulated-net", plan.seed.to_bytes(8, "big")))
        self.all = [
            open_replica(number, signer_of(f"{plan.seed} {number}"), net)
            for number in range(plan.count)
        ]
        drawn = self._dice.sample(self.all, plan.count)
        self.malicious, rest = drawn[: plan.malicious], drawn[plan.malicious :]
        self.silent, self.speaking = rest[: plan.silent], rest[plan.silent :]
        self.culprits = self.malicious[: plan.culprits]
        for each in self.silent:
            self.silence(each)
        self._write_first()
        self._turn_malicious()

    @property
    def _writers(self) -> list[Replica]:
        return self.speaking[2 * self.plan.culprits :][: self.plan.writers]

    def _write_first(self) -> None:
        victims = self.speaking[: 2 * self.plan.culprits]
        authors = [*self.culprits, *victims, *self._writers, *self._sleeping_writers()]
        for author in authors:
            open_feed(author, author.ledger.net, self.now)
        for index, culprit in enumerate(self.culprits):
            renters = (victims[2 * index], victims[2 * index + 1])
            double_lease(culprit, renters, self.now, self.talks)
        for author in self._sleeping_writers():
            state_account(author, self.culprits[0], self.now)

    def _sleeping_writers(self) -> list[Replica]:
        return self.silent[:SLEEPING_WRITERS] if self.plan.writers else []

    def _turn_malicious(self) -> None:
        hidden = tuple(each.feed for each in self.culprits)
        others = self.malicious[len(self.culprits) :]
        hiding, garbling = others[: len(others) // 2], others[len(others) // 2 :]
        for each in (*self.culprits, *hiding):
            each.frontier = HidingFrontier(each.ledger, hidden)
        for index, each in enumerate(garbling):
            self._garble(each, index)

    def _garble(self, each: Replica, index: int) -> None:
        match index % 3:
            case 0:
                self.all[each.number] = garbler(each, flipping(self._dice))
            case 1:
                self.all[each.number] = garbler(each, forging(each))
            case _:
                victim = self.speaking[0]
                net = victim.ledger.net
                one, other = (
                    read_entry(raw, net) for raw in victim.ledger.entries(victim.feed, 0, 2)
                )
                each.frontier = LyingFrontier(each.ledger, void_evidence(one, other, each))

    def rounds(self, count: int) -> Iterator[tuple[int, ...]]:
        """Plays that many; after each, how many speaking ones hold the proof of each culprit."""
        for number in range(count):
            if number < count // 2:
                self._write()
            self.play()
            yield tuple(self._known_of(culprit.feed) for culprit in self.culprits)

    def _write(self) -> None:
        """Some honest author leases to another one, and both state their account."""
        if len(self._writers) < 2:
            return
        owner, renter = self._dice.sample(self._writers, 2)
        lease(owner, renter, self.now, self.talks)
        state_account(owner, renter, self.now)
        state_account(renter, owner, self.now)

    def play(self) -> None:
        """One round: everybody who is awake opens a session with somebody, awake or not."""
        self.now = Millis(self.now + ROUND_MS)
        for number in self._dice.sample(range(len(self.all)), len(self.all)):
            partner = self._dice.randrange(len(self.all) - 1)
            partner += partner >= number
            if number not in self._asleep and partner not in self._asleep:
                converse(self.all[number], self.all[partner], self.talks)

    def _known_of(self, culprit: PublicKey) -> int:
        return sum(
            any(each.offender == culprit and each.rule == "A4" for each in self.offences(replica))
            for replica in self.speaking
        )

    def offences(self, replica: Replica) -> list[Offence]:
        """What its evidence proves; equal bytes are looked at once."""
        found = []
        for raw in replica.ledger.evidence():
            if raw not in self._offences:
                self._offences[raw] = check(raw, replica.ledger.net)
            found.append(self._offences[raw])
        return found

    def silence(self, replica: Replica) -> None:
        """It neither asks nor answers until all is healed."""
        self._asleep[replica.number] = None

    def heal(self) -> None:
        """The silent ones wake up, and the malicious ones do as everybody does from now on."""
        self._asleep.clear()
        for each in self.malicious:
            each.frontier = Frontier(each.ledger)
            self.all[each.number] = each

    def agree(self) -> int:
        """Plays until all honest ones have the same roots; how many rounds that took."""
        for count in range(HEALING_ROUNDS_MAX):
            if len(dict.fromkeys(map(_roots, self.honest))) == 1:
                return count
            self.play()
        return HEALING_ROUNDS_MAX

    def result(self, shares: tuple[tuple[int, ...], ...], healing: int) -> ReplicasResult:
        """What there is to tell at the end."""
        ledgers = [(*_roots(each), fold_digest(each.ledger.state)) for each in self.honest]
        guilty = dict.fromkeys(each.feed for each in self.culprits)
        accused = dict.fromkeys(
            offence.offender
            for each in self.all
            for offence in self.offences(each)
            if offence.offender not in guilty
        )
        told = sha256(repr((self.plan, shares, healing, self.talks)).encode())
        for parts in ledgers:
            told.update(b"".join(parts))
        one = self.honest[0].ledger
        return ReplicasResult(
            shares=shares,
            speaking=len(self.speaking),
            accused=len(accused),
            healing_rounds=healing,
            digests=len(dict.fromkeys(ledgers)),
            entries=sum(head.seq + 1 + len(one.conflicts(head.feed)) for head in one.heads()),
            evidence=len(one.evidence()),
            talks=self.talks,
            digest=told.hexdigest(),
        )


def _roots(replica: Replica) -> tuple[bytes, bytes]:
    return replica.frontier.heads.root(), replica.frontier.proofs.root()
