"""Builds the configured libp2p host; it starts nothing and knows nothing of our protocol."""

import secrets
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Final

from libp2p import new_host
from libp2p.abc import IHost
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.identity.identify_push.identify_push import ID_PUSH as IDENTIFY_PUSH
from libp2p.network.config import ConnectionConfig, RetryConfig
from libp2p.network.swarm import Swarm
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11
from libp2p.pubsub.score import ScoreParams, TopicScoreParams
from libp2p.rcmgr import new_resource_manager
from libp2p.rcmgr.connection_limits import ConnectionLimits
from libp2p.rcmgr.manager import ResourceLimits, ResourceManager
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as Noise
from libp2p.stream_muxer.yamux.yamux import PROTOCOL_ID as YAMUX
from libp2p.stream_muxer.yamux.yamux import Yamux
from multiaddr import Multiaddr

from p2pnode.network.libp2p_adapter import patches
from p2pnode.network.libp2p_adapter.judged_pubsub import JudgedPubsub, MessagesById
from p2pnode.network.libp2p_adapter.known_topics import KnownTopicsRouter

CONNECTIONS_MAX: Final = 400
CONNECTIONS_HIGH: Final = 300

RPC_BYTES_MAX: Final = 256 * 1024
"""The largest frame of gossip that we take in; a larger one costs the sender its stream."""

SEEN_S: Final = 120.0
"""How long a gossip message is remembered after its last copy; then it is judged anew."""

GOSSIP_WINDOW: Final = 3
GOSSIP_HISTORY: Final = 5
"""Heartbeats for which recent messages are offered, and kept for those who ask."""

HANDSHAKE_S: Final = 10
"""Somebody who connects has shown who he is within this, or is dropped."""

PING_EVERY_S: Final = 3
PING_ANSWER_S: Final = 4
PING_GRACE_S: Final = 3
"""A hung peer is noticed after 14 seconds at most, as it must miss two (mend_health_checks)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The parts of one host; all of them are the library's."""

    host: IHost
    network: Swarm
    pubsub: JudgedPubsub
    router: KnownTopicsRouter


def build_host(
    *,
    seed: bytes,
    listen: tuple[str, ...],
    topics: frozenset[str],
    heartbeat_s: float,
    seen_s: float,
) -> Host:
    """A host whose peer id holds the Ed25519 public key that belongs to `seed`.

    Each call starts one thread of the library; `pubsub.seen_messages.stop()` ends it.
    """
    patches.apply()
    key_pair = create_new_key_pair(seed)
    host = new_host(
        key_pair=key_pair,
        listen_addrs=[Multiaddr(address) for address in listen],
        # Noise alone: the default also offers plain text, where anybody can be anybody.
        sec_opt={NOISE: Noise(key_pair, noise_privkey=create_noise_key_pair().private_key)},
        muxer_opt={TProtocol(YAMUX): Yamux},
        connection_config=_connection_config(),
        resource_manager=_resource_manager(),
    )
    refuse_pushed_addresses(host)
    network = host.get_network()
    network.retry_config = RetryConfig(max_retries=0)  # retries are the dialler's, with backoff
    router = _router(heartbeat_s)
    pubsub = JudgedPubsub(host, router, topics=topics, rpc_bytes_max=RPC_BYTES_MAX, seen_s=seen_s)
    # The library starts at the second of the start, so that a quick restart repeats numbers and
    # is taken for a forger.
    pubsub.counter = secrets.randbits(62)
    return Host(host=host, network=network, pubsub=pubsub, router=router)


def refuse_pushed_addresses(host: IHost) -> None:
    """Not speak identify/push: addresses come by adverts, and a list of a thousand costs us."""
    del host.get_mux().handlers[IDENTIFY_PUSH]


def _connection_config() -> ConnectionConfig:
    return ConnectionConfig(
        max_connections=CONNECTIONS_MAX,
        high_watermark=CONNECTIONS_HIGH,
        # Whom to dial is decided above us (mend_auto_connector).
        min_connections=0,
        low_watermark=0,
        max_connections_per_peer=1,
        inbound_upgrade_timeout=HANDSHAKE_S,
        enable_health_monitoring=True,
        health_initial_delay=0,
        health_warmup_window=PING_GRACE_S,
        health_check_interval=PING_EVERY_S,
        ping_timeout=PING_ANSWER_S,
        abort_connection_on_ping_failure=True,
    )


def _resource_manager() -> ResourceManager:
    return new_resource_manager(
        limits=ResourceLimits(
            max_connections=5 * CONNECTIONS_MAX, max_memory_mb=1024, max_streams=20_000
        ),
        connection_limits=ConnectionLimits(
            max_established_inbound=CONNECTIONS_MAX,
            max_established_outbound=CONNECTIONS_MAX,
            max_established_per_peer=4,
            max_established_total=2 * CONNECTIONS_MAX,
        ),
        # Both refuse everybody once some have misbehaved.
        enable_circuit_breaker=False,
        enable_graceful_degradation=False,
    )


def _router(heartbeat_s: float) -> KnownTopicsRouter:
    router = KnownTopicsRouter(
        # Not 1.2: it tells the whole mesh of each message that has come, which costs as much as
        # the copies that it saves are worth at the size of an advert.
        [PROTOCOL_ID_V11],
        degree=6,
        degree_low=4,
        degree_high=24,  # wide: a small network that prunes leaves some nodes without a mesh
        heartbeat_interval=heartbeat_s,
        prune_back_off=3,  # the default of 60 leaves nodes deaf and mute for a minute
        do_px=False,
        adaptive_gossip_enabled=False,  # it may set the heartbeat to a minute
        spam_protection_enabled=False,  # it drops beyond 10 messages a second; the judges limit
        eclipse_protection_enabled=False,
        score_params=ScoreParams(
            # A positive weight is a penalty here, and a cap of nought would switch it off.
            p4_invalid_messages=TopicScoreParams(weight=10.0, cap=100.0, decay=0.9),
            publish_threshold=-50,
            gossip_threshold=-20,
            graylist_threshold=-80,
        ),
    )
    router.mcache = MessagesById(GOSSIP_WINDOW, GOSSIP_HISTORY)
    # Only the adaptive mode reads and shortens these lists; without it they grow for ever.
    router.recent_message_deliveries = defaultdict(lambda: deque(maxlen=1))
    return router
