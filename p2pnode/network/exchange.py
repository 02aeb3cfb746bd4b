"""Questions and answers between two peers, on one long-lived stream for each direction.

The side that opened the stream asks, the other answers in order. The first frame of either side is
its HELLO. SPEC.md 7.3.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio
from msgspec import UNSET

from p2pnode.network.budget import Budget
from p2pnode.network.frames import FrameReader, write_frame
from p2pnode.network.transport import Streams
from protocol.certificate import Certificate
from protocol.codec import decode, encode
from protocol.errors import PeerFault, Unavailable
from protocol.hello import Answer, Hello, Question
from protocol.limits import FRAME_BYTES_MAX, HELLO_BYTES_MAX
from protocol.units import PeerId

log = logging.getLogger(__name__)

PROTOCOL: Final = "/p2pnode/ask/1"
HELLO_S: Final = 5
"""A peer that accepts a stream and then says nothing is given up after this."""
QUESTIONS_WAITING_MAX: Final = 64
"""Questions to one peer that may be unsent; the next one waits for room."""
QUESTIONS_PER_S: Final = 50
QUESTIONS_BURST: Final = 200
"""One peer's questions beyond this are answered late, which slows it down by itself.

At a millisecond for each they take a twentieth of a core."""
FAULTS_PER_S: Final = 0.1
FAULTS_BURST: Final = 20
"""A peer that breaks more rules than this is not answered until it has been quiet for a while."""
PEERS_MAX: Final = 4_096

Handler = Callable[[PeerId, bytes], Awaitable[bytes]]
"""handler(remote, body) -> body of the answer; raises PeerFault to refuse."""


UNAVAILABLE: Final = "unavailable"
"""The rule in an answer of a peer that may answer later, so that nothing is concluded from it."""


class Refused(Unavailable):
    """The peer was reached, and will not answer."""

    def __init__(self, rule: str) -> None:
        super().__init__(f"refused: {rule}")
        self.rule: Final = rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquaintance:
    """What a peer said in its HELLO, verified."""

    hello: Hello
    certificate: Certificate


CheckHello = Callable[[PeerId, Hello], Certificate]
"""Raises PeerFault when the peer is not one of ours."""


class _Waiting:
    """A question under way: `answered` is set when `answer` or nothing more will come."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.answered = trio.Event()
        self.answer: Answer | None = None


class _Line:
    """Our outbound stream to one peer."""

    def __init__(self, peer: PeerId) -> None:
        self.peer = peer
        self.to_send, self.outgoing = trio.open_memory_channel[_Waiting](QUESTIONS_WAITING_MAX)
        self.waiting: dict[int, _Waiting] = {}
        self.acquaintance: Acquaintance | None = None
        """None until the peer has said HELLO."""
        self.why_closed = ""

    def close(self, why: str) -> None:
        """Let everybody who waits know that no answer will come."""
        self.why_closed = self.why_closed or why
        self.to_send.close()
        for waiting in self.waiting.values():
            waiting.answered.set()
        self.waiting.clear()


async def answer_ping(_peer: PeerId, _body: bytes) -> bytes:
    """The question `ping`: that we are here is all there is to say."""
    await trio.lowlevel.checkpoint()
    return b""


class Exchange:
    """Asks peers, and answers them by the handlers it was given."""

    def __init__(
        self,
        *,
        streams: Streams,
        hello: Callable[[], Hello],
        check_hello: CheckHello,
        handlers: dict[str, Handler],
    ) -> None:
        self._streams = streams
        self._hello = hello
        self._check_hello = check_hello
        self._handlers = handlers
        self._lines: dict[PeerId, _Line] = {}
        self._known: dict[PeerId, Acquaintance] = {}
        self._to_open, self._opening = trio.open_memory_channel[_Line](PEERS_MAX)
        self._questions: Budget[PeerId] = Budget(
            per_s=QUESTIONS_PER_S, burst=QUESTIONS_BURST, keys_max=PEERS_MAX
        )
        self._faults: Budget[PeerId] = Budget(
            per_s=FAULTS_PER_S, burst=FAULTS_BURST, keys_max=PEERS_MAX
        )
        self._next_id = 0
        self.refused: dict[str, int] = {}
        """How often each rule was broken by a question or a HELLO of others."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer and ask until cancelled."""
        self._streams.serve(PROTOCOL, self._answer_stream)
        async with trio.open_nursery() as nursery:
            task_status.started()
            async for line in self._opening:
                nursery.start_soon(self._run_line, line)

    def acquaintance(self, peer: PeerId) -> Acquaintance | None:
        """Who a peer is, once a HELLO has been exchanged with it."""
        line = self._lines.get(peer)
        return self._known.get(peer) or (None if line is None else line.acquaintance)

    async def ask(self, peer: PeerId, kind: str, body: bytes) -> bytes:
        """The answer of a connected peer; the deadline is the caller's.

        Raises Unavailable if the peer cannot be reached, goes away, or refuses; then the message
        names the rule.
        """
        return await self._ask(self._line(peer), kind, body)

    async def greet(self, peer: PeerId) -> Acquaintance:
        """Exchange HELLOs with a connected peer. Raises Unavailable."""
        line = self._line(peer)
        await self._ask(line, "ping", b"")
        assert line.acquaintance is not None, "its HELLO comes before any answer"
        return line.acquaintance

    def _line(self, peer: PeerId) -> _Line:
        """The one that is open, or a new one."""
        line = self._lines.get(peer)
        if line is None:
            line = self._lines[peer] = _Line(peer)
            self._to_open.send_nowait(line)
        return line

    async def _ask(self, line: _Line, kind: str, body: bytes) -> bytes:
        """See ask."""
        self._next_id += 1
        waiting = _Waiting(Question(id=self._next_id, t=kind, b=body))
        line.waiting[waiting.question.id] = waiting
        try:
            await line.to_send.send(waiting)
            await waiting.answered.wait()
        except (trio.ClosedResourceError, trio.BrokenResourceError) as error:
            raise Unavailable(line.why_closed) from error
        finally:
            line.waiting.pop(waiting.question.id, None)
        if waiting.answer is None:
            raise Unavailable(line.why_closed)
        if waiting.answer.rule == UNAVAILABLE:
            raise Unavailable(f"the peer cannot answer now: {waiting.answer.why}")
        if waiting.answer.b is UNSET:
            raise Refused(str(waiting.answer.rule))
        return waiting.answer.b

    async def _run_line(self, line: _Line) -> None:
        """Our side of one outbound stream, from its opening to its end; raises nothing."""
        why = "cancelled"
        try:
            stream = await self._streams.open_stream(line.peer, PROTOCOL)
            async with stream:
                reader = FrameReader(stream)
                await self._greet_first(line, stream, reader)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send_questions, line, stream)
                    why = await self._read_answers(line, reader)
                    nursery.cancel_scope.cancel()
        except PeerFault as fault:
            self._count(line.peer, fault)
            why = str(fault)
        except Unavailable as error:
            why = str(error)
        except trio.TooSlowError:
            why = f"no HELLO within {HELLO_S} s"
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            why = "the connection was lost"
        finally:
            del self._lines[line.peer]
            line.close(why)

    async def _greet_first(self, line: _Line, stream: trio.abc.Stream, reader: FrameReader) -> None:
        with trio.fail_after(HELLO_S):
            await write_frame(stream, encode(self._hello()))
            line.acquaintance = await self._meet(line.peer, reader)

    async def _send_questions(self, line: _Line, stream: trio.abc.Stream) -> None:
        try:
            async for waiting in line.outgoing:
                if waiting.question.id in line.waiting:  # else its asker has given up
                    await write_frame(stream, encode(waiting.question))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # The reader of the same stream sees it too, and ends the line.

    async def _read_answers(self, line: _Line, reader: FrameReader) -> str:
        """Hand answers to who waits for them; why there are no more."""
        try:
            while (frame := await reader.next()) is not None:
                answer = decode(frame, Answer, size_max=FRAME_BYTES_MAX)
                # An asker who gave up has left: a late answer is no fault.
                if (waiting := line.waiting.pop(answer.id, None)) is not None:
                    waiting.answer = answer
                    waiting.answered.set()
        except PeerFault as fault:
            self._count(line.peer, fault)
            return str(fault)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return "the connection was lost"
        return "the peer closed the stream"

    async def _answer_stream(self, peer: PeerId, stream: trio.abc.Stream) -> None:
        """The other side's stream of questions, answered in order until it ends."""
        reader = FrameReader(stream)
        try:
            with trio.fail_after(HELLO_S):
                known = await self._meet(peer, reader)
                await write_frame(stream, encode(self._hello()))
            while (frame := await reader.next()) is not None:
                if self._is_shunned(peer):
                    return
                await trio.sleep(self._questions.draw(peer, trio.current_time()))
                question = decode(frame, Question, size_max=FRAME_BYTES_MAX)
                # However many have said HELLO since: who asks is known to whoever answers.
                self._remember(peer, known)
                await write_frame(stream, encode(await self._answer(peer, question)))
        except PeerFault as fault:
            self._count(peer, fault)

    async def _answer(self, peer: PeerId, question: Question) -> Answer:
        handler = self._handlers.get(question.t)
        if handler is None:
            return Answer(id=question.id, rule="question.kind")
        try:
            return Answer(id=question.id, b=await handler(peer, question.b))
        except PeerFault as fault:
            self._count(peer, fault)
            return Answer(id=question.id, rule=fault.rule, why=fault.detail[:200])
        except Unavailable as error:
            return Answer(id=question.id, rule=UNAVAILABLE, why=str(error)[:200])

    async def _meet(self, peer: PeerId, reader: FrameReader) -> Acquaintance:
        if self._is_shunned(peer):
            raise Unavailable("shunned for the rules it broke")
        frame = await reader.next(HELLO_BYTES_MAX)
        if frame is None:
            raise Unavailable("no HELLO")
        hello = decode(frame, Hello, size_max=HELLO_BYTES_MAX)
        certificate = self._check_hello(peer, hello)
        known = Acquaintance(hello=hello, certificate=certificate)
        self._remember(peer, known)
        return known

    def _remember(self, peer: PeerId, known: Acquaintance) -> None:
        self._known.pop(peer, None)
        self._known[peer] = known
        while len(self._known) > PEERS_MAX:
            del self._known[next(iter(self._known))]

    def _count(self, peer: PeerId, fault: PeerFault) -> None:
        self.refused[fault.rule] = self.refused.get(fault.rule, 0) + 1
        self._faults.is_within(peer, trio.current_time())
        log.info(
            "peer broke a rule",
            extra={"peer": peer.hex(), "rule": fault.rule, "detail": fault.detail},
        )

    def _is_shunned(self, peer: PeerId) -> bool:
        return self._faults.left(peer, trio.current_time()) < 1
