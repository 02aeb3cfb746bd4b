"""Watches what a node tells: asks again and again, and says what is new."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from p2pnode.cli.output import print_document, say
from p2pnode.clock import SystemClock

POLL_S = 1.0

Item = dict[str, Any]


def watch(
    items: Callable[[], Iterable[Item]],
    *,
    key: str,
    told: Callable[[Item], object],
    line: Callable[[str, Item], str],
    for_ms: int | None,
    as_json: bool,
) -> None:
    """Say each item that is new, changed or gone, until Ctrl-C or for so long.

    `told(item)` is what makes it another one when it changes; `line(what, item)` is the text.
    """
    known: dict[str, Item] = {}
    clock = SystemClock()
    ends = None if for_ms is None else clock.now() + for_ms
    while True:
        now = {item[key]: item for item in items()}
        for name, item in now.items():
            if name not in known:
                _say("new", item, line, as_json=as_json)
            elif told(item) != told(known[name]):
                _say("changed", item, line, as_json=as_json)
        for name in [name for name in known if name not in now]:
            _say("gone", known[name], line, as_json=as_json)
        known = now
        if ends is not None and clock.now() >= ends:
            return
        time.sleep(POLL_S)


def _say(what: str, item: Item, line: Callable[[str, Item], str], *, as_json: bool) -> None:
    if as_json:
        print_document({"event": what, **item})
    else:
        say(line(what, item))
