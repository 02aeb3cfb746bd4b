"""Counts of what one host had to drop, and of what passed it; nothing here decides anything."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Damage:
    """Running totals of one host. Owned by the host, written by the patches and the transport."""

    streams_dropped: int = 0
    streams_over_budget: int = 0
    connections_over_budget: int = 0
    gossip_dropped: int = 0
    gossip_over_budget: int = 0
    connections_stalled: int = 0
    connections_flooded: int = 0
    handlers_failed: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """A snapshot of the totals, and of the connections that are open now."""

    connections: int
    streams_dropped: int  # an inbound stream raised in the library and was reset
    streams_over_budget: int  # reset unheard, as the peer opens too many
    connections_over_budget: int  # closed unheard, as their source makes too many
    gossip_dropped: int  # a gossip message raised while it was taken in
    gossip_over_budget: int  # messages dropped unread, as their forwarder sends too many
    connections_stalled: int  # closed, because the peer did not drain what we wrote
    connections_flooded: int  # closed, because the peer sent beyond what we let it
    handlers_failed: int  # a handler or judge of ours has a bug; the log has it
    bytes_sent: int  # over all connections, encryption included
    bytes_received: int
