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
from p2pnode.matching.timetable import (
    EVENTS_BYTES_MAX,
    HORIZON_MS,
    Timetable,
    Window,
    check_window,
)
from p2pnode.own_prices import OwnPrices
from p2pnode.own_rules import OwnRules
from p2pnode.ports import Ports
from protocol.auction import Rfq
from protocol.certificate import Certificate
from protocol.codec import Instant, Wire, decode
from protocol.errors import LocalFault
from protocol.units import Millis, MillisSpan

WINDOWS_MAX: Final = 64
CALENDARS: Final = trio.CapacityLimiter(1)
"""To read or expand a calendar may take a second: not where others wait for the node."""
LOOK_S: Final = 86_400
"""How often hours are worked out further, at least."""
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
        self._configured = windows_in(config, self._clock.now())
        raw = cabinet.get(_WINDOWS)
        self._kept = (
            WindowsRecord()
            if raw is None
            else decode(raw, WindowsRecord, size_max=RECORD_BYTES_MAX)
        )
        raw = cabinet.get(_PAUSE)
        self._pause = None if raw is None else decode(raw, PauseRecord, size_max=RECORD_BYTES_MAX)
        self._woken = trio.Event()
        self._adding = trio.Lock()
        timetable, paused = self._table(self._kept.windows, known=()), self.pause is not None
        timetable.prepare(*_near(self._clock.now()))
        provider.post(replace(self.posting, timetable=timetable, paused=paused))
        self._address_of = ports.address_of
        self.rules: Final = OwnRules(
            config.workloads,
            own=identity.certificate,
            cabinet=cabinet,
            changed=self._state_rules,
        )
        self._state_rules()
        self.prices: Final = OwnPrices(
            provider,
            config.pricing,
            floors=tuple(each.floor for each in config.availability if each.floor is not None),
            may_be=lambda money: check_money(self.windows, money),
            account=identity.certificate.root,
            market=lambda: book.open_offers(ports.clock.now()),
            cabinet=cabinet,
            clock=ports.clock,
        )
        check_money(self.windows, self.posting.money)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """End a pause that has an end when it comes, move prices that move, look ahead."""
        self.prices.refresh()
        task_status.started()
        while True:
            self._provider.post(replace(self.posting, paused=self.pause is not None))
            await self._look_ahead()
            with trio.move_on_after(self._rest_s()):
                await self._woken.wait()
            self._woken = trio.Event()
            if self.prices.is_moving:
                self.prices.refresh()

    async def _look_ahead(self) -> None:
        """Have the hours worked out that will be asked for, and those that were, aside."""
        timetable, near = self.posting.timetable, _near(self._clock.now())
        if not timetable.is_ready(*near):
            await trio.to_thread.run_sync(timetable.prepare, *near, limiter=CALENDARS)
            timetable.refresh()
            self._provider.refresh()

    def _rest_s(self) -> float:
        """Until something may change by itself."""
        pause = self.pause
        rest_s = PRICES_S if self.prices.is_moving else LOOK_S
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

    def _state_rules(self) -> None:
        self._provider.post(replace(self.posting, policy=self.rules.stated))

    def screen(self, renter: Certificate, rfq: Rfq | None) -> str | None:
        """Why we do not deal with this renter; its region is known from a request for quote."""
        return self.rules.bars(renter, self._address_of(renter.peer_id), rfq)

    def is_configured(self, window: Window) -> bool:
        """Whether config.toml has the window, and so no command removes it."""
        return window in self._configured

    async def add_window(self, window: Window) -> Window:
        """The window under its new name. Raises LocalFault if it cannot be read."""
        async with self._adding:
            if len(self._kept.windows) >= WINDOWS_MAX:
                cure = "p2pnode window remove"
                raise LocalFault(f"There are {WINDOWS_MAX} windows already.", cure)
            named = structs.replace(window, name=f"w{self._kept.next}")
            check_money((named,), self.posting.money)
            read = await read_aside(named, self._clock.now())
            # What was removed meanwhile stays so.
            windows = (*self._kept.windows, named)
            self._keep(WindowsRecord(next=self._kept.next + 1, windows=windows), known=(read,))
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

    def _table(self, kept: tuple[Window, ...], *, known: tuple[Timetable, ...]) -> Timetable:
        return Timetable((*self._configured, *kept), known=known, on_missing=self._look_soon)

    def _look_soon(self) -> None:
        self._woken.set()

    def _keep(self, record: WindowsRecord, *, known: tuple[Timetable, ...] = ()) -> None:
        timetable = self._table(record.windows, known=(self.posting.timetable, *known))
        put_record(self._cabinet, _WINDOWS, record)
        self._kept = record
        self._provider.post(replace(self.posting, timetable=timetable))
        self.prices.refresh()
        self.wake()

    def wake(self) -> None:
        """Something has changed that may move."""
        self._provider.post(replace(self.posting, paused=self.pause is not None))
        self._woken.set()


def windows_in(config: Config, now: Millis) -> tuple[Window, ...]:
    """The windows of config.toml, their files read. Raises LocalFault."""
    return tuple(
        _window_of(each, f"c{number}", now=now)
        for number, each in enumerate(config.availability, start=1)
    )


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
        money=UNSET if choice.floor is None else choice.floor.code,
    )
    try:
        check_window(window, now)
    except LocalFault as fault:
        where = f"{choice.file}: " if choice.file else ""
        raise LocalFault(f"config.toml, availability: {where}{fault.what}", fault.cure) from fault
    return window


async def read_aside(window: Window, now: Millis) -> Timetable:
    """The window alone, worked out where nothing waits for it. Raises LocalFault."""
    return await trio.to_thread.run_sync(check_window, window, now, limiter=CALENDARS)


def check_money(windows: tuple[Window, ...], money: str) -> None:
    """Raises LocalFault if a floor is in another money than this, in which the node asks."""
    for window in windows:
        named = window.money
        if window.floor_micro is not UNSET and named is not UNSET and named != money:
            raise LocalFault(
                f"window {window.name} has its floor in {named}, and this node asks in {money}.",
                f"price in {named} again, or remove the window before: "
                f"p2pnode window remove {window.name}",
            )


def _near(now: Millis) -> tuple[Millis, Millis]:
    """Hours that are asked about all the time, and a while more."""
    return now, Millis(now + HORIZON_MS + 2 * LOOK_S * 1_000)


def _read_events(path: Path) -> str:
    try:
        if path.stat().st_size > EVENTS_BYTES_MAX:
            raise LocalFault(f"{path}: over {EVENTS_BYTES_MAX} bytes.", "export a shorter calendar")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LocalFault(f"{path}: this calendar cannot be read.", f"ls -l {path}") from error
