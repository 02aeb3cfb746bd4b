"""Hypothesis profiles: quick by default, ci where CI is set, night by hand. Virtual time."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, settings

from p2pnode.own_terms import CALENDARS

settings.register_profile("quick", max_examples=25, deadline=None)
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "night", max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "quick")
)


@pytest.fixture(autouse=True)
def calendars_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No jump of virtual time waits for a thread: there calendars are worked out at once."""
    if "autojump_clock" not in request.fixturenames:
        return
    in_thread = trio.to_thread.run_sync

    async def run_sync(work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if options.get("limiter") is not CALENDARS:
            return await in_thread(work, *args, **options)
        await trio.lowlevel.checkpoint()
        return work(*args)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
