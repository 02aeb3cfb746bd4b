"""The decisions of a running node's owner, as API documents."""

import re
from collections.abc import Callable
from functools import partial
from typing import Literal

import trio
from msgspec import UNSET

from p2pnode.api.owner_documents import (
    AskChange,
    AskLineDocument,
    AskSetDocument,
    AskShowDocument,
    AskSimulateDocument,
    OpeningDocument,
    OwnUseDocument,
    PauseDocument,
    PauseOrder,
    SimulatedAskDocument,
    UseOrder,
    WindowAddDocument,
    WindowDocument,
    WindowExportDocument,
    WindowListDocument,
    WindowOrder,
    WindowRemoveDocument,
    WindowTestDocument,
    WindowTestOrder,
)
from p2pnode.matching.replay import replay
from p2pnode.matching.strategies import STRATEGY_PATTERN, share_of
from p2pnode.matching.timetable import Window, joined
from p2pnode.node import Node
from p2pnode.own_prices import REMEDY_PPM_MAX, REMEDY_PPM_MIN, AskRecord, TierPrice
from p2pnode.own_terms import CALENDARS, PauseRecord, read_aside
from protocol.errors import LocalFault
from protocol.limits import INT_MAX
from protocol.units import Micros, Millis, MillisSpan

PRICES_MAX = 32
TESTED_MS_MAX = MillisSpan(400 * 86_400_000)


class OwnerViews:
    """What the API does with the owner's decisions."""

    def __init__(self, node: Node, offered: Callable[[], tuple[str, ...]]) -> None:
        """`offered` tells what the node offers, in words."""
        self._terms = node.terms
        self._clock = node.ports.clock
        self._provider = node.provider
        self._use = node.use
        self._journal = node.desk.journal
        self._offered = offered

    def windows(self) -> WindowListDocument:
        """All windows, and whether they are open now."""
        posting, now = self._terms.posting, self._clock.now()
        until = posting.timetable.open_until(now)
        return WindowListDocument(
            items=tuple(map(self._window, self._terms.windows)),
            money=posting.money,
            open_now=posting.timetable.covers(now, Millis(now + 1), now=now),
            open_until_ms=until,
        )

    async def add_window(self, order: WindowOrder) -> WindowAddDocument:
        """Keep one more. Raises LocalFault."""
        window = await self._terms.add_window(self._read(order))
        return WindowAddDocument(window=self._window(window))

    def remove_window(self, name: str) -> WindowRemoveDocument:
        """Forget it. Raises LocalFault."""
        self._terms.remove_window(name)
        return WindowRemoveDocument(name=name)

    async def test_windows(self, order: WindowTestOrder) -> WindowTestDocument:
        """The real times, of all windows or of one that is not there yet. Raises LocalFault."""
        if not 0 < order.span_ms <= TESTED_MS_MAX:
            raise LocalFault(
                "A test looks at most 400 days ahead.", "p2pnode window test --next 3d"
            )
        start = self._clock.now()
        end = Millis(start + order.span_ms)
        timetable = self._terms.posting.timetable
        if order.window is not None:
            timetable = await read_aside(self._read(order.window), start)
        await trio.to_thread.run_sync(timetable.prepare, start, end, limiter=CALENDARS)
        return WindowTestDocument(
            start_ms=start,
            end_ms=end,
            items=tuple(
                OpeningDocument(start_ms=opens, end_ms=closes)
                for opens, closes in timetable.spans(start, end)
            ),
        )

    async def export_windows(self) -> WindowExportDocument:
        """All windows as one calendar."""
        windows = self._terms.windows
        events = await trio.to_thread.run_sync(joined, windows, limiter=CALENDARS)
        return WindowExportDocument(events=events)

    def ask(self) -> AskShowDocument:
        """Every price and where it comes from, and when it holds."""
        posting, now, prices = self._terms.posting, self._clock.now(), self._terms.prices
        pause = pause_document(self._terms.pause)
        models = {shelf.group: shelf.model for shelf in self._provider.shelves}
        energy = prices.rule.energy
        return AskShowDocument(
            micro_per_gpu_hour=posting.ask,
            money=posting.money,
            offered=self._offered(),
            items=tuple(
                AskLineDocument(
                    group=line.group.hex(),
                    model=models[line.group],
                    tier=line.tier,
                    ask_micro=line.ask,
                    floor_micro=line.floor,
                    rivals=line.rivals,
                    why=line.why,
                )
                for line in prices.lines
                if line.group in models and line.tier in posting.tiers
            ),
            strategy=prices.rule.strategy,
            by_use=prices.rule.by_use,
            gold_remedy_ppm=posting.remedy_ppm if "gold" in posting.tiers else None,
            origin="config.toml" if prices.record is None else "ask set",
            set_ms=None if prices.record is None else prices.record.set_ms,
            paused=pause.paused,
            paused_until_ms=pause.until_ms,
            open_now=posting.timetable.covers(now, Millis(now + 1), now=now),
            open_until_ms=posting.timetable.open_until(now),
            energy_micro_per_kwh=None if energy is None else energy.micro_per_kwh,
            watts=None if energy is None else energy.watts,
            use_mode=self._use.mode,
            own_use=tuple(
                OwnUseDocument(
                    unit=unit.hex(), load_ppm=state.load_ppm, since_ms=state.used_since_ms
                )
                for unit, state in self._use.detector.states.items()
            ),
            kept=len(posting.in_use),
        )

    def set_ask(self, change: AskChange) -> AskSetDocument:
        """Change prices, also for the time after a restart. Raises LocalFault."""
        prices = (change.micro_per_gpu_hour, change.floor_micro)
        if any(price is not None and not 0 <= price <= INT_MAX for price in prices):
            raise LocalFault("A price cannot be negative.", "p2pnode ask set '0.35 USD/gpu-h'")
        strategy = change.strategy
        if strategy is not None and not re.fullmatch(STRATEGY_PATTERN, strategy):
            raise LocalFault(
                f"{strategy[:40]!a} is no strategy.",
                "fixed, cost-plus, or market-p1 to market-p99",
            )
        remedy = change.gold_remedy_ppm
        if remedy is not None and not REMEDY_PPM_MIN <= remedy <= REMEDY_PPM_MAX:
            raise LocalFault("A remedy is from 1% to 100%.", "p2pnode ask set --remedy 10%")
        if remedy is not None and "gold" not in self._terms.posting.tiers:
            raise LocalFault(
                "This node offers no gold, which alone has a remedy.",
                'tiers = ["gold", "silver", "bronze"] under [pricing] of config.toml',
            )
        ask, floor = (UNSET if price is None else Micros(price) for price in prices)
        given = TierPrice(tier=change.tier, ask_micro=ask, floor_micro=floor)
        by_use: Literal["yes", "no"] = "yes" if change.by_use else "no"
        self._terms.prices.set(
            AskRecord(
                set_ms=self._clock.now(),
                money=change.money or self._terms.posting.money,
                prices=(given,) if ask is not UNSET or floor is not UNSET else (),
                strategy=UNSET if strategy is None else strategy,
                by_use=UNSET if change.by_use is None else by_use,
                gold_remedy_ppm=UNSET if remedy is None else remedy,
            )
        )
        self._terms.wake()
        return AskSetDocument()

    def reset_ask(self) -> AskSetDocument:
        """As config.toml says again."""
        self._terms.prices.reset()
        self._terms.wake()
        return AskSetDocument()

    def simulate(self, floors: list[int], since_ms: int) -> AskSimulateDocument:
        """What other prices would have come to, by the requests that this node saw."""
        if len(floors) > PRICES_MAX or any(not 0 <= floor <= INT_MAX for floor in floors):
            raise LocalFault(
                f"Up to {PRICES_MAX} prices, none negative.", "--floor '0.28 USD/gpu-h'"
            )
        now, posting = self._clock.now(), self._terms.posting
        notes = self._journal.since(since_ms, now)
        units = {shelf.group: len(shelf.units) for shelf in self._provider.shelves}
        began = max(since_ms, min((note.seen_ms for note in notes), default=now))

        def row(silver: int | None) -> SimulatedAskDocument:
            found = replay(
                notes,
                units,
                price_of=None if silver is None else partial(share_of, Micros(silver)),
                money=posting.money,
                span_ms=MillisSpan(max(1, now - began)),
                until=now,
                energy=self._terms.prices.rule.energy,
            )
            return SimulatedAskDocument(
                silver_micro=silver,
                asked=found.asked,
                leases=found.leases,
                fill_ppm=found.fill_ppm,
                use_ppm=found.use_ppm,
                gross_micro=found.gross,
                energy_micro=found.energy,
                net_micro=found.net,
            )

        return AskSimulateDocument(
            since_ms=since_ms,
            until_ms=now,
            money=posting.money,
            seen=len(notes),
            items=tuple(row(silver) for silver in (None, *floors)),
        )

    def set_use(self, order: UseOrder) -> AskSetDocument:
        """Keep GPUs in own use from renters, or not, or all of them."""
        self._use.set_mode(order.mode)
        return AskSetDocument()

    def pause(self, order: PauseOrder) -> PauseDocument:
        """Offer nothing from now on. Raises LocalFault."""
        if order.for_ms is not None and order.for_ms <= 0:
            raise LocalFault("A pause lasts longer than nothing.", "p2pnode ask pause --for 2h")
        span = None if order.for_ms is None else MillisSpan(order.for_ms)
        return pause_document(self._terms.pause_for(span))

    def resume(self) -> PauseDocument:
        """Offer again."""
        self._terms.resume()
        return pause_document(self._terms.pause)

    def _read(self, order: WindowOrder) -> Window:
        money = self._terms.posting.money
        if order.floor_micro is not None and order.money != money:
            raise LocalFault(
                f"this node asks in {money}, not in {order.money}", f"--floor '0.30 {money}/gpu-h'"
            )
        if bool(order.hours) == bool(order.events):
            raise LocalFault(
                "A window has either hours or a calendar.", "p2pnode window add --help"
            )
        return Window(
            name="new",
            hours=order.hours,
            events=order.events,
            zone=order.zone,
            excepted=order.excepted,
            kind=order.kind,
            floor_micro=UNSET if order.floor_micro is None else Micros(order.floor_micro),
            money=UNSET if order.floor_micro is None or order.money is None else order.money,
        )

    def _window(self, window: Window) -> WindowDocument:
        return WindowDocument(
            name=window.name,
            hours=window.hours,
            zone=window.zone,
            excepted=window.excepted,
            kind=window.kind,
            floor_micro=None if window.floor_micro is UNSET else window.floor_micro,
            origin="config.toml" if self._terms.is_configured(window) else "window add",
        )


def pause_document(pause: PauseRecord | None) -> PauseDocument:
    """A pause, or that there is none."""
    if pause is None:
        return PauseDocument(paused=False, since_ms=None, until_ms=None)
    until = None if pause.until_ms is UNSET else pause.until_ms
    return PauseDocument(paused=True, since_ms=pause.since_ms, until_ms=until)
