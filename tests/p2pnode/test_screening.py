"""Whom and what an owner lets in: deny before allow, and a reason for each refusal."""

import pytest

from p2pnode.screening import Guest, Rule, check_rule, repository, why_not
from protocol.errors import LocalFault

DIGEST = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64
KEY, OTHER_KEY = "7f" * 32, "80" * 32


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nginx", "docker.io/library/nginx"),
        ("nginx:1.27", "docker.io/library/nginx"),
        (f"nginx:1.27@{DIGEST}", "docker.io/library/nginx"),
        ("me/app", "docker.io/me/app"),
        ("ghcr.io/me/app:latest", "ghcr.io/me/app"),
        ("localhost/app", "localhost/app"),
        ("registry.example:5000/app:1", "registry.example:5000/app"),
        ("docker.io/library/nginx", "docker.io/library/nginx"),
    ],
)
def test_one_repository_has_one_name(image: str, expected: str) -> None:
    assert repository(image) == expected


@pytest.mark.parametrize(
    ("rules", "guest", "why"),
    [
        # M7: by digest, by repository, by renter, by what it is near to.
        ((), Guest(image=DIGEST), None),
        (("deny image " + DIGEST,), Guest(image=f"any@{DIGEST}"), "denies images sha256:"),
        (("deny image " + DIGEST,), Guest(image=OTHER), None),
        (("deny image docker.io/*",), Guest(image=f"nginx@{DIGEST}"), "denies images docker.io/*"),
        (("deny image nginx",), Guest(image=f"nginx:9@{DIGEST}"), "denies images docker.io/lib"),
        (("allow image ghcr.io/me/*",), Guest(image=f"ghcr.io/me/a@{DIGEST}"), None),
        (("allow image ghcr.io/me/*",), Guest(image=f"ghcr.io/you/a@{DIGEST}"), "allows image gh"),
        (("allow image ghcr.io/me/*",), Guest(image=DIGEST), "allows image ghcr.io/me/* only"),
        (("allow image ghcr.io/me/*",), Guest(), "allows image ghcr.io/me/* only"),
        (
            ("allow image ghcr.io/me/*", "deny image ghcr.io/me/miner"),
            Guest(image=f"ghcr.io/me/miner@{DIGEST}"),
            "denies images ghcr.io/me/miner",
        ),
        (("deny renter " + KEY,), Guest(feed=KEY, account=OTHER_KEY), "denies this renter"),
        (("deny renter " + KEY,), Guest(feed=OTHER_KEY, account=KEY), "denies this renter"),
        (("deny renter " + KEY,), Guest(feed=OTHER_KEY, account=OTHER_KEY), None),
        (("allow renter " + KEY,), Guest(feed=OTHER_KEY), "allows certain renters only"),
        (("deny region FR",), Guest(region="FR"), "denies renters of region FR"),
        (("deny region FR",), Guest(), None),
        (("allow region DE", "allow region NL"), Guest(region="NL"), None),
        (("allow region DE", "allow region NL"), Guest(), "allows region DE, NL only"),
        (("deny network 203.0.113.0/24",), Guest(address="203.0.113.9"), "the renter's network"),
        (("deny network 203.0.113.0/24",), Guest(address="::ffff:203.0.113.9"), "network"),
        (("deny network 203.0.113.0/24",), Guest(address="203.0.114.9"), None),
        (("deny network 203.0.113.0/24",), Guest(address="nonsense"), None),
        (("allow network fd00::/8",), Guest(address="fd00::1%eth0"), None),
        (("allow network fd00::/8",), Guest(address="203.0.113.9"), "certain networks only"),
    ],
)
def test_each_rule_lets_in_and_keeps_out(
    rules: tuple[str, ...], guest: Guest, why: str | None
) -> None:
    read = [check_rule(Rule(*text.split(" ", 2))) for text in rules]  # type: ignore[arg-type]
    said = why_not(read, guest)
    assert (said is None) if why is None else said is not None and why in said


def test_only_the_kinds_that_are_asked_for_are_judged() -> None:
    rules = [Rule("allow", "image", DIGEST), Rule("deny", "region", "FR")]
    assert why_not(rules, Guest(region="DE"), ("region",)) is None
    assert why_not(rules, Guest(region="FR"), ("image", "region")) is not None


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("image", ""),
        ("image", "Ghcr.io/me"),
        ("image", f"nginx@{DIGEST}"),
        ("image", "a\x1b"),
        ("renter", KEY[:-1]),
        ("region", "de"),
        ("network", "203.0.113.1/24"),
        ("network", "here"),
    ],
)
def test_what_names_nothing_is_refused_with_an_example(kind: str, pattern: str) -> None:
    with pytest.raises(LocalFault) as caught:
        check_rule(Rule("deny", kind, pattern))  # type: ignore[arg-type]
    assert caught.value.cure.startswith("write for example")
    assert caught.value.what.isprintable()
