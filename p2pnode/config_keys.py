"""The keys of `config.toml`: how each is read, which is meant by a wrong one, where it stands."""

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from p2pnode.quantities import (
    RATE_EXAMPLE,
    SUM_EXAMPLE,
    Money,
    mib_floor,
    parse_rate,
    parse_size,
    parse_span,
    parse_sum,
)
from protocol.limits import ADDRESSES_MAX, UNITS_MAX, WITNESSES_MAX
from protocol.units import Mebibytes, MillisSpan

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
RAILS_MAX: Final = 16
"""Rails that one owner can look after."""
_LISTEN_PATTERN: Final = r"\A/[!-~]{1,255}\Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key: what its value is read by, what that wants, and a right value as TOML."""

    read: Callable[[object], object]
    """Raises ValueError, or LocalFault with more to say, if the TOML value is not one."""
    wanted: str
    example: str


def _text(pattern: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if not isinstance(value, str) or not re.search(pattern, value):
            raise ValueError
        return value

    return read


def _list(pattern: str, *, most: int) -> Callable[[object], tuple[str, ...]]:
    item = _text(pattern)

    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise ValueError
        items = tuple(item(one) for one in value)
        if len(dict.fromkeys(items)) < len(items):
            raise ValueError
        return items

    return read


def _some_of(words: Sequence[str]) -> Callable[[object], tuple[str, ...]]:
    """At least one of the words, put into the order that they have here."""
    listed = _list(rf"\A({'|'.join(words)})\Z", most=len(words))

    def read(value: object) -> tuple[str, ...]:
        found = listed(value)
        if not found:
            raise ValueError
        return tuple(word for word in words if word in found)

    return read


def _flag(value: object) -> bool:
    if value is not True and value is not False:
        raise ValueError
    return value is True


def _number(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError
        return value

    return read


def _span(least: str, most: str) -> Callable[[object], MillisSpan]:
    bounds = parse_span(least), parse_span(most)

    def read(value: object) -> MillisSpan:
        span = parse_span(_any_text(value))
        if not bounds[0] <= span <= bounds[1]:
            raise ValueError
        return span

    return read


def _vram(value: object) -> Mebibytes:
    mebibytes = mib_floor(parse_size(_any_text(value)))
    if not 1 <= mebibytes <= 2**40:
        raise ValueError
    return mebibytes


def _rate(value: object) -> Money:
    return parse_rate(_any_text(value))


def _sum(value: object) -> Money:
    return parse_sum(_any_text(value))


_any_text: Final = _text("")

KEYS: Final = {
    "schema": Key(read=_number(1, 1), wanted="1, the only schema so far", example="1"),
    "name": Key(
        read=_text(_NAME_PATTERN),
        wanted="one line of 1 to 64 ASCII characters",
        example='"attic-rig"',
    ),
    "roles": Key(
        read=_some_of(ROLES),
        wanted="a list with owner, renter or both",
        example='["owner", "renter"]',
    ),
    "network.listen": Key(
        read=_list(_LISTEN_PATTERN, most=ADDRESSES_MAX),
        wanted=f"a list of at most {ADDRESSES_MAX} different multiaddrs",
        example='["/ip4/0.0.0.0/tcp/4001"]',
    ),
    "network.announce": Key(
        read=_list(_ANNOUNCE_PATTERN, most=ADDRESSES_MAX),
        wanted=f"a list of at most {ADDRESSES_MAX} different multiaddrs below 129 characters",
        example='["/dns4/rig.example/tcp/4001"]',
    ),
    "network.bootstrap": Key(
        read=_list(BOOTSTRAP_PATTERN, most=BOOTSTRAP_MAX),
        wanted="a list of different multiaddrs that end in /p2p/ and a peer id",
        example=(
            '["/dns4/boot.example/tcp/4001/p2p/'
            '12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"]'
        ),
    ),
    "network.mdns": Key(read=_flag, wanted="true or false", example="true"),
    "network.region": Key(
        read=_text(r"\A[A-Z]{2}\Z"), wanted="two capitals of ISO 3166", example='"DE"'
    ),
    "network.heartbeat": Key(
        read=_span("100ms", "1h"), wanted="a span from 100ms to 1h", example='"30s"'
    ),
    "network.gossip": Key(
        read=_text(rf"\A({'|'.join(GOSSIP)})\Z"), wanted="auto, on or off", example='"auto"'
    ),
    "network.witness": Key(read=_flag, wanted="true or false", example="true"),
    "pricing.ask": Key(
        read=_rate, wanted="a price for one GPU and one hour", example=f'"{RATE_EXAMPLE}"'
    ),
    "pricing.min_lease": Key(
        read=_span("1s", "3650d"), wanted="a span from 1s to 3650d", example='"1m"'
    ),
    "pricing.max_lease": Key(
        read=_span("1s", "3650d"), wanted="a span from 1s to 3650d", example='"7d"'
    ),
    "pricing.period": Key(read=_span("1s", "1d"), wanted="a span from 1s to 1d", example='"60s"'),
    "pricing.billing": Key(
        read=_span("1s", "366d"), wanted="a span from 1s to 366d", example='"1d"'
    ),
    "pricing.newcomer_credit": Key(read=_sum, wanted="a sum of money", example=f'"{SUM_EXAMPLE}"'),
    "pricing.payout": Key(
        read=_text(_PAYOUT_PATTERN),
        wanted="one line of 1 to 512 ASCII characters",
        example='"IBAN DE02 1203 0000 0000 2020 51"',
    ),
    "pricing.tiers": Key(
        read=_some_of(TIERS),
        wanted="a list with one or more of gold, silver and bronze",
        example='["silver", "bronze"]',
    ),
    "pricing.rails": Key(
        read=_list(_KEY_PATTERN, most=RAILS_MAX),
        wanted=f"a list of at most {RAILS_MAX} different keys of 64 hex digits",
        example=f'["{_KEY_EXAMPLE}"]',
    ),
    "gpu.simulated.model": Key(
        read=_text(_NAME_PATTERN),
        wanted="one line of 1 to 64 ASCII characters",
        example='"RTX 4090"',
    ),
    "gpu.simulated.vram": Key(read=_vram, wanted="a size from 1MiB up", example='"24564MiB"'),
    "gpu.simulated.count": Key(
        read=_number(1, UNITS_MAX), wanted=f"a number from 1 to {UNITS_MAX}", example="2"
    ),
    "workloads.engine": Key(
        read=_text(rf"\A({'|'.join(ENGINES)})\Z"),
        wanted="auto, process or docker",
        example='"auto"',
    ),
    "workloads.docker_socket": Key(
        read=_text(r"\A/[!-~]{1,106}\Z"),
        wanted="the absolute path of the container engine's socket",
        example='"/var/run/docker.sock"',
    ),
    "renting.lost_after": Key(
        read=_span("100ms", "1h"), wanted="a span from 100ms to 1h", example='"15s"'
    ),
    "renting.witnesses": Key(
        read=_list(_KEY_PATTERN, most=WITNESSES_MAX),
        wanted=f"a list of at most {WITNESSES_MAX} different feed keys of 64 hex digits",
        example=f'["{_KEY_EXAMPLE}"]',
    ),
    "renting.quorum": Key(
        read=_number(0, WITNESSES_MAX),
        wanted=f"a number from 0 to {WITNESSES_MAX}",
        example="2",
    ),
    "primary.template": Key(
        read=_text(r"\A([a-z]+|[~/][!-~]{0,254})?\Z"),
        wanted="dstack, kubernetes, skypilot, or the absolute path of a file",
        example='"kubernetes"',
    ),
    "primary.use": Key(
        read=_text(rf"\A({'|'.join(PRIMARY_USES)})\Z"),
        wanted="never, first, only or fallback",
        example='"first"',
    ),
}
TABLES: Final = ("network", "pricing", "gpu", "gpu.simulated", "workloads", "renting", "primary")
ARRAYS: Final = {"gpu.simulated": ("model", "vram")}
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
