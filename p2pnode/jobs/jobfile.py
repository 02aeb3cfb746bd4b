"""One job as the renter's node keeps it. Plain data; every change is written before it counts."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from p2pnode.cabinet import Cabinet
from p2pnode.matching.order import ANY, START_MS, Choice, Order
from p2pnode.matching.renter import Taking
from p2pnode.matching.search import Wish, converted
from protocol.advert import Tier
from protocol.auction import Need
from protocol.codec import (
    CurrencyCode,
    Hash,
    Instant,
    Key,
    Money,
    Peer,
    Span,
    UInt,
    Wire,
    decode,
    encode,
)
from protocol.job import Input, Job, digest_of_job
from protocol.lease import Quorum, Witnesses
from protocol.limits import JOB_BYTES_MAX, OUTCOME_BYTES_MAX, SEAL_BYTES
from protocol.tick import Outcome
from protocol.units import Micros, Millis, MillisSpan, PublicKey
from protocol.wire import Envelope

State = Literal[
    "primary", "matching", "staging", "running", "fetching", "settling", "done", "failed"
]
"""`primary`: in the hands of the renter's own primary. `matching`: no lease. `staging`, `running`:
leased. `fetching`: ended, output on its way. `settling`: all is here, accounts are being closed.
`done`: ended by itself. `failed`: it did not, see `why`."""
AVOID_MAX: Final = 64
ENDED: tuple[State, ...] = ("done", "failed")

JOBFILE_BYTES_MAX = 1_048_576
RESTART_MS = 120_000
"""To find another owner and to begin there: what was measured on clusters of others."""


class TakingRecord(Wire, frozen=True, kw_only=True):
    """See p2pnode.matching.renter.Taking."""

    peer: Peer
    owner: Key
    request: bytes
    job: bytes | UnsetType = UNSET


class Resting(Wire, frozen=True, kw_only=True):
    """An owner that took its units back, and until when it is not asked again."""

    owner: Key
    until_ms: Instant


class Fallback(Wire, frozen=True, kw_only=True):
    """A job that is taken from its units too often pays for a better tier."""

    after: Annotated[int, Meta(ge=1, le=64)]
    """Preemptions."""
    tier: Tier


PrimaryMode = Literal["first", "only", "fallback"]
"""`first`: there, and on the market once it is out of stock. `only`: nowhere else. `fallback`:
there once nobody on the market fits."""
PrimaryPhase = Literal["untried", "starting", "waiting", "running", "leaving", "left"]
"""`starting`: it may have been told. `waiting`: it has been. `leaving`: the job has to be gone from
there before `after` can be. `left`: it is."""
After = Literal["ended", "elsewhere", "time", "failed", "cancelled"]


class AtPrimary(Wire, frozen=True, kw_only=True):
    """What a job is to its renter's primary."""

    mode: PrimaryMode
    input: str | UnsetType = UNSET
    """The directory, on our host."""
    phase: PrimaryPhase = "untried"
    since_ms: UInt = 0
    """When `starting`, `running` or `leaving` began."""
    log_from: UInt = 0
    """How long our log was when it was started there."""
    after: After | UnsetType = UNSET
    why: str = ""
    """For which it is left, or what it is waiting for there."""
    exit_code: UInt | UnsetType = UNSET


class JobFile(Wire, frozen=True, kw_only=True):
    """All that must survive a crash of the renter's node."""

    v: Literal[1] = 1
    id: str
    created_ms: Instant
    job: bytes
    """Encoded `protocol.job.Job`."""
    need: Need
    tier: Tier
    span_ms: Span
    """How long the lease is taken for: the time limit and the time to stage."""
    notice_ms: Span
    money: CurrencyCode
    ask_max: Money | UnsetType = UNSET
    total_max: Money | UnsetType = UNSET
    choice: Choice = ANY
    patience_ms: Span
    give_up_ms: Instant
    """Without a lease by then, the job has failed; after a move the patience begins anew."""
    moves_max: UInt
    witnesses: Witnesses | UnsetType = UNSET
    quorum: Quorum | UnsetType = UNSET
    state: State = "matching"
    why: str = ""
    """What the state is waiting for, or why the job failed."""
    attempt: UInt = 1
    avoid: Annotated[tuple[Key, ...], Meta(max_length=AVOID_MAX)] = ()
    """Owners that failed, the newest last; see `avoiding`."""
    resting: Annotated[tuple[Resting, ...], Meta(max_length=64)] = ()
    is_renewable: Literal["yes"] | UnsetType = UNSET
    """Present: a lease ends before the job may, and the next one is taken in time."""
    renewing: TakingRecord | UnsetType = UNSET
    """The request for the next lease."""
    renewal: Hash | UnsetType = UNSET
    """The next lease."""
    start_ms: Instant | UnsetType = UNSET
    """When it is to start, if not as soon as it can."""
    checkpoint_ms: Span | UnsetType = UNSET
    """How often what the job saves is fetched; absent: never."""
    checkpoint: Input | UnsetType = UNSET
    """What the job saved last, as far as it is here."""
    preemptions: UInt = 0
    """Of the attempts, those that ended because the owner took its units back."""
    fallback: Fallback | UnsetType = UNSET
    taking: TakingRecord | UnsetType = UNSET
    lease: Hash | UnsetType = UNSET
    outcome: bytes | UnsetType = UNSET
    """Sealed by the owner."""
    paid_micro: Money = 0  # type: ignore[assignment]
    """Owed for leases before this one, which did not finish the job."""
    is_cancelled: Literal["yes"] | UnsetType = UNSET
    primary: AtPrimary | UnsetType = UNSET
    """Unset where only the market is asked."""

    def worth(self, micros: Micros, money: str) -> Micros:
        """A sum in another money, which a lease may be in, in the money of the job's limits."""
        wish = Wish(money=self.money, rates=self.choice.rates)
        found = converted(micros, money, wish)
        assert found is not None, "a lease is in the job's money or in one with a rate"
        return found

    def avoiding(self, owner: PublicKey) -> tuple[Key, ...]:
        """Whom to avoid once this owner has failed too; of too many the oldest are forgotten."""
        return (*self.avoid, owner)[-AVOID_MAX:]

    def order(self, now: Millis) -> Order:
        """What is asked of the market now."""
        resting = (each.owner for each in self.resting if each.until_ms > now)
        total = None if self.total_max is UNSET else self.total_max - self.paid_micro
        job = decode(self.job, Job, size_max=JOB_BYTES_MAX)
        tier, *others = _tiers_in_time(self, now)
        return Order(
            need=self.need,
            tier=tier,
            span_ms=MillisSpan(self.span_ms),
            notice_ms=MillisSpan(self.notice_ms),
            money=self.money,
            ask_max=None if self.ask_max is UNSET else self.ask_max,
            total_max=None if total is None else Micros(max(0, total)),
            job=digest_of_job(self.job),
            choice=replace(self.choice, or_tiers=tuple(others)),
            avoid=tuple(PublicKey(owner) for owner in (*self.avoid, *resting)),
            witnesses=() if self.witnesses is UNSET else self.witnesses,
            quorum=0 if self.quorum is UNSET else self.quorum,
            start_ms=self.start_ms if self.start_ms is not UNSET and self.start_ms > now else None,
            image=_image(job),
            bytes_to_move=0 if job.input is UNSET else job.input.bytes,
            weights=self.choice.weights(_redo_ms(self)),
        )


def _image(job: Job) -> bytes | None:
    """The digest of the image that the job names."""
    return None if job.image is UNSET else bytes.fromhex(job.image.rpartition(":")[2])


def _tiers_in_time(file: JobFile, now: Millis) -> list[Tier]:
    """The tiers that will do: bronze beside others only where one interruption leaves time."""
    tiers = [file.tier, *file.choice.or_tiers]
    deadline = file.choice.end_by_ms
    if deadline is UNSET:
        return tiers
    start = max(now + START_MS, 0 if file.start_ms is UNSET else file.start_ms)
    is_tight = start + file.span_ms + _redo_ms(file) > deadline
    kept = [tier for tier in tiers if tier != "bronze" or not is_tight]
    return kept or tiers


def _redo_ms(file: JobFile) -> MillisSpan:
    """What one interruption costs: half of what lies between two checkpoints, or of all."""
    lost = file.span_ms if file.checkpoint_ms is UNSET else file.checkpoint_ms
    return MillisSpan(RESTART_MS + min(lost, file.span_ms) // 2)


def taking_record(taking: Taking) -> TakingRecord:
    """For the file."""
    return TakingRecord(
        peer=taking.peer,
        owner=taking.owner,
        request=taking.request,
        job=UNSET if taking.job is None else taking.job,
    )


def taking_of(record: TakingRecord) -> Taking:
    """Out of the file."""
    return Taking(
        peer=record.peer,
        owner=record.owner,
        request=record.request,
        job=None if record.job is UNSET else record.job,
    )


def save(cabinet: Cabinet, file: JobFile) -> None:
    """Durable on return. Raises LocalFault."""
    cabinet.put(f"jobs/{file.id}/file", encode(file))


def load(cabinet: Cabinet, job: str) -> JobFile | None:
    """The job with this id. Raises LocalFault or PeerFault if the record is damaged."""
    raw = cabinet.get(f"jobs/{job}/file")
    return None if raw is None else decode(raw, JobFile, size_max=JOBFILE_BYTES_MAX)


def load_all(cabinet: Cabinet) -> list[JobFile]:
    """All jobs, in the order of their ids."""
    files = (load(cabinet, name.rpartition("/")[2]) for name in cabinet.names("jobs"))
    return [file for file in files if file is not None]


def end_all_under_way(cabinet: Cabinet, why: str) -> int:
    """No lease of before can be gone on with; how many jobs that ends. Raises LocalFault.

    One whose outputs are here lacks its receipt only. One that has asked for no lease yet stays.
    """
    files = [file for file in load_all(cabinet) if file.state not in ENDED]
    ended = [file for file in files if file.lease is not UNSET or file.taking is not UNSET]
    for file in ended:
        state: State = "done" if file.state == "settling" and _is_exit(file) else "failed"
        save(cabinet, replace(file, state=state, why=why))
    return len(ended)


def _is_exit(file: JobFile) -> bool:
    """Whether the program ended by itself, by the owner's word, which was verified as it came."""
    assert file.outcome is not UNSET
    sealed = decode(file.outcome, Envelope, size_max=OUTCOME_BYTES_MAX + SEAL_BYTES)
    return decode(sealed.b, Outcome, size_max=OUTCOME_BYTES_MAX).cause == "exit"
