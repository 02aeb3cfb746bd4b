"""Whom and what an owner lets in: deny before allow, and a reason for each refusal."""

import pytest

from p2pnode.image_names import repository
from p2pnode.screening import Guest, Rule, check_rule, why_not
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
        ("docker.io/nginx", "docker.io/library/nginx"),
        (f"docker.io/nginx:1@{DIGEST}", "docker.io/library/nginx"),
        ("index.docker.io/library/nginx:1", "docker.io/library/nginx"),
        ("index.docker.io/nginx", "docker.io/library/nginx"),
        ("registry-1.docker.io/me/app", "docker.io/me/app"),
        ("Docker.io:443/me/app", "docker.io/me/app"),
        ("docker.io/*", "docker.io/*"),
        ("docker.io/ng*", "docker.io/library/ng*"),
        ("*/nginx", "*/nginx"),
        ("registry.example:443/app", "registry.example:443/app"),
        (DIGEST, None),
    ],
)
def test_one_repository_has_one_name(image: str, expected: str | None) -> None:
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
        (("deny image nginx",), Guest(image="nginx"), "denies images docker.io/library/nginx"),
        (("deny image nginx@" + DIGEST,), Guest(image=DIGEST), "denies images sha256:aa"),
        (("deny image nginx@" + DIGEST,), Guest(image=f"nginx@{OTHER}"), None),
        (("allow image nginx",), Guest(image=f"docker.io/nginx@{DIGEST}"), None),
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


@pytest.mark.parametrize(
    "name", ["nginx", "docker.io/nginx", "docker.io/library/nginx", "index.docker.io/library/nginx"]
)
@pytest.mark.parametrize("tag", ["", ":1.27"])
def test_one_image_is_denied_by_each_of_its_names(name: str, tag: str) -> None:
    rule = check_rule(Rule("deny", "image", name + tag))
    kept = Rule("deny", "image", name)  # as it was kept before
    for other in ("nginx", "docker.io/nginx:2", "index.docker.io/library/nginx", "docker.io/nginx"):
        for each in (rule, kept):
            assert why_not([each], Guest(image=f"{other}@{DIGEST}")) is not None
    assert why_not([rule], Guest(image=f"ghcr.io/library/nginx@{DIGEST}")) is None


def test_a_tag_is_not_allowed_since_it_may_be_moved() -> None:
    with pytest.raises(LocalFault, match="tomorrow"):
        check_rule(Rule("allow", "image", "nginx:1.27"))
    assert check_rule(Rule("allow", "image", "localhost:5000/nginx")).pattern == (
        "localhost:5000/nginx"
    )


def test_only_the_kinds_that_are_asked_for_are_judged() -> None:
    rules = [Rule("allow", "image", DIGEST), Rule("deny", "region", "FR")]
    assert why_not(rules, Guest(region="DE"), ("region",)) is None
    assert why_not(rules, Guest(region="FR"), ("image", "region")) is not None


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("image", ""),
        ("image", "Ghcr.io/me"),
        ("image", f"nginx@{DIGEST[:-1]}"),
        ("image", f"@{DIGEST}"),
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
