"""What a connected peer can do by gossip and identify."""

import random
from collections.abc import Callable
from typing import Any, Final

import trio
from msgspec.structs import replace

from protocol.advert import Advert, TierAsk
from protocol.gpu_class import gpu_class
from protocol.units import Mebibytes, Micros, Millis, NetId, PeerId
from protocol.wire import pack
from testnet.bench import rpc
from testnet.bench.hostile import (
    Attack,
    Host,
    Target,
    in_parallel,
    make_insider,
    transport_of,
    with_hosts,
)

GOSSIP: Final = "/meshsub/1.1.0"
IDENTIFY: Final = "/ipfs/id/1.0.0"
IDENTIFY_PUSH: Final = "/ipfs/id/push/1.0.0"
BATCH: Final = 16
HOSTS: Final = 2
ADDRESSES: Final = 1_000
"""As many as the library keeps of one identify message."""
LIFE_MS: Final = 60_000

Write = Callable[[Host], bytes]


async def _speak(target: Target, rng: random.Random, write: Write, pause_s: float = 0) -> None:
    """Hosts that write RPCs on a gossip stream, as fast as the victim takes them."""

    async def act(host: Host) -> None:
        async with await host.transport.open_stream(target.peer, GOSSIP) as stream:
            while True:
                await stream.send_all(write(host))
                target.sent += 1
                await trio.sleep(pause_s)

    await with_hosts(target, rng, HOSTS, act)


async def bad_signatures(target: Target, rng: random.Random) -> None:
    """Messages whose signature costs a verification and is wrong."""

    def write(host: Host) -> bytes:
        return rpc.published(
            *(
                rpc.message(host.insider.peer, target.topic, rng.randbytes(200), number)
                + rpc.field(5, rng.randbytes(64))
                for number in range(BATCH)
            )
        )

    await _speak(target, rng, write)


async def malformed_gossip(target: Target, rng: random.Random) -> None:
    """RPCs that are no protobuf, and such as are and hold nonsense."""

    def write(host: Host) -> bytes:
        nonsense = rpc.field(1, rng.randbytes(38)) + rpc.field(4, target.topic.encode())
        return rng.choice(
            (
                rpc.prefixed(rng.randbytes(rng.randrange(1, 2_000))),
                rpc.published(nonsense + rpc.field(5, b"x") + rpc.field(6, rng.randbytes(40))),
                rpc.published(rpc.message(host.insider.peer, target.topic, b"", 1)),
                rpc.prefixed(rpc.field(4, rng.randbytes(300))),
                rpc.varint(2**63) + b"x",
            )
        )

    await _speak(target, rng, write)


async def oversized_gossip(target: Target, rng: random.Random) -> None:
    """RPCs just under and over the limit of 256 KiB."""

    def write(host: Host) -> bytes:
        data = rng.randbytes(rng.choice((250_000, 300_000)))
        return rpc.published(rpc.message(host.insider.peer, target.topic, data, rng.randrange(9)))

    await _speak(target, rng, write)


async def replays(target: Target, rng: random.Random) -> None:
    """One good advert and one bad, again and again, also after the seen cache has forgotten."""
    kept: dict[bytes, bytes] = {}

    def write(host: Host) -> bytes:
        if host.insider.peer not in kept:
            advert = _advert(target, host, seq=1)
            kept[host.insider.peer] = rpc.published(
                *(
                    _told(target, host, pack(body, signer=host.insider.feed, net=target.net))
                    for body in (advert, replace(advert, free=9))
                )
            )
        return kept[host.insider.peer]

    await _speak(target, rng, write, pause_s=0.01)


async def used_numbers(target: Target, rng: random.Random) -> None:
    """Other payloads under a sequence number that has been used."""

    def write(host: Host) -> bytes:
        return rpc.published(_told(target, host, rng.randbytes(100)))

    await _speak(target, rng, write)


async def bad_adverts(target: Target, rng: random.Random) -> None:
    """Sound messages with adverts that are expired, early, stale, foreign, or somebody else's."""

    def write(host: Host) -> bytes:
        now = target.now()
        good = _advert(target, host, seq=rng.randrange(2**31))
        old = Millis(now - 10 * LIFE_MS)
        early = Millis(now + 10 * LIFE_MS)
        late = replace(good, issued_ms=old, not_after_ms=Millis(old + LIFE_MS))
        soon = replace(good, issued_ms=early, not_after_ms=Millis(early + LIFE_MS))
        body = rng.choice((late, soon, replace(good, seq=0), replace(good, free=64)))
        net = rng.choice((target.net, NetId(rng.randbytes(32))))
        return rpc.published(_told(target, host, pack(body, signer=host.insider.feed, net=net)))

    await _speak(target, rng, write)


async def fresh_adverts(target: Target, rng: random.Random) -> None:
    """Adverts without a fault, each newer than the last, as fast as they go."""
    number = iter(range(1, 2**31))

    def write(host: Host) -> bytes:
        advert = _advert(target, host, seq=next(number))
        return rpc.published(
            _told(target, host, pack(advert, signer=host.insider.feed, net=target.net))
        )

    await _speak(target, rng, write)


async def control_storm(target: Target, rng: random.Random) -> None:
    """PRUNE, GRAFT, IHAVE and the rest, about invented topics and messages."""

    def write(_host: Host) -> bytes:
        topics = [b"%032x" % rng.getrandbits(128) for _ in range(200)]
        ids = [rng.randbytes(32).hex().encode() for _ in range(50)]
        have = [rpc.field(1, topic) + rpc.fields(2, ids[:2]) for topic in topics]
        prune = [rpc.field(1, topic) + rpc.field(3, 2**40) for topic in topics]
        graft = [rpc.field(1, topic) for topic in topics]
        return rpc.controlled(
            rng.choice(
                (
                    rpc.fields(1, have),
                    rpc.fields(2, [rpc.fields(1, ids)] * 5),
                    rpc.fields(3, graft),
                    rpc.fields(4, prune),
                    rpc.fields(5, [rpc.fields(1, ids)]),
                )
            )
        )

    await _speak(target, rng, write)


async def mesh_storm(target: Target, rng: random.Random) -> None:
    """GRAFT and PRUNE in turn, and IHAVEs of thousands, about the topic that there is."""

    def write(_host: Host) -> bytes:
        topic = target.topic.encode()
        ids = [rng.randbytes(32).hex().encode() for _ in range(1_000)]
        return rpc.controlled(
            rpc.fields(3, [rpc.field(1, topic)] * 50)
            + rpc.fields(4, [rpc.field(1, topic) + rpc.field(3, 1)] * 50)
            + rpc.field(1, rpc.field(1, topic) + rpc.fields(2, ids))
        )

    await _speak(target, rng, write)


async def subscriptions(target: Target, rng: random.Random) -> None:
    """Subscriptions to topics that are made up."""

    def write(_host: Host) -> bytes:
        return rpc.subscribed([f"{rng.getrandbits(64):x}" for _ in range(90)])

    await _speak(target, rng, write)


async def address_lists(target: Target, rng: random.Random) -> None:
    """Newcomers who identify themselves with a thousand addresses and protocols, and push more."""

    async def tell(_remote: PeerId, stream: trio.abc.Stream) -> None:
        addresses = [
            b"\x04" + rng.randbytes(4) + b"\x06" + rng.randbytes(2) for _ in range(ADDRESSES)
        ]
        protocols = [b"/%x" % rng.getrandbits(64) for _ in range(ADDRESSES)]
        await stream.send_all(rpc.prefixed(rpc.fields(2, addresses) + rpc.fields(3, protocols)))
        target.sent += 1

    async def once() -> None:
        transport = transport_of(target, make_insider(target, rng))
        transport.serve(IDENTIFY, tell)
        async with trio.open_nursery() as nursery:
            await nursery.start(transport.run)
            await transport.connect(target.peer, (target.address,))
            with trio.move_on_after(0.3):
                async with await transport.open_stream(target.peer, IDENTIFY_PUSH) as stream:
                    await tell(target.peer, stream)
            nursery.cancel_scope.cancel()

    await in_parallel(target, HOSTS, once)


def _told(target: Target, host: Host, data: bytes, seqno: int = 7) -> bytes:
    return rpc.sealed(
        host.insider.peer_seed, rpc.message(host.insider.peer, target.topic, data, seqno)
    )


def _advert(target: Target, host: Host, *, seq: int) -> Advert:
    now = target.now()
    vram = Mebibytes(24_564)
    body: dict[str, Any] = {
        "group": bytes(16),
        "incarnation": 1,
        "seq": seq,
        "state": "open",
        "issued_ms": now,
        "not_after_ms": Millis(now + LIFE_MS),
        "gpu": "simulated",
        "model": "RTX 4090",
        "gpu_class": gpu_class(vram),
        "vram_mib": vram,
        "units": 1,
        "free": 1,
        "tiers": (TierAsk(tier="silver", micro_per_gpu_hour=Micros(300_000)),),
        "money": "TEST",
        "isolation": "process",
        "region": "DE",
        "addresses": host.transport.addresses(),
    }
    return Advert(certificate=host.insider.certificate, **body)


ATTACKS: Final[tuple[Attack, ...]] = (
    bad_signatures,
    malformed_gossip,
    oversized_gossip,
    replays,
    used_numbers,
    bad_adverts,
    fresh_adverts,
    control_storm,
    mesh_storm,
    subscriptions,
    address_lists,
)
