"""What this node asks: config.toml, what its owner has set since, and how prices move by that.

What was set is written before it counts, holds across restarts, and goes to new leases only.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType, structs

from p2pnode.cabinet import RECORD_BYTES_MAX, Cabinet, put_record
from p2pnode.clock import WallClock
from p2pnode.config import Pricing
from p2pnode.matching.book import Offer
from p2pnode.matching.pricer import Line, Pricer
from p2pnode.matching.provider import Provider, Shelf
from p2pnode.matching.strategies import STRATEGY_PATTERN, Energy, PriceRule, ask_of, floor_of
from p2pnode.quantities import Money as Price
from protocol.advert import TIERS, Tier, ask_for
from protocol.codec import CurrencyCode, Instant, Money, Wire, decode
from protocol.errors import LocalFault
from protocol.gpu_class import gpu_class
from protocol.units import Micros, PublicKey

log = logging.getLogger(__name__)

_ASK: Final = "owner/ask"


REMEDY_PPM_MIN: Final = 10_000
REMEDY_PPM_MAX: Final = 1_000_000
"""As `[pricing] gold_remedy` has both."""
Remedy = Annotated[int, Meta(ge=REMEDY_PPM_MIN, le=REMEDY_PPM_MAX)]


class TierPrice(Wire, frozen=True, kw_only=True):
    """What was set for one tier."""

    tier: Tier
    ask_micro: Money | UnsetType = UNSET
    floor_micro: Money | UnsetType = UNSET


class AskRecord(Wire, frozen=True, kw_only=True):
    """All that `ask set` has changed; what is absent config.toml says."""

    set_ms: Instant
    money: CurrencyCode
    prices: Annotated[tuple[TierPrice, ...], Meta(max_length=len(TIERS))] = ()
    strategy: Annotated[str, Meta(pattern=rf"\A({STRATEGY_PATTERN})\Z")] | UnsetType = UNSET
    by_use: Literal["yes", "no"] | UnsetType = UNSET
    gold_remedy_ppm: Remedy | UnsetType = UNSET


class OwnPrices:
    """Owns the record and the pricer; posts to the provider."""

    def __init__(
        self,
        provider: Provider,
        pricing: Pricing,
        *,
        account: PublicKey,
        floors: tuple[Price, ...] = (),
        may_be: Callable[[str], None] = lambda _money: None,
        market: Callable[[], list[Offer]],
        cabinet: Cabinet,
        clock: WallClock,
    ) -> None:
        """`market` tells open offers, `account` is ours, whose offers are no rivals.

        `floors` are those of hours in config.toml; `may_be` raises LocalFault if hours keep us
        from asking in this money.
        """
        self._provider = provider
        self._pricing = pricing
        self._account = account
        self._market = market
        self._floors = floors
        self._may_be = may_be
        self._cabinet = cabinet
        self._clock = clock
        self._usual_money = provider.posting.money
        raw = cabinet.get(_ASK)
        self._record = None if raw is None else decode(raw, AskRecord, size_max=RECORD_BYTES_MAX)
        if self._record is not None and self._record.money != self._money(self._record):
            log.warning("what was set is in another money than config.toml")
            self._record = None
        self._pricer = Pricer(self._rule(), self._rivals_of)
        self.refresh()

    @property
    def record(self) -> AskRecord | None:
        """What `ask set` has changed, if anything."""
        return self._record

    @property
    def rule(self) -> PriceRule:
        """All that the owner has decided."""
        return self._pricer.rule

    @property
    def lines(self) -> tuple[Line, ...]:
        """The prices of now."""
        return self._pricer.lines

    @property
    def is_moving(self) -> bool:
        """Whether prices want to be worked out again now and then."""
        return self.rule.is_moving or self._provider.posting.timetable.is_priced

    def set(self, change: AskRecord) -> None:
        """Change what the record names, and keep the rest. Raises LocalFault."""
        old = self._record or AskRecord(set_ms=change.set_ms, money=change.money)
        if change.money != self._money(change):
            money = self._money(change)
            raise LocalFault(
                f"this node asks in {money}, not in {change.money}",
                f"p2pnode ask set '0.35 {money}/gpu-h'",
            )
        if old.prices and old.money != change.money:
            raise LocalFault(
                f"what was set before is in {old.money}, not in {change.money}",
                "p2pnode ask reset, and then set all of it",
            )
        self._may_be(change.money)
        prices = {each.tier: each for each in old.prices}
        for each in change.prices:
            before = prices.get(each.tier, TierPrice(tier=each.tier))
            prices[each.tier] = TierPrice(
                tier=each.tier,
                ask_micro=before.ask_micro if each.ask_micro is UNSET else each.ask_micro,
                floor_micro=before.floor_micro if each.floor_micro is UNSET else each.floor_micro,
            )
        self._keep(
            structs.replace(
                change,
                prices=tuple(prices[tier] for tier in TIERS if tier in prices),
                strategy=old.strategy if change.strategy is UNSET else change.strategy,
                by_use=old.by_use if change.by_use is UNSET else change.by_use,
                gold_remedy_ppm=(
                    old.gold_remedy_ppm
                    if change.gold_remedy_ppm is UNSET
                    else change.gold_remedy_ppm
                ),
            )
        )

    def reset(self) -> None:
        """As config.toml says again. Raises LocalFault."""
        self._may_be(self._money(None))
        self._cabinet.remove(_ASK)
        self._begin(None)

    def refresh(self) -> None:
        """Work the prices out for now, and offer at them."""
        posting = self._provider.posting
        groups = self._provider.use
        asks = self._pricer.work_out(groups, timetable=posting.timetable, now=self._clock.now())
        silver = next((asks[group].get("silver") for group in groups if group in asks), None)
        self._provider.post(
            replace(
                posting,
                ask=ask_of(self.rule, "silver") if silver is None else silver,
                asks=asks,
                floors={tier: floor_of(self.rule, tier) for tier in TIERS},
                money=self._money(self._record),
                remedy_ppm=self._remedy_ppm,
            )
        )

    @property
    def _remedy_ppm(self) -> int:
        said = UNSET if self._record is None else self._record.gold_remedy_ppm
        return self._pricing.gold_remedy if said is UNSET else said

    def _keep(self, record: AskRecord) -> None:
        rule = self._rule(record)
        if rule.strategy == "cost-plus" and rule.energy is None:
            raise LocalFault(
                "cost-plus needs the cost.", "write energy and watts into [pricing] of config.toml"
            )
        if rule.percent is not None and ask_of(rule, "silver") is None:
            raise LocalFault(
                f"{rule.strategy} needs a floor.", "p2pnode ask set --floor '0.30 USD/gpu-h'"
            )
        if rule.percent is None and rule.energy is None and ask_of(rule, "silver") is None:
            raise LocalFault(
                "nothing is offered without a price for silver", "p2pnode ask set '0.35 USD/gpu-h'"
            )
        put_record(self._cabinet, _ASK, record)
        self._begin(record)

    def _begin(self, record: AskRecord | None) -> None:
        self._record = record
        self._pricer = Pricer(self._rule(record), self._rivals_of)
        self.refresh()

    def _money(self, record: AskRecord | None) -> str:
        """Of config.toml; where that names none, of the record; else as the network has it."""
        pricing = self._pricing
        named = (
            *(pricing.ask, pricing.gold_ask, pricing.bronze_ask),
            *(pricing.floor, pricing.gold_floor, pricing.bronze_floor),
            pricing.energy,
            *self._floors,
        )
        for price in named:
            if price is not None:
                return price.code
        return self._usual_money if record is None else record.money

    def _rule(self, record: AskRecord | None = None) -> PriceRule:
        pricing, record = self._pricing, record or self._record
        named: dict[Tier, tuple[Price | None, Price | None]] = {
            "gold": (pricing.gold_ask, pricing.gold_floor),
            "silver": (pricing.ask, pricing.floor),
            "bronze": (pricing.bronze_ask, pricing.bronze_floor),
        }
        asks = {tier: ask.micros for tier, (ask, _) in named.items() if ask is not None}
        floors = {tier: floor.micros for tier, (_, floor) in named.items() if floor is not None}
        for each in () if record is None else record.prices:
            if each.ask_micro is not UNSET:
                asks[each.tier] = each.ask_micro
            if each.floor_micro is not UNSET:
                floors[each.tier] = each.floor_micro
        strategy = UNSET if record is None else record.strategy
        by_use = UNSET if record is None else record.by_use
        return PriceRule(
            asks=asks,
            floors=floors,
            strategy=pricing.strategy if strategy is UNSET else strategy,
            step_ppm=pricing.step,
            step_ms=pricing.step_every,
            by_use=pricing.by_use if by_use is UNSET else by_use == "yes",
            energy=energy_of(pricing),
        )

    def _rivals_of(self, group: bytes, tier: Tier) -> list[Micros]:
        shelf = next(shelf for shelf in self._provider.shelves if shelf.group == group)
        lowest: dict[PublicKey, Micros] = {}
        for offer in self._market():
            ask = ask_for(offer.advert, tier)
            if ask is not None and self._is_rival(offer, shelf):
                root = offer.certificate.root
                # One of each account, else who has many peers says what the market is.
                lowest[root] = min(Micros(ask), lowest.get(root, Micros(ask)))
        return list(lowest.values())

    def _is_rival(self, offer: Offer, shelf: Shelf) -> bool:
        advert = offer.advert
        return (
            offer.certificate.root != self._account
            and advert.gpu == shelf.source
            and advert.gpu_class == gpu_class(shelf.vram)
            and advert.money == self._provider.posting.money
        )


def energy_of(pricing: Pricing) -> Energy | None:
    """What config.toml says of the cost of energy, if it says all of it."""
    if pricing.energy is None or pricing.watts is None:
        return None
    return Energy(
        micro_per_kwh=pricing.energy.micros, watts=pricing.watts, margin_ppm=pricing.margin
    )
