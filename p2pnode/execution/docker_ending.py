"""How a container's run ended, judged from what Docker says of it and what we did to it. Pure."""

from datetime import datetime
from typing import Any, Final

from p2pnode.execution.engine import Cause, Ending
from protocol.units import Millis

_KILLED: Final = 128 + 9
_TERMINATED: Final = 128 + 15

Facts = dict[str, str]


def is_over(state: dict[str, Any]) -> bool:
    """Whether nothing of the container goes on."""
    return state["Status"] in {"exited", "dead"}


def millis_of(instant: str) -> Millis:
    """Docker's text for an instant; 0 for the one that it writes for "never"."""
    read = datetime.fromisoformat(instant)
    return Millis(max(0, int(read.timestamp() * 1_000))) if read.year > 1 else Millis(0)


def judge_end(
    state: dict[str, Any], intent: Facts | None, *, now: Millis, was_away: bool
) -> Ending:
    """How it ended. `intent` is why we ended it, if we did; `was_away`: the engine was meanwhile.

    Docker tells exit codes only: 128 + n stands for a signal, or for a program that returns that.
    """
    code = int(state["ExitCode"])
    started = millis_of(state["StartedAt"]) or now
    ended = max(started, millis_of(state["FinishedAt"]) or now)
    cause, detail = _cause(state, code, was_away=was_away)
    if intent is not None and int(intent["at_ms"]) <= ended:
        cause, detail = _as_cause(intent["cause"]), intent["detail"]
    killed = code - 128 if cause != "exit" and code in {_KILLED, _TERMINATED} else None
    return Ending(
        cause=cause,
        exit_code=code if killed is None else None,
        signal=killed,
        detail=detail,
        started_ms=started,
        ended_ms=ended,
    )


def _cause(state: dict[str, Any], code: int, *, was_away: bool) -> tuple[Cause, str]:
    if state.get("OOMKilled"):
        # Also said if a child was killed for want of memory and the job coped with it.
        told = "the memory limit killed a part of the job"
        return ("exit", told) if code == 0 else ("memory", told)
    if was_away and code >= 128:
        return "engine", "it ended while the container engine was away"
    return "exit", str(state.get("Error") or "")


def vanished(started: Millis, now: Millis) -> Ending:
    """The ending of a run whose container somebody else removed."""
    return Ending(
        cause="engine",
        detail="the container vanished: somebody else removed it",
        started_ms=started,
        ended_ms=now,
    )


def ending_to_facts(ending: Ending) -> Facts:
    """What `ending_from_facts` reads."""
    facts = {
        "cause": str(ending.cause),
        "detail": ending.detail,
        "started_ms": str(ending.started_ms),
        "ended_ms": str(ending.ended_ms),
    }
    if ending.exit_code is not None:
        facts["exit_code"] = str(ending.exit_code)
    if ending.signal is not None:
        facts["signal"] = str(ending.signal)
    return facts


def ending_from_facts(facts: Facts) -> Ending:
    """The ending that was kept."""
    return Ending(
        cause=_as_cause(facts["cause"]),
        exit_code=int(facts["exit_code"]) if "exit_code" in facts else None,
        signal=int(facts["signal"]) if "signal" in facts else None,
        detail=facts["detail"],
        started_ms=Millis(int(facts["started_ms"])),
        ended_ms=Millis(int(facts["ended_ms"])),
    )


def _as_cause(text: str) -> Cause:
    causes: dict[str, Cause] = {
        "exit": "exit",
        "signal": "signal",
        "memory": "memory",
        "time": "time",
        "disk": "disk",
        "pids": "pids",
        "stopped": "stopped",
        "engine": "engine",
    }
    return causes[text]
