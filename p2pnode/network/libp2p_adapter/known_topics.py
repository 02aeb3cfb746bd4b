"""The library's GossipSub router for the topics that there are; it invents no rule of its own.

The library keeps times and counts for every topic that a peer names, in maps that nobody clears:
an hour of invented names fills the memory. It also forgets no peer that it was asked to leave
alone for a while.
"""

from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pb.rpc_pb2 import ControlGraft, ControlIHave, ControlPrune


class KnownTopicsRouter(GossipSub):
    """Hears of the allowed topics of its pubsub only; what a peer left behind goes with it."""

    async def handle_ihave(self, ihave_msg: ControlIHave, sender_peer_id: ID) -> None:
        """See GossipSub."""
        if self._knows(ihave_msg.topicID):
            await super().handle_ihave(ihave_msg, sender_peer_id)

    async def handle_graft(self, graft_msg: ControlGraft, sender_peer_id: ID) -> None:
        """See GossipSub. A GRAFT for another topic is not even declined."""
        if self._knows(graft_msg.topicID):
            await super().handle_graft(graft_msg, sender_peer_id)

    async def handle_prune(self, prune_msg: ControlPrune, sender_peer_id: ID) -> None:
        """See GossipSub."""
        if self._knows(prune_msg.topicID):
            await super().handle_prune(prune_msg, sender_peer_id)

    def remove_peer(self, peer_id: ID) -> None:
        """See GossipSub."""
        super().remove_peer(peer_id)
        for waits in self.back_off.values():
            waits.pop(peer_id, None)

    def _knows(self, topic: str) -> bool:
        return self.pubsub is not None and topic in self.pubsub.allowed_topics
