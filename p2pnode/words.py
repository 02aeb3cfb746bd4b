"""What rules, kinds and instants are called where people read them, and text that is safe to print.

Peers choose much of what we show. Nothing of it may move a cursor, hide a line or turn it round.
"""

import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Final

OFFENCES: Final = {
    "A1": "forked its feed: two entries at one place",
    "A2": "forked its feed: an entry does not link to the one before it",
    "A3": "forked its feed: a signed entry and a signed branch that leads past it",
    "A4": "leased a GPU twice: two entries bear one counter of it",
    "A5": "leased a GPU twice: its reservations overlap or do not follow from each other",
    "A6": "broke a GPU's chain: an entry names a predecessor that is not the one there",
    "A7": "ended a lease early without a right to",
    "A8": "broke a firm bid: leased what it had bid to another renter",
    "A9": "revealed another value than it had committed to",
    "A10": "signed two statements of one account that contradict each other",
    "A11": "answered a challenge wrongly: the capability that it claimed is not there",
    "A12": "offered one GPU under two names",
    "A13": "cosigned two entries for one counter, as a witness",
    "A14": "attested both success and failure of one period, as a witness",
    "A15": "wrote a checkpoint that its own entries contradict",
    "A16": "dated an entry falsely: its own messages contradict the time",
    "apart": "broke a GPU's chain by a fork in which no leases meet",
}
"""Rule of `ledger/SPEC.md` section 8, or row of section 14.2 -> what its offender did."""

KINDS: Final = {
    0: ("GENESIS", "opens the feed"),
    1: ("NOTE", "says something"),
    2: ("CAPACITY", "says which GPUs there are"),
    10: ("GRANT", "leases GPUs"),
    11: ("RELEASE", "ends a lease or shortens it"),
    12: ("ACCEPT", "takes a lease"),
    20: ("STATEMENT", "states an account"),
    30: ("CLAIM", "claims a capability"),
    31: ("CHALLENGE", "challenges a claim"),
    32: ("RESPONSE", "answers a challenge"),
    40: ("COSIGN-LOG", "records what was cosigned"),
    41: ("PROBE", "attests an observation"),
    50: ("RAIL-HOLD", "holds money on a rail"),
    51: ("RAIL-CAPTURE", "takes money that was held"),
    52: ("RAIL-VOID", "lets go of money that was held"),
    60: ("CHECKPOINT", "sums up what is below"),
    61: ("SUCCESSOR", "names the feed that it follows"),
    70: ("RULES-SIGNAL", "says which rules are wanted"),
}
"""Kind of an entry -> its name and what an entry of it does."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def offence_words(rule: str) -> str:
    """What the offender did; of a rule that is not in the table, that it is not."""
    return OFFENCES.get(rule, "broke a rule that this version has no words for")


def kind_words(kind: int) -> str:
    """The name of an entry's kind and what it does."""
    if kind not in KINDS:
        return f"kind {kind}, unknown here"
    name, does = KINDS[kind]
    return f"{name}: {does}"


def instant_words(ms: int) -> str:
    """The instant as RFC 3339 in UTC; its milliseconds where no calendar reaches."""
    try:
        at = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms after 1970"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def printable(text: str) -> str:
    """The text in one line, with all that is not a visible character or a space escaped.

    These are controls, line breaks, marks that turn the direction of writing, and lone surrogates.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if _is_hidden(char) else char for char in text)


def _is_hidden(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] == "C" or category in {"Zl", "Zp"}


def _escaped(char: str) -> str:
    return (
        char.encode("ascii", "backslashreplace").decode("ascii")
        if ord(char) > 127
        else (f"\\x{ord(char):02x}")
    )
