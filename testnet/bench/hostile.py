"""What attackers have: a target, identities without end, and hosts. Attacks nobody by itself."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from p2pnode.network.libp2p_adapter.libp2p_transport import Libp2pTransport
from protocol.certificate import Certificate, sign_certificate
from protocol.codec import encode
from protocol.errors import Unavailable
from protocol.hello import Hello
from protocol.limits import FRAME_BYTES_MAX
from protocol.signing import Signer, peer_id_of
from protocol.units import Millis, NetId, PeerId, PublicKey

EXPECTED: Final = (
    OSError,
    Unavailable,
    trio.BrokenResourceError,
    trio.ClosedResourceError,
    trio.TooSlowError,
)
"""How a victim that defends itself looks to the attacker."""
PAUSE_S: Final = 0.05
DAY_MS: Final = 86_400_000
LISTEN: Final = ("/ip4/127.0.0.1/tcp/0",)


@dataclass(slots=True, kw_only=True)
class Target:
    """Whom to attack, and how often it was done."""

    host: str
    port: int
    peer: PeerId
    net: NetId
    topic: str
    now: Callable[[], Millis]
    sent: int = 0
    """Packets, connections or streams, whatever the attack counts."""
    refused: int = field(default=0)
    """Attempts that ended with an error."""

    @property
    def address(self) -> str:
        """Where the victim listens, as the transport wants it."""
        return f"/ip4/{self.host}/tcp/{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Insider:
    """A valid member of the network: certificates cost nothing."""

    feed: Signer
    peer_seed: bytes
    certificate: bytes

    @property
    def peer(self) -> PeerId:
        """Its peer id."""
        return peer_id_of(Signer(self.peer_seed).public)

    def hello(self, net: NetId) -> bytes:
        """Its HELLO, valid in its own network."""
        return encode(
            Hello(
                net=net,
                roles=("renter",),
                kinds=(),
                certificate=self.certificate,
                frame_bytes_max=FRAME_BYTES_MAX,
            )
        )


Attack = Callable[[Target, random.Random], Awaitable[None]]
"""Goes on until it is cancelled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One host of the attacker, connected with the victim."""

    insider: Insider
    transport: Libp2pTransport


def make_insider(target: Target, rng: random.Random) -> Insider:
    """A fresh identity that the network accepts."""
    root, feed = Signer(rng.randbytes(32)), Signer(rng.randbytes(32))
    peer_seed = rng.randbytes(32)
    peer = Signer(peer_seed)
    now = target.now()
    certificate = Certificate(
        net=target.net,
        root=root.public,
        feed=feed.public,
        peer_id=peer_id_of(peer.public),
        x25519=PublicKey(rng.randbytes(32)),
        not_before_ms=Millis(now - DAY_MS // 24),
        not_after_ms=Millis(now + DAY_MS),
        n=now,
    )
    raw = sign_certificate(certificate, root=root, feed=feed, peer=peer)
    return Insider(feed=feed, peer_seed=peer_seed, certificate=raw)


def transport_of(target: Target, insider: Insider) -> Libp2pTransport:
    """A host for the identity; not running yet."""
    return Libp2pTransport(seed=insider.peer_seed, listen=LISTEN, topics=(target.topic,))


async def with_hosts(
    target: Target,
    rng: random.Random,
    count: int,
    act: Callable[[Host], Awaitable[None]],
) -> None:
    """Let `count` fresh insiders act, each again and again with its one connection."""
    hosts = []
    for _ in range(count):
        insider = make_insider(target, rng)
        hosts.append(Host(insider=insider, transport=transport_of(target, insider)))
    async with trio.open_nursery() as nursery:
        for host in hosts:
            await nursery.start(host.transport.run)
            nursery.start_soon(_keep_acting, target, host, act)


async def _keep_acting(target: Target, host: Host, act: Callable[[Host], Awaitable[None]]) -> None:
    async def connect_and_act() -> None:
        await host.transport.connect(target.peer, (target.address,))
        await act(host)

    await again_and_again(target, connect_and_act)


async def again_and_again(target: Target, once: Callable[[], Awaitable[None]]) -> None:
    """Do it until cancelled, whatever the victim does about it."""
    while True:
        refused = target.refused
        try:
            await once()
        except* EXPECTED:
            target.refused += 1
        if target.refused > refused:
            await trio.sleep(PAUSE_S)
        await trio.lowlevel.checkpoint()


async def in_parallel(target: Target, count: int, once: Callable[[], Awaitable[None]]) -> None:
    """`count` tasks that do it until cancelled."""
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(again_and_again, target, once)
