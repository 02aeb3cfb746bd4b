"""What the owner of this node has decided: config.toml, and what it has said to the node since.

What was said is written before it counts, holds across restarts, and goes to new leases only.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

import trio
from msgspec import UNSET, UnsetType, structs

from p2pnode.cabinet import RECORD_BYTES_MAX, put_record
from p2pnode.config import Availability, Config
from p2pnode.identity import Identity
from p2pnode.matching.book import Book
from p2pnode.matching.provider import Posting, Provider
from p2pnode.matching.timetable import EVENTS_BYTES_MAX, Timetable, Window, check_window
from p2pnode.own_prices import OwnPrices
from p2pnode.own_rules import OwnRules
from p2pnode.ports import Ports
from protocol.auction import Rfq
from protocol.certificate import Certificate
from protocol.codec import Instant, Wire, decode
from protocol.errors import LocalFault
from protocol.units import Millis, MillisSpan

WINDOWS_MAX: Final = 64
PRICES_S: Final = 10
"""Prices that move by themselves are looked at so often; how often they move is another thing."""

_WINDOWS: Final = "owner/windows"
_PAUSE: Final = "owner/pause"


class WindowsRecord(Wire, frozen=True, kw_only=True):
    """The windows that commands have added."""

    next: int = 1
    """Of the next name; none is used twice."""
    windows: tuple[Window, ...] = ()


class PauseRecord(Wire, frozen=True, kw_only=True):
    """The owner has paused the node; without an end, until it resumes it."""

    since_ms: Instant
    until_ms: Instant | UnsetType = UNSET


class OwnTerms:
    """Owns the records; makes the posting that the provider offers on."""

    def __init__(
        self,
        provider: Provider,
        book: Book,
        identity: Identity,
        config: Config,
        *,
        ports: Ports,
    ) -> None:
        """The provider's first posting is what config.toml says without hours and prices.

        Raises LocalFault.
        """
        self._cabinet = cabinet = ports.cabinet
        self._provider = provider
        self._clock = ports.clock
        self._configured = tuple(
            _window_of(each, f"c{number}", now=self._clock.now())
            for number, each in enumerate(config.availability, start=1)
        )
        raw = cabinet.get(_WINDOWS)
        self._kept = (
            WindowsRecord()
            if raw is None
            else decode(raw, WindowsRecord, size_max=RECORD_BYTES_MAX)
        )
        raw = cabinet.get(_PAUSE)
        self._pause = None if raw is None else decode(raw, PauseRecord, size_max=RECORD_BYTES_MAX)
        self._woken = trio.Event()
        timetable, paused = Timetable(self.windows), self.pause is not None
        provider.post(replace(self.posting, timetable=timetable, paused=paused))
        self._address_of = ports.address_of
        self.rules: Final = OwnRules(config.workloads, own=identity.certificate, cabinet=cabinet)
        self.prices: Final = OwnPrices(
            provider,
            config.pricing,
            account=identity.certificate.root,
            market=lambda: book.open_offers(ports.clock.now()),
            cabinet=cabinet,
            clock=ports.clock,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """End a pause that has an end when it comes, and move prices that move."""
        self.prices.refresh()
        task_status.started()
        while True:
            self._provider.post(replace(self.posting, paused=self.pause is not None))
            with trio.move_on_after(self._rest_s()):
                await self._woken.wait()
            self._woken = trio.Event()
            if self.prices.is_moving:
                self.prices.refresh()

    def _rest_s(self) -> float:
        """Until something may change by itself."""
        pause = self.pause
        rest_s = PRICES_S if self.prices.is_moving else float("inf")
        if pause is None or pause.until_ms is UNSET:
            return rest_s
        return min(rest_s, max(0, pause.until_ms - self._clock.now()) / 1_000)

    @property
    def posting(self) -> Posting:
        """What is offered now."""
        return self._provider.posting

    @property
    def windows(self) -> tuple[Window, ...]:
        """Those of config.toml, then those that commands have added."""
        return (*self._configured, *self._kept.windows)

    @property
    def pause(self) -> PauseRecord | None:
        """The pause that holds now."""
        pause = self._pause
        if pause is not None and pause.until_ms is not UNSET:
            return pause if self._clock.now() < pause.until_ms else None
        return pause

    def screen(self, renter: Certificate, rfq: Rfq | None) -> str | None:
        """Why we do not deal with this renter; its region is known from a request for quote."""
        return self.rules.bars(renter, self._address_of(renter.peer_id), rfq)

    def is_configured(self, window: Window) -> bool:
        """Whether config.toml has the window, and so no command removes it."""
        return window in self._configured

    def add_window(self, window: Window) -> Window:
        """The window under its new name. Raises LocalFault if it cannot be read."""
        if len(self._kept.windows) >= WINDOWS_MAX:
            raise LocalFault(f"There are {WINDOWS_MAX} windows already.", "p2pnode window remove")
        named = structs.replace(window, name=f"w{self._kept.next}")
        check_window(named, self._clock.now())
        self._keep(WindowsRecord(next=self._kept.next + 1, windows=(*self._kept.windows, named)))
        return named

    def remove_window(self, name: str) -> None:
        """Raises LocalFault if no command has added a window of that name."""
        left = tuple(each for each in self._kept.windows if each.name != name)
        if len(left) == len(self._kept.windows):
            if any(each.name == name for each in self._configured):
                raise LocalFault(f"{name} is from config.toml.", "take it out there, and restart")
            raise LocalFault(f"No window is called {name[:40]!a}.", "p2pnode window list")
        self._keep(WindowsRecord(next=self._kept.next, windows=left))

    def pause_for(self, span: MillisSpan | None) -> PauseRecord:
        """Offer nothing from now on; None: until `resume`."""
        now = self._clock.now()
        until = UNSET if span is None else Millis(now + span)
        pause = PauseRecord(since_ms=now, until_ms=until)
        put_record(self._cabinet, _PAUSE, pause)
        self._pause = pause
        self.wake()
        return pause

    def resume(self) -> None:
        """Offer again."""
        self._cabinet.remove(_PAUSE)
        self._pause = None
        self.wake()

    def _keep(self, record: WindowsRecord) -> None:
        timetable = Timetable((*self._configured, *record.windows))
        put_record(self._cabinet, _WINDOWS, record)
        self._kept = record
        self._provider.post(replace(self.posting, timetable=timetable))
        self.prices.refresh()
        self.wake()

    def wake(self) -> None:
        """Something has changed that may move."""
        self._provider.post(replace(self.posting, paused=self.pause is not None))
        self._woken.set()


def _window_of(choice: Availability, name: str, *, now: Millis) -> Window:
    """The window that a table of config.toml describes. Raises LocalFault."""
    window = Window(
        name=name,
        hours=choice.hours,
        events=_read_events(Path(choice.file)) if choice.file else "",
        zone=choice.tz,
        excepted=choice.excepted,
        kind="closed" if choice.closed else "open",
        floor_micro=UNSET if choice.floor is None else choice.floor.micros,
    )
    check_window(window, now)
    return window


def _read_events(path: Path) -> str:
    try:
        if path.stat().st_size > EVENTS_BYTES_MAX:
            raise LocalFault(f"{path}: over {EVENTS_BYTES_MAX} bytes.", "export a shorter calendar")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LocalFault(f"{path}: this calendar cannot be read.", f"ls -l {path}") from error
