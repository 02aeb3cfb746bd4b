"""What the owner of a node has chosen, from `config.toml`. Alone in reading the environment.

Kept light, since the command line loads it: no keys, no network, no scheduler.
"""

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from p2pnode.config_keys import ARRAYS, KEYS, TABLES, line_of, nearest_key
from p2pnode.quantities import Exchange, Money
from protocol.errors import LocalFault
from protocol.units import Mebibytes, MillisSpan

Role = Literal["owner", "renter"]
Tier = Literal["gold", "silver", "bronze"]
EngineChoice = Literal["auto", "process", "docker"]
GossipChoice = Literal["auto", "on", "off"]
PrimaryUse = Literal["never", "first", "only", "fallback"]


class Network(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[network]`: where the node listens and whom it calls first."""

    listen: tuple[str, ...] = ("/ip4/0.0.0.0/tcp/4001",)
    announce: tuple[str, ...] = ()
    """What others are told instead of the bound addresses; empty: the bound ones."""
    bootstrap: tuple[str, ...] = ()
    mdns: bool = True
    """Whether peers are looked for on the local network, and may find us there."""
    region: str = "ZZ"
    """ISO 3166 country; ZZ is unknown."""
    heartbeat: MillisSpan = MillisSpan(30_000)
    """From one advert to the next."""
    gossip: GossipChoice = "auto"
    """Whether the node is part of the gossip meshes; auto: unless it only rents."""
    down: int | None = None
    """Kilobits per second that jobs may count on; None: adverts do not say."""
    up: int | None = None
    witness: bool = True
    """Whether the node cosigns leases of others and looks after them when it is asked to."""


class Pricing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[pricing]`: what the owner asks, and for which leases."""

    ask: Money | None = None
    """For one GPU and one hour, as silver; None: no price is posted."""
    floor: Money | None = None
    """Least silver price; None: what strategy and ask say."""
    gold_ask: Money | None = None
    """None: a share of the silver one, as for those below."""
    gold_floor: Money | None = None
    gold_remedy: int = 100_000
    """Millionths of a gold lease's whole price, let off if our host fails its job."""
    bronze_ask: Money | None = None
    bronze_floor: Money | None = None
    strategy: str = "fixed"
    step: int = 50_000
    """Millionths by which a price moves at most at once, if it moves by itself."""
    step_every: MillisSpan = MillisSpan(600_000)
    """How often at most."""
    surcharge: bool = True
    """Whether jobs that leave pieces which few can use pay for it; only where GPUs are alike."""
    by_use: bool = False
    """Whether use moves prices."""
    energy: Money | None = None
    """For one kilowatt-hour."""
    watts: int | None = None
    """What one GPU takes with its part of the host."""
    margin: int = 0
    """Millionths of the cost that `cost-plus` adds."""
    min_lease: MillisSpan = MillisSpan(60_000)
    max_lease: MillisSpan = MillisSpan(7 * 86_400_000)
    period: MillisSpan = MillisSpan(60_000)
    """What is metered and paid at a time."""
    billing: MillisSpan = MillisSpan(86_400_000)
    """How long a renter may owe before it is asked to pay."""
    newcomer_credit: Money | None = None
    """What a renter without credit may owe; None: the price of one billing period."""
    payout: str = ""
    """How we are paid, told to renters who owe us; empty: it is asked of us otherwise."""
    tiers: tuple[Tier, ...] = ("silver", "bronze")
    """Best first, as adverts list them."""
    rails: tuple[str, ...] = ()
    """Keys of payment rails whose holds we take for money."""


class Availability(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[availability]]`: times at which the node is open; without such a table, always."""

    hours: str = ""
    """In the short form, such as `22:00-06:00 daily`."""
    file: str = ""
    """In place of hours, a calendar by RFC 5545."""
    tz: str = "UTC"
    excepted: tuple[str, ...] = msgspec.field(default=(), name="except")
    """Dates on which the hours do not begin."""
    closed: bool = False
    """Whether these are times at which it is closed; they go before others."""
    floor: Money | None = None
    """Least price while they are open, in place of other floors."""


class SimulatedGpu(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[gpu.simulated]]`: `count` alike GPUs that do not exist, for test networks."""

    model: str
    vram: Mebibytes
    """Of each."""
    count: int = 1
    driver: str = ""
    """The version that is claimed; empty: none."""
    compute: str = ""
    """CUDA compute capability, as "8.9"; empty: none."""


class Gpu(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[gpu]`: what is offered."""

    simulated: tuple[SimulatedGpu, ...] = ()
    yield_to_me: bool = True
    """Whether a GPU that its owner uses is kept from strangers."""
    used_above: int = 200_000
    """Load of others than our jobs, in millionths, above which it is used."""
    used_after: MillisSpan = MillisSpan(10_000)
    """For how long it must be."""
    idle_after: MillisSpan = MillisSpan(60_000)
    """How long below half of it the use is over."""


class Workloads(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[workloads]`: how jobs are run."""

    engine: EngineChoice = "auto"
    docker_socket: str = "/var/run/docker.sock"
    allow_images: tuple[str, ...] = ()
    """By digest or repository; where there are any, nothing else is run."""
    deny_images: tuple[str, ...] = ()
    allow_renters: tuple[str, ...] = ()
    """By feed or account."""
    deny_renters: tuple[str, ...] = ()
    allow_regions: tuple[str, ...] = ()
    """Those that renters say they are in."""
    deny_regions: tuple[str, ...] = ()
    allow_networks: tuple[str, ...] = ()
    """From which renters connect."""
    deny_networks: tuple[str, ...] = ()


class Renting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[renting]`: how jobs of ours are looked after."""

    lost_after: MillisSpan = MillisSpan(15_000)
    """An owner that cannot be reached for this long loses the job to another one."""
    witnesses: tuple[str, ...] = ()
    """Feed keys whose cosignatures we want before we accept a lease; empty: none."""
    quorum: int = 0
    """Of how many of them; 0: more than half."""
    rates: tuple[Exchange, ...] = ()
    """At which offers in other money are taken; without, they match nothing."""


class Primary(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[primary]`: a place of our own that can run jobs besides the market."""

    template: str = ""
    """How it is spoken to: dstack, kubernetes, skypilot, or the path of a file; empty: none."""
    use: PrimaryUse = "never"
    """For jobs that do not say."""


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that an owner can choose; the defaults are what an empty file means."""

    schema: Literal[1] = 1
    name: str = "node"
    roles: tuple[Role, ...] = ("owner", "renter")
    network: Network = Network()
    pricing: Pricing = Pricing()
    availability: tuple[Availability, ...] = ()
    gpu: Gpu = Gpu()
    workloads: Workloads = Workloads()
    renting: Renting = Renting()
    primary: Primary = Primary()


DEFAULTS: Final = Config()


def load_config(path: Path) -> Config:
    """The choices in this file and in the environment; a missing file is an empty one.

    Raises LocalFault as `read_config` does, or if the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except UnicodeDecodeError as error:
        raise LocalFault(f"{path}: this is not text in UTF-8.", "save it as UTF-8") from error
    except OSError as error:
        raise LocalFault(f"{path}: cannot be read: {error.strerror}.", f"ls -l {path}") from error
    return read_config(text, origin=str(path), variables=os.environ)


def home_variable() -> Path | None:
    """The directory that P2PNODE_HOME names, if any."""
    folder = os.environ.get("P2PNODE_HOME")
    return Path(folder) if folder else None


def read_config(text: str, *, origin: str, variables: Mapping[str, str]) -> Config:
    """The choices in this text and in variables P2PNODE_SECTION__KEY, which go first.

    A list in a variable has commas between its items.
    Raises LocalFault that names `origin` and line, or the variable; and the key.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_fault(text, origin, str(error)) from error
    overridden = _override(tables, variables)

    def where(key: str) -> str:
        return overridden.get(key) or f"{origin}:{line_of(text, key)}"

    chosen = _read_table(tables, "", where)
    config = msgspec.convert(chosen, Config)
    _check_owner(config, where)
    if config.pricing.min_lease > config.pricing.max_lease:
        key = "min_lease" if "min_lease" in chosen["pricing"] else "max_lease"
        raise LocalFault(
            f"{where(f'pricing.{key}')}: pricing.min_lease is longer than pricing.max_lease.",
            'write for example min_lease = "1m" and max_lease = "7d"',
        )
    return config


def _check_owner(config: Config, where: "Where") -> None:
    """What the owner's choices need of each other. Raises LocalFault."""
    for number, window in enumerate(config.availability):
        if bool(window.hours) == bool(window.file):
            raise LocalFault(
                f"{where(f'availability[{number}]')}: a window has either hours or a file.",
                f"write for example hours = {KEYS['availability.hours'].example}",
            )
    pricing = config.pricing
    prices = {
        f"pricing.{name}": price
        for name in pricing.__struct_fields__
        if isinstance(price := getattr(pricing, name), Money) and name != "newcomer_credit"
    }
    for number, window in enumerate(config.availability):
        if window.floor is not None:
            prices[f"availability[{number}].floor"] = window.floor
    for key, price in prices.items():
        first, money = next(iter(prices.items()))
        if price.code != money.code:
            what = f"{where(key)}: {key} is in {price.code}, and {first} in {money.code}."
            raise LocalFault(what, "one node asks in one money")
    if pricing.strategy == "cost-plus" and None in {pricing.energy, pricing.watts}:
        raise LocalFault(
            f"{where('pricing.strategy')}: cost-plus needs the cost.",
            'write for example energy = "0.30 USD/kWh" and watts = 400',
        )
    if pricing.strategy.startswith("market") and pricing.ask is pricing.floor is None:
        raise LocalFault(
            f"{where('pricing.strategy')}: {pricing.strategy} needs a floor.",
            f"write for example floor = {KEYS['pricing.floor'].example}",
        )


def _override(tables: dict[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
    """Put the variables into the tables; the keys that came so, each with its variable."""
    overridden = {}
    for name, text in sorted(variables.items()):
        key = name.removeprefix("P2PNODE_").lower().replace("__", ".")
        # Variables of other uses, such as P2PNODE_HOME, have no section.
        if not name.startswith("P2PNODE_") or (key not in KEYS and "." not in key):
            continue
        section, _, leaf = key.rpartition(".")
        if section in ARRAYS or key in ARRAYS:
            raise LocalFault(f"{name}: this is set in config.toml only.", f"unset {name}")
        if key not in KEYS:
            raise _unknown(name, key)
        table = tables.setdefault(section, {}) if section else tables
        if isinstance(table, dict):
            table[leaf] = _value_in_variable(key, text)
            overridden[key] = name
    return overridden


def _value_in_variable(key: str, text: str) -> object:
    """The text as the kind of value that the key has in TOML."""
    example = _example_of(key)
    if isinstance(example, list):
        return [item.strip() for item in text.split(",")] if text else []
    if isinstance(example, bool):
        return {"true": True, "false": False}.get(text, text)
    if isinstance(example, int) and re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    return text


def _example_of(key: str) -> object:
    return tomllib.loads(f"example = {KEYS[key].example}")["example"]


Where = Callable[[str], str]
"""File and line, or the variable, in which a key is set."""


def _read_table(table: Mapping[str, object], name: str, where: Where) -> dict[str, Any]:
    at = f"{name}." if name else ""
    return {leaf: _read_value(f"{at}{leaf}", value, where) for leaf, value in table.items()}


def _read_value(key: str, value: object, where: Where) -> object:
    plain = re.sub(r"\[[0-9]+\]", "", key)
    if plain in TABLES:
        return _read_section(key, plain, value, where)
    if plain not in KEYS:
        raise _unknown(where(key), plain)
    try:
        return KEYS[plain].read(value)
    except ValueError as error:
        what = f"{plain} is {_shown(value)}, not {KEYS[plain].wanted}."
        raise LocalFault(f"{where(key)}: {what}", _cure(where(key), plain)) from error
    except LocalFault as fault:
        what = f"{plain}: {fault.what}"
        raise LocalFault(f"{where(key)}: {what}", _cure(where(key), plain)) from fault


def _read_section(key: str, plain: str, value: object, where: Where) -> object:
    if plain in ARRAYS and key == plain and isinstance(value, list):
        return [_read_value(f"{key}[{i}]", item, where) for i, item in enumerate(value)]
    if not isinstance(value, dict) or (plain in ARRAYS and key == plain):
        header = f"[[{plain}]]" if plain in ARRAYS else f"[{plain}]"
        raise LocalFault(f"{where(key)}: {plain} is a table.", f"write {header} on its own line")
    for needed in ARRAYS.get(plain, ()):
        if needed not in value:
            raise LocalFault(
                f"{where(key)}: {plain}.{needed} is missing.",
                _cure(where(key), f"{plain}.{needed}"),
            )
    return _read_table(value, key, where)


def _unknown(where: str, key: str) -> LocalFault:
    if nearest := nearest_key(key):
        what = f'{where}: unknown key {_shown(key)}; did you mean "{nearest}"?'
        return LocalFault(what, "correct it or take it out")
    return LocalFault(f"{where}: unknown key {_shown(key)}.", "take it out")


def _cure(where: str, key: str) -> str:
    """A right value, in the form that suits the place where the wrong one stands."""
    if not where.startswith("P2PNODE_"):
        return f"write for example {key.rpartition('.')[2]} = {KEYS[key].example}"
    example = _example_of(key)
    return f"{where}={','.join(example)}" if isinstance(example, list) else f"{where}={example}"


def _syntax_fault(text: str, origin: str, message: str) -> LocalFault:
    at = re.fullmatch(r"(.*) \(at (?:line ([0-9]+), column [0-9]+|end of document)\)", message)
    what = at[1] if at else message
    line = int(at[2]) if at and at[2] else max(1, len(text.splitlines()))
    return LocalFault(f"{origin}:{line}: this is not TOML: {what}.", 'write key = "value"')


def _shown(value: object) -> str:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    short = text if len(text) <= 80 else f"{text[:77]}..."
    return short if short.isprintable() else ascii(short)
