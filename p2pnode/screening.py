"""Whom and what an owner lets in: images, renters, regions and networks, allowed or denied. Pure.

Deny goes before allow. Where something of a kind is allowed, all else of that kind is not.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_network
from typing import Final, Literal, NamedTuple

from p2pnode.image_names import DIGEST, digest_in, repository, tag_in
from p2pnode.regions import regions_of
from protocol.errors import LocalFault

Verdict = Literal["allow", "deny"]
Kind = Literal["image", "renter", "region", "network"]
KINDS: Final[tuple[Kind, ...]] = ("image", "renter", "region", "network")
RULES_MAX: Final = 256

_REPOSITORY: Final = re.compile(r"[a-z0-9*?][a-z0-9._/*?:-]{0,200}")
_RENTER: Final = re.compile(r"[0-9a-f]{64}")
_REGION: Final = re.compile(r"[A-Z]{2}")
_EXAMPLES: Final[dict[Kind, str]] = {
    "image": "ghcr.io/me/* or sha256: and 64 hex digits",
    "renter": "the 64 hex digits of a feed or an account",
    "region": "DE",
    "network": "203.0.113.0/24",
}


class Rule(NamedTuple):
    """One word of the owner about one kind of thing."""

    verdict: Verdict
    kind: Kind
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """What is known of who wants in, and of what it wants to run; None is not known."""

    image: str | None = None
    """NAME@sha256:… or sha256:…"""
    feed: str | None = None
    account: str | None = None
    """Both in hexadecimal."""
    region: str | None = None
    """As the renter says."""
    address: str | None = None
    """Of its connection."""


def check_rule(rule: Rule) -> Rule:
    """The rule, as it is compared. Raises LocalFault."""
    kind, pattern = rule.kind, rule.pattern.strip()
    try:
        if kind == "network":
            return rule._replace(pattern=str(ip_network(pattern)))
        if kind == "image":
            return rule._replace(pattern=_image_pattern(rule.verdict, pattern))
        shape = {"renter": _RENTER, "region": _REGION}[kind]
        if not shape.fullmatch(pattern):
            raise ValueError
        if kind == "region" and regions_of([pattern]) != (pattern,):
            raise LocalFault(
                f"{pattern} is a set of countries, and a rule takes one.",
                "p2pnode allow add region DE, and so on for each",
            )
        return rule._replace(pattern=pattern)
    except ValueError as error:
        raise LocalFault(
            f"{rule.pattern[:80]!a} names no {kind}.", f"write for example {_EXAMPLES[kind]}"
        ) from error


def why_not(rules: Iterable[Rule], guest: Guest, kinds: Iterable[Kind] = KINDS) -> str | None:
    """The first reason to keep the guest out, in a sentence for it; None if there is none."""
    of_kind: dict[Kind, list[Rule]] = {}
    for rule in rules:
        of_kind.setdefault(rule.kind, []).append(rule)
    for kind in kinds:
        some = of_kind.get(kind, [])
        allowed = [rule for rule in some if rule.verdict == "allow"]
        denied = next((r for r in some if r.verdict == "deny" and matches(r, guest)), None)
        if denied is not None:
            return f"the owner denies {_named(denied)}"
        if allowed and not any(matches(rule, guest) for rule in allowed):
            return f"the owner allows {_listed(kind, allowed)}"
    return None


def matches(rule: Rule, guest: Guest) -> bool:
    """Whether the rule is about this guest; what is not known matches nothing."""
    if rule.kind == "image":
        return guest.image is not None and _is_image(rule.pattern, guest.image)
    if rule.kind == "renter":
        return rule.pattern in {guest.feed, guest.account}
    if rule.kind == "region":
        return rule.pattern == guest.region
    return guest.address is not None and _is_within(guest.address, rule.pattern)


def _image_pattern(verdict: Verdict, pattern: str) -> str:
    """A digest, or a pattern of repositories in full. Raises ValueError or LocalFault."""
    if "@" in pattern or DIGEST.fullmatch(pattern):
        # Whatever its name, the digest alone says what is run.
        digest = digest_in(pattern)
        if digest is None or not _REPOSITORY.fullmatch(pattern.partition("@")[0]):
            raise ValueError
        return digest
    if not _REPOSITORY.fullmatch(pattern):
        raise ValueError
    if verdict == "allow" and tag_in(pattern) not in {"", "*"}:
        raise LocalFault(
            f"{pattern[:80]!a} allows a tag, which may mean another image tomorrow.",
            "allow the repository without a tag, or sha256: and the digest",
        )
    return repository(pattern) or pattern


def _is_image(pattern: str, image: str) -> bool:
    digest, name = digest_in(image), repository(image)
    # What was kept before names had one form is compared by it as well.
    return pattern == digest or (
        name is not None and fnmatchcase(name, repository(pattern) or pattern)
    )


def _is_within(address: str, network: str) -> bool:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (found if mapped is None else mapped) in ip_network(network)


def _named(rule: Rule) -> str:
    """What renters are told; who else is denied is nobody's business."""
    return {
        "image": f"images {rule.pattern}",
        "renter": "this renter",
        "region": f"renters of region {rule.pattern}",
        "network": "the renter's network",
    }[rule.kind]


def _listed(kind: Kind, allowed: list[Rule]) -> str:
    if kind in {"renter", "network"}:
        return f"certain {kind}s only"
    return f"{kind} {', '.join(rule.pattern for rule in allowed)[:120]} only"
