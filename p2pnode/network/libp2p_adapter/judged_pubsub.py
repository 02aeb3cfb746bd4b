"""The library's pubsub with our judges in place of its validators; it does no networking itself.

A subclass where others need patches, because we construct Pubsub ourselves. It mends, besides:
a message that raises ends the service; there is no verdict "ignore"; the validation cache outlives
the seen cache, so that repeats are delivered unvalidated; own messages are validated; a
subscription's channel overflows when nobody reads it; and a peer may have as much read and as many
signatures verified as it likes.
"""

import hashlib
import logging
from typing import Final, assert_never

import trio
from libp2p.abc import IHost, INetStream
from libp2p.exceptions import ValidationError
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.mcache import CacheEntry, MessageCache
from libp2p.pubsub.pb.rpc_pb2 import Message
from libp2p.pubsub.pubsub import Pubsub

from p2pnode.network.budget import Budget
from p2pnode.network.libp2p_adapter.paced_reading import PacedStream, reading_budget
from p2pnode.network.libp2p_adapter.patches import damage_of
from p2pnode.network.libp2p_adapter.peer_ids import is_peer_id
from p2pnode.network.transport import Judge, Verdict
from protocol.units import PeerId

log = logging.getLogger(__name__)

SIGNATURES_PER_S: Final = 100
SIGNATURES_BURST: Final = 400
"""What one neighbour may make us verify: a hundred a second are a few per cent of a core."""
PEERS_MAX: Final = 1_024


class IgnoredError(Exception):
    """The message goes no further, and nobody is to blame."""


def message_id(message: Message) -> bytes:
    """The digest of author, topics and payload, each with its length.

    Not of the author's sequence number, which the author may repeat over another payload. So the
    same payload in the same topic counts as a repetition for as long as copies of it are about,
    and for SEEN_S more.
    """
    digest = hashlib.sha256()
    for part in (message.from_id, *(topic.encode() for topic in message.topicIDs), message.data):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


class MessagesById(MessageCache):
    """The recent messages, under the same ids by which others know them.

    The library's own cache names them by author and number whatever the configuration, so that
    peers outside the mesh ask each time for what they have long had.
    """

    def put(self, msg: Message) -> None:
        """Keep a message for the next heartbeats."""
        name = message_id(msg)
        if name not in self.msgs:
            self.msgs[name] = msg
            self.history[0].append(CacheEntry(name, msg.topicIDs))


class JudgedPubsub(Pubsub):
    """Asks the topic's judge about each message of others, once."""

    def __init__(
        self,
        host: IHost,
        router: GossipSub,
        *,
        topics: frozenset[str],
        rpc_bytes_max: int,
        seen_s: float,
    ) -> None:
        super().__init__(
            host,
            router,
            strict_signing=True,
            msg_id_constructor=message_id,
            max_inbound_rpc_size=rpc_bytes_max,
            seen_ttl=seen_s,
            allowed_topics=topics,
        )
        self.judges: dict[str, Judge] = {}
        self._reading = reading_budget()
        self._signatures: Budget[ID] = Budget(
            per_s=SIGNATURES_PER_S, burst=SIGNATURES_BURST, keys_max=PEERS_MAX
        )

    async def continuously_read_stream(self, stream: INetStream) -> None:
        """Read one peer's gossip, at a pace, until it ends."""
        await super().continuously_read_stream(PacedStream(stream, self._reading))

    async def push_msg(self, msg_forwarder: ID, msg: Message) -> None:
        """Take in one message, of our own or of a peer."""
        if msg_forwarder == self.my_id:
            await super().push_msg(msg_forwarder, msg)
            return
        await trio.lowlevel.checkpoint()
        # The library verifies before it asks any judge; a repetition it drops for little.
        if not self._is_msg_seen(msg) and not self._may_be_verified(msg_forwarder):
            damage_of(self.host.get_network()).gossip_over_budget += 1
            return
        try:
            await super().push_msg(msg_forwarder, msg)
        except IgnoredError:
            log.debug("gossip ignored", extra={"forwarder": str(msg_forwarder)})
        except Exception as error:  # noqa: BLE001 - keys and ids of a peer raise anything
            damage_of(self.host.get_network()).gossip_dropped += 1
            log.debug(
                "gossip dropped", extra={"forwarder": str(msg_forwarder), "error": repr(error)}
            )

    def _may_be_verified(self, forwarder: ID) -> bool:
        return self._signatures.is_within(forwarder, trio.current_time())

    async def validate_msg(self, msg_forwarder: ID, msg: Message) -> None:
        """Judge a message whose signature has been verified.

        Returns if it is to be forwarded. Raises ValidationError if the forwarder is to blame,
        IgnoredError if nobody is. Of copies that arrive together one is judged.
        """
        await trio.lowlevel.checkpoint()
        if msg_forwarder == self.my_id:
            return
        if self._is_msg_seen(msg):
            raise IgnoredError
        self._mark_msg_seen(msg)
        if msg.from_id == self.my_id.to_bytes():
            raise IgnoredError  # an echo of what we said before a restart
        match self._judge(msg_forwarder, msg):
            case Verdict.ACCEPT:
                return
            case Verdict.IGNORE:
                raise IgnoredError
            case Verdict.REJECT:
                raise ValidationError("rejected by the judge of the topic")
            case never:
                assert_never(never)

    def _judge(self, forwarder: ID, message: Message) -> Verdict:
        if len(message.topicIDs) != 1 or not is_peer_id(message.from_id):
            return Verdict.REJECT
        judge = self.judges.get(message.topicIDs[0])
        if judge is None:
            return Verdict.IGNORE
        return self._ask(judge, PeerId(forwarder.to_bytes()), PeerId(message.from_id), message.data)

    def _ask(self, judge: Judge, *question: *tuple[PeerId, PeerId, bytes]) -> Verdict:
        try:
            return judge(*question)
        except Exception:
            # A bug of ours, yet any peer may be able to trigger it at will.
            damage_of(self.host.get_network()).handlers_failed += 1
            log.exception("judge failed", extra={"publisher": question[1].hex()})
            return Verdict.IGNORE

    def notify_subscriptions(self, publish_message: Message) -> None:
        """Deliver nothing: the judge has taken the message in already."""
