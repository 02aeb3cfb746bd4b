"""What a renter wants run, known to the winner alone. SPEC.md section 11.

It travels sealed to the winner's x25519 key; lease request and GRANT name it by the digest of its
encoding, which its nonce keeps from being guessed.
"""

from hashlib import blake2b
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType
from nacl.bindings import crypto_box, crypto_box_seal_open, crypto_box_seed_keypair
from nacl.exceptions import CryptoError

from protocol.codec import Extensions, Hash, Id16, Span, UInt, Wire, decode
from protocol.errors import PeerFault
from protocol.limits import ARGUMENTS_MAX, JOB_BYTES_MAX, VARIABLES_MAX
from protocol.signing import digest
from protocol.units import Digest, PublicKey

Argument = Annotated[str, Meta(max_length=8_192, pattern=r"\A[^\0]*\Z")]
VariableName = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\Z")
]


ImageName = Annotated[
    str, Meta(pattern=r"\A(?:[a-z0-9][a-z0-9._/:-]{0,200}@)?sha256:[0-9a-f]{64}\Z")
]
"""NAME@sha256:… or sha256:…; a name alone may mean another image tomorrow."""


class Input(Wire, frozen=True, kw_only=True):
    """An archive that the job starts with, unpacked in its working directory."""

    digest: Hash
    """SHA-256 of the archive."""
    bytes: UInt
    """Its length."""


NoticeSignal = Literal["USR1", "USR2", "HUP", "INT", "TERM"]
"""What a job may ask to be woken with when its units are taken back."""


class JobLimits(Wire, frozen=True, kw_only=True):
    """What the job may use; the engine enforces each."""

    time_ms: Span
    memory_mib: UInt
    cpus_milli: UInt
    """Thousandths of a core."""
    pids: UInt
    disk_mib: UInt
    """Working directory with inputs and outputs."""
    log_bytes: UInt
    output_bytes: UInt


class Job(Wire, frozen=True, kw_only=True):
    """One run of one program."""

    v: Literal[1] = 1
    argv: Annotated[tuple[Argument, ...], Meta(min_length=1, max_length=ARGUMENTS_MAX)]
    variables: Annotated[dict[VariableName, Argument], Meta(max_length=VARIABLES_MAX)]
    image: ImageName | UnsetType = UNSET
    """For engines that run images."""
    input: Input | UnsetType = UNSET
    checkpoint: Input | UnsetType = UNSET
    """What the job saved at its last owner; unpacked where it saves."""
    notice_signal: NoticeSignal | UnsetType = UNSET
    """The job handles this one: its first process gets it with the notice."""
    outlasts: Literal["yes"] | UnsetType = UNSET
    """Present: its time limit may be longer than its lease, which is renewed in time."""
    limits: JobLimits
    nonce: Id16
    """Makes equal jobs different, so that the digest in the ledger tells nobody what was run."""
    x: Extensions = UNSET


def digest_of_job(raw: bytes) -> Digest:
    """What a lease names an encoded job by."""
    return digest("job", raw)


def seal_job(raw: bytes, *, to: PublicKey, ephemeral: bytes) -> bytes:
    """An encoded job that only the holder of x25519 key `to` can open.

    The format is libsodium's sealed box; `ephemeral` is a seed of 32 bytes, used once.

    Raises PeerFault `job.key` if `to` is a key to which anybody could open it.
    """
    public, secret = crypto_box_seed_keypair(ephemeral)
    nonce = blake2b(public + to, digest_size=24).digest()
    try:
        return public + crypto_box(raw, nonce, to, secret)
    except CryptoError as error:  # the shared secret would be zero
        raise PeerFault("job.key") from error


def open_job(sealed: bytes, *, public: PublicKey, secret: bytes) -> bytes:
    """The encoded job. Raises PeerFault `job.sealed` if it is not for us or was altered."""
    try:
        return crypto_box_seal_open(sealed, public, secret)
    except (CryptoError, ValueError, TypeError) as error:
        raise PeerFault("job.sealed") from error


def read_job(raw: bytes, *, named: Digest) -> Job:
    """The job that a lease names. Raises PeerFault `job.digest` or `codec.*`."""
    if digest_of_job(raw) != named:
        raise PeerFault("job.digest")
    return decode(raw, Job, size_max=JOB_BYTES_MAX)
