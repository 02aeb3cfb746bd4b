"""What a supervisor is told of its run. The standard library alone: the supervisor loads this."""

from dataclasses import dataclass
from pathlib import Path

from p2pnode.execution.confinement import Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What to run, where, and within what."""

    work: Path
    log: Path
    records: Path
    argv: tuple[str, ...]
    variables: dict[str, str]
    """The whole environment."""
    bounds: Bounds
    log_bytes: int


def write_spec(spec: Spec) -> bytes:
    """The spec in "key=value" pieces that end with a zero byte; `argv` and `variable` repeat.

    Neither arguments nor paths can hold a zero, and nobody but us writes or reads this.
    """
    pieces = [
        f"work={spec.work}",
        f"log={spec.log}",
        f"records={spec.records}",
        *(f"argv={argument}" for argument in spec.argv),
        *(f"variable={name}={value}" for name, value in spec.variables.items()),
        *(f"{name}={getattr(spec.bounds, name)}" for name in Bounds.__slots__),
        f"log_bytes={spec.log_bytes}",
    ]
    return "".join(f"{piece}\0" for piece in pieces).encode("utf-8", "surrogateescape")


def read_spec(raw: bytes) -> Spec:
    """What `write_spec` wrote."""
    text = raw.decode("utf-8", "surrogateescape")
    pieces = [piece.partition("=") for piece in text.split("\0")[:-1]]
    one = {key: value for key, _, value in pieces}
    variables = [value.partition("=") for key, _, value in pieces if key == "variable"]
    return Spec(
        work=Path(one["work"]),
        log=Path(one["log"]),
        records=Path(one["records"]),
        argv=tuple(value for key, _, value in pieces if key == "argv"),
        variables={name: value for name, _, value in variables},
        bounds=Bounds(**{name: int(one[name]) for name in Bounds.__slots__}),
        log_bytes=int(one["log_bytes"]),
    )
