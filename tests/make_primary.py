"""A renter's own primary, for tests: what it says is scripted, what it is asked is kept."""

from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from p2pnode.jobs.hybrid import StillStarting
from p2pnode.jobs.primary_template import Says, Template, Values, Verb
from protocol.errors import Unavailable

TEMPLATE = Template(
    about="A primary that is none.",
    start=("cluster", "start", "{name}", "{argv}"),
    state=("cluster", "state", "{name}"),
    stop=("cluster", "stop", "{name}"),
    log=("cluster", "log", "{name}"),
    says=Says(
        refused="full up",
        out_of_stock="no stock",
        ended=r"ended (?P<exit>\d+)",
        failed="broken",
        running="running",
        absent="nothing",
    ),
    start_within="60s",
    poll="2s",
)
HANGS = "hangs"


@dataclass
class ScriptedPrimary:
    """See Primary. Has a job from the start of it until it is stopped or has ended."""

    starts: list[str] = field(default_factory=list)
    """What is said to each start; `HANGS` is no answer in time, and nothing left is `sent`."""
    states: list[str] = field(default_factory=list)
    """What is said of the job while it is there; the last one stays."""
    printed: bytes = b""
    obeys_stop: bool = True
    template: Template = TEMPLATE
    asked: list[Verb] = field(default_factory=list)
    has: set[str] = field(default_factory=set)
    """The jobs that may run there."""
    on_ask: Callable[[Verb], None] = lambda _verb: None
    """Called before something is done and after."""
    slow_start: set[str] = field(default_factory=set)
    """The jobs whose start in an earlier life is still under way."""
    read_of: set[str] = field(default_factory=set)
    """The jobs whose log was read."""
    _known: set[str] = field(default_factory=set)

    async def ask(self, verb: Verb, values: Values) -> tuple[int, str]:
        self.asked.append(verb)
        self.on_ask(verb)
        await trio.lowlevel.checkpoint()
        answer = await self._answer(verb, str(values["name"]))
        self.on_ask(verb)
        await trio.lowlevel.checkpoint()
        return answer

    async def _answer(self, verb: Verb, name: str) -> tuple[int, str]:
        match verb:
            case "start":
                return await self._start(name)
            case "stop":
                if self.obeys_stop:
                    self.has.discard(name)
                    self._known.discard(name)
                return 0, ""
            case _:
                return 0, self._state(name)

    def is_starting(self, values: Values) -> bool:
        return str(values["name"]) in self.slow_start

    async def read_log(self, values: Values, *, skip: int, size_max: int) -> bytes:
        await trio.lowlevel.checkpoint()
        self.read_of.add(str(values["name"]))
        return self.printed[skip:][:size_max]

    def check(self, values: Values) -> None:
        self.template.check(values)

    async def _start(self, name: str) -> tuple[int, str]:
        if name in self.slow_start:
            raise StillStarting("still at it")
        said = self.starts.pop(0) if self.starts else "sent"
        if said != "full up":
            self.has.add(name)
            self._known.add(name)
        if said == HANGS:
            await trio.sleep(60)
            raise Unavailable("no answer within 60 s")
        return (0 if said == "sent" else 1), said

    def _state(self, name: str) -> str:
        if name not in self._known:
            return "nothing"
        said = self.states.pop(0) if len(self.states) > 1 else (self.states or ["running"])[0]
        if said.startswith("ended"):
            self.has.discard(name)
        return said
