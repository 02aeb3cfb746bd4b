"""What a command that ran a job ends with. The list is in README.md."""

from typing import Any, Final

EXIT_NO_MATCH: Final = 123
EXIT_TIME: Final = 124
EXIT_OWNER: Final = 125
ENDED: Final = {"done", "failed"}
"""A job's states in which nothing more happens."""


def exit_code(job: dict[str, Any]) -> int:
    """The program's own exit code, or one of ours for what it cannot tell."""
    outcome = job["outcome"]
    if job["primary"] and job["primary"]["exit_code"] is not None:
        return int(job["primary"]["exit_code"])
    if outcome is None and job["primary"] and job["why"] == "time":
        return EXIT_TIME
    if outcome is None:
        return EXIT_NO_MATCH if job["why"].startswith("no match") else EXIT_OWNER
    if outcome["cause"] == "exit":
        return int(outcome["exit_code"])
    if outcome["cause"] == "time":
        return EXIT_TIME
    if outcome["cause"] == "engine":
        return EXIT_OWNER
    return 128 + (outcome["signal"] or 9)
