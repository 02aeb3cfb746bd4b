"""An honest peer that asks the victim a small question again and again, and notes how long it took.

It is a member of the network with an identity of its own and a single connection.
"""

import random
from dataclasses import dataclass, field
from typing import Final

import trio

from p2pnode.network.exchange import Exchange
from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from protocol.certificate import Certificate
from protocol.codec import decode
from protocol.errors import Unavailable
from protocol.hello import Hello, check_hello
from protocol.limits import HELLO_BYTES_MAX
from protocol.units import PeerId
from testnet.bench.hostile import Insider, Target, make_insider, transport_of

EVERY_S: Final = 0.04
ASK_S: Final = 5.0
CONNECT_S: Final = 10.0


@dataclass(slots=True)
class Delays:
    """What one phase has brought, in milliseconds; an unanswered question counts as ASK_S."""

    took_ms: list[float] = field(default_factory=list)
    unanswered: int = 0


class HonestPeer:
    """Asks until cancelled; `delays` is where the answers of the present phase are noted."""

    def __init__(self, target: Target, rng: random.Random) -> None:
        self._target = target
        insider = make_insider(target, rng)
        self._transport: Libp2pTransport = transport_of(target, insider)
        self._exchange = Exchange(
            streams=self._transport,
            hello=lambda: _hello(target, insider),
            check_hello=self._check_hello,
            handlers={},
        )
        self.delays = Delays()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask until cancelled; started once the victim has answered."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._transport.run)
            await nursery.start(self._exchange.run)
            with trio.fail_after(CONNECT_S):
                await self._ask_once()
            task_status.started()
            while True:
                await self._ask_timed()
                await trio.sleep(EVERY_S)

    def begin_phase(self) -> Delays:
        """Note from now on in a fresh place; that place."""
        self.delays = Delays()
        return self.delays

    async def _ask_timed(self) -> None:
        delays = self.delays
        began_s = trio.current_time()
        try:
            with trio.fail_after(ASK_S):
                await self._ask_once()
        except (Unavailable, trio.TooSlowError):
            delays.unanswered += 1
            delays.took_ms.append(ASK_S * 1_000)
            return
        delays.took_ms.append((trio.current_time() - began_s) * 1_000)

    async def _ask_once(self) -> None:
        if self._target.peer not in self._transport.neighbours():
            await self._transport.connect(self._target.peer, (self._target.address,))
        await self._exchange.ask(self._target.peer, "ping", b"")

    def _check_hello(self, remote: PeerId, hello: Hello) -> Certificate:
        return check_hello(hello, remote=remote, net=self._target.net, now=self._target.now())


def _hello(target: Target, insider: Insider) -> Hello:
    return decode(insider.hello(target.net), Hello, size_max=HELLO_BYTES_MAX)
