"""The keys of `config.toml`: how each is read, which is meant by a wrong one, where it stands."""

import difflib
import re
from typing import Final

from p2pnode.config_readers import (
    RATES_MAX,
    Key,
    read_bandwidth,
    read_dates,
    read_energy,
    read_flag,
    read_hours,
    read_list,
    read_number,
    read_percent,
    read_rate,
    read_rates,
    read_rules,
    read_some_of,
    read_span,
    read_sum,
    read_text,
    read_vram,
    read_zone,
)
from p2pnode.opening import OPENING_EXAMPLE, ZONE_EXAMPLE
from p2pnode.quantities import (
    BANDWIDTH_EXAMPLE,
    ENERGY_EXAMPLE,
    EXCHANGE_EXAMPLE,
    RATE_EXAMPLE,
    STEP_EXAMPLE,
    SUM_EXAMPLE,
)
from p2pnode.screening import Kind
from protocol.limits import ADDRESSES_MAX, UNITS_MAX, WITNESSES_MAX

ROLES: Final = ("owner", "renter")
TIERS: Final = ("gold", "silver", "bronze")
"""Those of protocol.advert, whose module would load the cryptography."""
ENGINES: Final = ("auto", "process", "docker")
GOSSIP: Final = ("auto", "on", "off")
PRIMARY_USES: Final = ("never", "first", "only", "fallback")
BOOTSTRAP_PATTERN: Final = r"\A/[!-~]{1,180}/p2p/[0-9A-Za-z]{16,70}\Z"
"""Where to find a first peer, and which peer it has to be."""
BOOTSTRAP_MAX: Final = 64
"""More than this many first peers help nobody to join."""

_NAME_PATTERN: Final = r"\A[ -~]{1,64}\Z"
"""As protocol.codec.Name."""
_PAYOUT_PATTERN: Final = r"\A[ -~]{1,512}\Z"
"""As protocol.payment.Payout."""
_ANNOUNCE_PATTERN: Final = r"\A/[!-~]{1,127}\Z"
"""As protocol.advert.Address, since adverts carry these."""
_KEY_PATTERN: Final = r"\A[0-9a-f]{64}\Z"
_KEY_EXAMPLE: Final = "7f" * 32
STRATEGY_PATTERN: Final = "fixed|cost-plus|market-p[1-9][0-9]?"
"""As the strategies of p2pnode.matching."""
RAILS_MAX: Final = 16
"""Rails that one owner can look after."""
_LISTEN_PATTERN: Final = r"\A/[!-~]{1,255}\Z"


SCREENED: Final[dict[str, tuple[Kind, str]]] = {
    "images": ("image", "ghcr.io/me/*"),
    "renters": ("renter", _KEY_EXAMPLE),
    "regions": ("region", "DE"),
    "networks": ("network", "203.0.113.0/24"),
}
"""What `allow_` and `deny_` may be said of."""

KEYS: Final = {
    "schema": Key(read=read_number(1, 1), wanted="1, the only schema so far", example="1"),
    "name": Key(
        read=read_text(_NAME_PATTERN),
        wanted="one line of 1 to 64 ASCII characters",
        example='"attic-rig"',
    ),
    "roles": Key(
        read=read_some_of(ROLES),
        wanted="a list with owner, renter or both",
        example='["owner", "renter"]',
    ),
    "network.listen": Key(
        read=read_list(_LISTEN_PATTERN, most=ADDRESSES_MAX),
        wanted=f"a list of at most {ADDRESSES_MAX} different multiaddrs",
        example='["/ip4/0.0.0.0/tcp/4001"]',
    ),
    "network.announce": Key(
        read=read_list(_ANNOUNCE_PATTERN, most=ADDRESSES_MAX),
        wanted=f"a list of at most {ADDRESSES_MAX} different multiaddrs below 129 characters",
        example='["/dns4/rig.example/tcp/4001"]',
    ),
    "network.bootstrap": Key(
        read=read_list(BOOTSTRAP_PATTERN, most=BOOTSTRAP_MAX),
        wanted="a list of different multiaddrs that end in /p2p/ and a peer id",
        example=(
            '["/dns4/boot.example/tcp/4001/p2p/'
            '12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"]'
        ),
    ),
    "network.mdns": Key(read=read_flag, wanted="true or false", example="true"),
    "network.region": Key(
        read=read_text(r"\A[A-Z]{2}\Z"), wanted="two capitals of ISO 3166", example='"DE"'
    ),
    "network.heartbeat": Key(
        read=read_span("100ms", "1h"), wanted="a span from 100ms to 1h", example='"30s"'
    ),
    "network.gossip": Key(
        read=read_text(rf"\A({'|'.join(GOSSIP)})\Z"), wanted="auto, on or off", example='"auto"'
    ),
    "network.down": Key(
        read=read_bandwidth, wanted="a bandwidth to 1000 Gbit/s", example=f'"{BANDWIDTH_EXAMPLE}"'
    ),
    "network.up": Key(
        read=read_bandwidth, wanted="a bandwidth to 1000 Gbit/s", example=f'"{BANDWIDTH_EXAMPLE}"'
    ),
    "network.witness": Key(read=read_flag, wanted="true or false", example="true"),
    "pricing.ask": Key(
        read=read_rate, wanted="a price for one GPU and one hour", example=f'"{RATE_EXAMPLE}"'
    ),
    "pricing.floor": Key(
        read=read_rate, wanted="a price for one GPU and one hour", example=f'"{RATE_EXAMPLE}"'
    ),
    "pricing.gold_ask": Key(
        read=read_rate, wanted="a price for one GPU and one hour", example=f'"{RATE_EXAMPLE}"'
    ),
    "pricing.gold_floor": Key(
        read=read_rate, wanted="a price for one GPU and one hour", example=f'"{RATE_EXAMPLE}"'
    ),
    "pricing.gold_remedy": Key(
        read=read_percent("1%", "100%"), wanted="from 1% to 100%", example='"10%"'
    ),
    "pricing.bronze_ask": Key(
        read=read_rate, wanted="a price for one GPU and one hour", example=f'"{RATE_EXAMPLE}"'
    ),
    "pricing.bronze_floor": Key(
        read=read_rate, wanted="a price for one GPU and one hour", example=f'"{RATE_EXAMPLE}"'
    ),
    "pricing.strategy": Key(
        read=read_text(rf"\A({STRATEGY_PATTERN})\Z"),
        wanted="fixed, cost-plus, or market-p1 to market-p99",
        example='"market-p40"',
    ),
    "pricing.step": Key(
        read=read_percent("0.01%", "100%"), wanted="from 0.01% to 100%", example=f'"{STEP_EXAMPLE}"'
    ),
    "pricing.step_every": Key(
        read=read_span("10s", "30d"), wanted="a span from 10s to 30d", example='"10m"'
    ),
    "pricing.surcharge": Key(read=read_flag, wanted="true or false", example="true"),
    "pricing.by_use": Key(read=read_flag, wanted="true or false", example="true"),
    "pricing.energy": Key(
        read=read_energy, wanted="a price of one kilowatt-hour", example=f'"{ENERGY_EXAMPLE}"'
    ),
    "pricing.watts": Key(
        read=read_number(1, 100_000), wanted="a number from 1 to 100000", example="400"
    ),
    "pricing.margin": Key(
        read=read_percent("0%", "10000%"), wanted="from 0% to 10000%", example='"25%"'
    ),
    "pricing.min_lease": Key(
        read=read_span("1s", "3650d"), wanted="a span from 1s to 3650d", example='"1m"'
    ),
    "pricing.max_lease": Key(
        read=read_span("1s", "3650d"), wanted="a span from 1s to 3650d", example='"7d"'
    ),
    "pricing.period": Key(
        read=read_span("1s", "1d"), wanted="a span from 1s to 1d", example='"60s"'
    ),
    "pricing.billing": Key(
        read=read_span("1s", "366d"), wanted="a span from 1s to 366d", example='"1d"'
    ),
    "pricing.newcomer_credit": Key(
        read=read_sum, wanted="a sum of money", example=f'"{SUM_EXAMPLE}"'
    ),
    "pricing.payout": Key(
        read=read_text(_PAYOUT_PATTERN),
        wanted="one line of 1 to 512 ASCII characters",
        example='"IBAN DE02 1203 0000 0000 2020 51"',
    ),
    "pricing.tiers": Key(
        read=read_some_of(TIERS),
        wanted="a list with one or more of gold, silver and bronze",
        example='["silver", "bronze"]',
    ),
    "pricing.rails": Key(
        read=read_list(_KEY_PATTERN, most=RAILS_MAX),
        wanted=f"a list of at most {RAILS_MAX} different keys of 64 hex digits",
        example=f'["{_KEY_EXAMPLE}"]',
    ),
    "availability.hours": Key(
        read=read_hours, wanted="opening hours", example=f'"{OPENING_EXAMPLE}"'
    ),
    "availability.file": Key(
        read=read_text(r"\A/[^\0]{1,1000}\Z"),
        wanted="the absolute path of an iCalendar file",
        example='"/home/me/rig.ics"',
    ),
    "availability.tz": Key(read=read_zone, wanted="a time zone", example=f'"{ZONE_EXAMPLE}"'),
    "availability.except": Key(
        read=read_dates, wanted="a list of at most 366 different dates", example='["2026-12-24"]'
    ),
    "availability.closed": Key(read=read_flag, wanted="true or false", example="true"),
    "availability.floor": Key(
        read=read_rate, wanted="a price for one GPU and one hour", example=f'"{RATE_EXAMPLE}"'
    ),
    "gpu.yield_to_me": Key(read=read_flag, wanted="true or false", example="true"),
    "gpu.used_above": Key(read=read_percent("1%", "99%"), wanted="from 1% to 99%", example='"20%"'),
    "gpu.used_after": Key(
        read=read_span("1s", "1h"), wanted="a span from 1s to 1h", example='"10s"'
    ),
    "gpu.idle_after": Key(
        read=read_span("1s", "1d"), wanted="a span from 1s to 1d", example='"60s"'
    ),
    "gpu.simulated.model": Key(
        read=read_text(_NAME_PATTERN),
        wanted="one line of 1 to 64 ASCII characters",
        example='"RTX 4090"',
    ),
    "gpu.simulated.vram": Key(read=read_vram, wanted="a size from 1MiB up", example='"24564MiB"'),
    "gpu.simulated.count": Key(
        read=read_number(1, UNITS_MAX), wanted=f"a number from 1 to {UNITS_MAX}", example="2"
    ),
    "gpu.simulated.driver": Key(
        read=read_text(r"\A([0-9]{1,6}(\.[0-9]{1,6}){0,3})?\Z"),
        wanted="a version of a driver",
        example='"570.86.15"',
    ),
    "gpu.simulated.compute": Key(
        read=read_text(r"\A([0-9]{1,6}\.[0-9]{1,6})?\Z"),
        wanted="a CUDA compute capability",
        example='"8.9"',
    ),
    "workloads.engine": Key(
        read=read_text(rf"\A({'|'.join(ENGINES)})\Z"),
        wanted="auto, process or docker",
        example='"auto"',
    ),
    "workloads.docker_socket": Key(
        read=read_text(r"\A/[!-~]{1,106}\Z"),
        wanted="the absolute path of the container engine's socket",
        example='"/var/run/docker.sock"',
    ),
    **{
        f"workloads.{verdict}_{things}": Key(
            read=read_rules(kind), wanted=f"a list of different {things}", example=f'["{example}"]'
        )
        for verdict in ("allow", "deny")
        for things, (kind, example) in SCREENED.items()
    },
    "renting.lost_after": Key(
        read=read_span("100ms", "1h"), wanted="a span from 100ms to 1h", example='"15s"'
    ),
    "renting.witnesses": Key(
        read=read_list(_KEY_PATTERN, most=WITNESSES_MAX),
        wanted=f"a list of at most {WITNESSES_MAX} different feed keys of 64 hex digits",
        example=f'["{_KEY_EXAMPLE}"]',
    ),
    "renting.rates": Key(
        read=read_rates,
        wanted=f"a list of at most {RATES_MAX} rates, each of a pair once",
        example=f'["{EXCHANGE_EXAMPLE}"]',
    ),
    "renting.quorum": Key(
        read=read_number(0, WITNESSES_MAX),
        wanted=f"a number from 0 to {WITNESSES_MAX}",
        example="2",
    ),
    "primary.template": Key(
        read=read_text(r"\A([a-z]+|[~/][!-~]{0,254})?\Z"),
        wanted="dstack, kubernetes, skypilot, or the absolute path of a file",
        example='"kubernetes"',
    ),
    "primary.use": Key(
        read=read_text(rf"\A({'|'.join(PRIMARY_USES)})\Z"),
        wanted="never, first, only or fallback",
        example='"first"',
    ),
}
TABLES: Final = (
    "network",
    "pricing",
    "availability",
    "gpu",
    "gpu.simulated",
    "workloads",
    "renting",
    "primary",
)
ARRAYS: Final = {"gpu.simulated": ("model", "vram"), "availability": ()}
"""Tables that may be repeated, with the keys that each of them must have."""


def nearest_key(key: str) -> str | None:
    """The key that was probably meant: a like one in the same table, or else in any table."""
    table, _, leaf = key.rpartition(".")
    names = [*KEYS, *TABLES]
    beside = [name for name in names if name.rpartition(".")[0] == table]
    for candidates in (beside, names):
        leaves = {name.rpartition(".")[2]: name for name in candidates}
        for match in difflib.get_close_matches(leaf, leaves, n=1):
            return leaves[match]
    return None


_HEADER: Final = re.compile(r"\s*(\[\[?)([^\[\]]+)\]")
_ASSIGNMENT: Final = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*[\w"'-]+)*)\s*=""")


def line_of(text: str, key: str) -> int:
    """The line of TOML on which the key is set, or else its table begins; counted from 1.

    A key in a repeated table is written `gpu.simulated[1].vram`.
    """
    table, best_line, best_length = "", 1, 0
    seen: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = name = _bare(header[2])
            if header[1] == "[[":
                table = name = f"{name}[{seen.get(name, 0)}]"
                seen[_bare(header[2])] = seen.get(_bare(header[2]), 0) + 1
        elif assignment := _ASSIGNMENT.match(line):
            name = f"{table}.{_bare(assignment[1])}".removeprefix(".")
        else:
            continue
        holds = key == name or key.startswith((f"{name}.", f"{name}["))
        if holds and len(name) > best_length:
            best_line, best_length = number, len(name)
    return best_line


def _bare(name: str) -> str:
    return re.sub(r"""[\s"']""", "", name)
