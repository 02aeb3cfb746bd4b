"""An owner that grants one GPU to two renters at once: shipping code over ports that lie.

Each victim is shown a branch of the owner's feed of its own, and each branch by itself is in order;
everybody else is shown neither. Only for testnets: no shipping code knows of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import trio

from ledger.entry import Entry
from ledger.fold import Lease
from ledger.guard import MemoryGuard
from ledger.ledger import Ledger, open_ledger
from ledger.store import MemoryStore
from p2pnode.clock import SystemClock
from p2pnode.home import find_home
from p2pnode.identity import Identity, load_identity
from p2pnode.membership import genesis_of
from p2pnode.network.transport import Judge, StreamHandler, Transport
from p2pnode.ports import Ports
from p2pnode.replication.replication import PROTOCOL, Replication
from p2pnode.up import Ready, run_node
from protocol.errors import Unavailable
from protocol.genesis import net_of
from protocol.lease import LeaseRequest
from protocol.signing import Signer
from protocol.units import Digest, Millis, PeerId, PublicKey
from protocol.wire import unpack
from testnet.plan import NodePlan
from testnet.processes import RunPlan, run_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A renter that will be granted what another one is granted too."""

    feed: PublicKey
    peer: PeerId


def victim_of(identity: Identity) -> Victim:
    """This node as a victim."""
    return Victim(feed=identity.feed.public, peer=identity.certificate.peer_id)


def identity_of(plan: NodePlan) -> Identity:
    """Of a node whose home is there. Raises LocalFault."""
    home = find_home(plan.home)
    return load_identity(home, net_of(genesis_of(home)), SystemClock().now())


def run_with_cheat(offender: int, victims: tuple[NodePlan, ...]) -> RunPlan:
    """How to run the nodes of a testnet one of which cheats these others."""

    def run(plan: NodePlan, on_ready: Callable[[Ready], None]) -> None:
        if plan.index != offender:
            run_plan(plan, on_ready)
            return
        cheated = tuple(victim_of(identity_of(victim)) for victim in victims)
        signer = identity_of(plan).feed
        run_node(
            find_home(plan.home),
            on_ready=on_ready,
            wrap=lambda ports: cheating(ports, signer, cheated),
        )

    return run


def cheating(ports: Ports, signer: Signer, victims: tuple[Victim, ...]) -> Ports:
    """The ports of an owner that signs with this key and cheats these renters."""
    faces = {
        victim.peer: _Face(_branch_of(ports.ledger, signer), victim, ports) for victim in victims
    }
    return replace(
        ports,
        ledger=TwoFacedLedger(
            ports.ledger, {face.victim.feed: face.branch for face in faces.values()}
        ),
        transport=_TwoFacedTransport(ports.transport, faces),
        services=(*ports.services, *(face.run for face in faces.values())),
    )


def _branch_of(main: Ledger, signer: Signer) -> Ledger:
    """Another ledger with our feed as it is now; both can be continued, each in its own way."""
    branch = open_ledger(
        store=MemoryStore(), guard=MemoryGuard(), signer=signer, net=main.net, uuid=main.uuid
    )
    head = main.head(main.feed)
    assert head is not None
    for raw in main.entries(main.feed, 0, head.seq + 1):
        branch.ingest(raw)
    branch.confirm_head()
    return branch


class TwoFacedLedger(Ledger):
    """See Ledger. What it grants stands in the victims' branches alone; here the GPU stays free."""

    def __init__(self, main: Ledger, branches: dict[PublicKey, Ledger]) -> None:
        # The very parts of `main`, under methods some of which lie.
        self.__dict__.update(main.__dict__)
        self._branches = branches

    def grant(self, request: bytes, now: Millis) -> Entry:
        branch = self._branches.get(unpack(request, self.net, LeaseRequest).signer)
        if branch is None:
            raise Unavailable("this build grants to its victims alone")
        return branch.grant(request, now)

    def grant_for(self, renter: PublicKey, nonce: bytes) -> Entry | None:
        branch = self._branches.get(renter)
        return None if branch is None else branch.grant_for(renter, nonce)

    def lease(self, grant: Digest) -> Lease | None:
        found = (branch.lease(grant) for branch in self._branches.values())
        return next((lease for lease in found if lease is not None), None) or super().lease(grant)


class _Face:
    """What one victim is shown: answers its sync from a branch, as a node would."""

    def __init__(self, branch: Ledger, victim: Victim, ports: Ports) -> None:
        self.branch: Final = branch
        self.victim: Final = victim
        self._listener = _Listener()
        self._replication = Replication(
            ledger=branch,
            streams=self._listener,
            reach=self._listener.reach,
            wants=lambda _feed: False,
            on_entry=lambda _entry: None,
            on_news=lambda: None,
            rng=ports.rng,
        )

    @property
    def has_granted(self) -> bool:
        """Whether the victim has its lease."""
        return bool(self.branch.state.leases())

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """See Service."""
        await self._replication.run(task_status=task_status)

    async def answer(self, stream: trio.abc.Stream) -> None:
        """See StreamHandler."""
        assert self._listener.handler is not None
        await self._listener.handler(self.victim.peer, stream)


class _Listener:
    """See Streams. Only answers."""

    def __init__(self) -> None:
        self.handler: StreamHandler | None = None

    async def reach(self, _peer: PeerId) -> None:
        await trio.lowlevel.checkpoint()
        raise Unavailable("a cheat calls nobody")

    async def connect(self, peer: PeerId, addresses: tuple[str, ...]) -> None:  # noqa: ARG002
        await self.reach(peer)

    async def open_stream(self, peer: PeerId, protocol: str) -> trio.abc.Stream:
        await self.reach(peer)
        raise Unavailable(protocol)

    def serve(self, protocol: str, handler: StreamHandler) -> None:
        assert protocol == PROTOCOL
        self.handler = handler

    def neighbours(self) -> tuple[PeerId, ...]:
        return ()

    def addresses(self) -> tuple[str, ...]:
        return ()


class _TwoFacedTransport:
    """See Transport. Who is cheated is answered by its face; then nobody else is told anything."""

    def __init__(self, transport: Transport, faces: dict[PeerId, _Face]) -> None:
        self._transport = transport
        self._faces = faces

    @property
    def peer_id(self) -> PeerId:
        return self._transport.peer_id

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        await self._transport.run(task_status=task_status)

    async def subscribe(self, topic: str, judge: Judge) -> None:
        await self._transport.subscribe(topic, judge)

    async def publish(self, topic: str, payload: bytes) -> None:
        await self._transport.publish(topic, payload)

    def mesh(self, topic: str) -> tuple[PeerId, ...]:
        return self._transport.mesh(topic)

    async def connect(self, peer: PeerId, addresses: tuple[str, ...]) -> None:
        await self._transport.connect(peer, addresses)

    async def open_stream(self, peer: PeerId, protocol: str) -> trio.abc.Stream:
        if protocol == PROTOCOL and (peer in self._faces or self._is_silent()):
            raise Unavailable("a cheat does not tell")
        return await self._transport.open_stream(peer, protocol)

    def serve(self, protocol: str, handler: StreamHandler) -> None:
        self._transport.serve(protocol, handler if protocol != PROTOCOL else self._sync(handler))

    def _sync(self, handler: StreamHandler) -> StreamHandler:
        async def answer(peer: PeerId, stream: trio.abc.Stream) -> None:
            if peer in self._faces:
                await self._faces[peer].answer(stream)
            elif self._is_silent():
                raise Unavailable("a cheat does not tell")
            else:
                await handler(peer, stream)

        return answer

    def _is_silent(self) -> bool:
        return any(face.has_granted for face in self._faces.values())

    def neighbours(self) -> tuple[PeerId, ...]:
        return self._transport.neighbours()

    def addresses(self) -> tuple[str, ...]:
        return self._transport.addresses()
