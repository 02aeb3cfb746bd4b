"""What this node says of itself when it meets another, and how it judges what that one says."""

from collections.abc import Callable, Mapping
from typing import Final

from p2pnode.clock import WallClock
from p2pnode.config import Role
from p2pnode.identity import Identity
from p2pnode.network.exchange import Handler
from protocol.certificate import Certificate
from protocol.hello import Hello, check_hello
from protocol.limits import FRAME_BYTES_MAX
from protocol.units import NetId, PeerId

AGENT: Final = "p2pnode"


class Greeting:
    """Both halves of a HELLO."""

    def __init__(
        self,
        *,
        identity: Identity,
        net: NetId,
        roles: tuple[Role, ...],
        handlers: Mapping[str, Handler],
        read: Callable[[bytes, NetId], Certificate],
        clock: WallClock,
    ) -> None:
        """`handlers` may grow until the first HELLO; `read` verifies a certificate."""
        self._identity = identity
        self._net = net
        self._roles = roles
        self._handlers = handlers
        self._read = read
        self._clock = clock

    def hello(self) -> Hello:
        """Ours."""
        return Hello(
            net=self._net,
            roles=self._roles,
            kinds=tuple(sorted(self._handlers)),
            certificate=self._identity.certificate_raw,
            frame_bytes_max=FRAME_BYTES_MAX,
            agent=AGENT,
        )

    def check(self, remote: PeerId, hello: Hello) -> Certificate:
        """Whose HELLO this is. Raises PeerFault as `check_hello`."""
        return check_hello(
            hello, remote=remote, net=self._net, now=self._clock.now(), read=self._read
        )
