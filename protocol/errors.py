"""Errors are named for who must act on them."""

from typing import Final


class P2PError(Exception):
    """An outcome that the program expects in normal running."""


class PeerFault(P2PError):
    """A peer broke a rule of the protocol: refuse, count, perhaps accuse.

    `rule` is the rule's name in SPEC.md, for example `advert.expired`.
    """

    def __init__(self, rule: str, detail: str = "") -> None:
        super().__init__(f"{rule}: {detail}" if detail else rule)
        self.rule: Final = rule
        self.detail: Final = detail


class LocalFault(P2PError):
    """Our user or our host must act: `what` is one sentence, `cure` is what to do."""

    def __init__(self, what: str, cure: str = "") -> None:
        super().__init__(f"{what}  try: {cure}" if cure else what)
        self.what: Final = what
        self.cure: Final = cure


class Unavailable(P2PError):
    """The peer or the service is not there now; trying again later may work."""
