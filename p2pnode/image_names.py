"""By which names and digests an image goes, in one form for rules, jobs and engines. Pure."""

import re
from typing import Any, Final

DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")

_HUB: Final = "docker.io"
_HUB_HOSTS: Final = frozenset(
    {_HUB, "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"}
)
"""All of one registry, which is meant where a name has no host."""


def digests_of(image: dict[str, Any]) -> list[bytes]:
    """SHA-256 of the image's configuration, and of its manifests as registries name them."""
    names = [image.get("Id") or "", *(image.get("RepoDigests") or ())]
    marks = (name.rpartition("sha256:")[2] for name in names if "sha256:" in name)
    return [bytes.fromhex(mark) for mark in marks if _is_digest(mark)]


def digest_in(image: str) -> str | None:
    """The `sha256:…` in NAME@sha256:… or by itself."""
    last = image.rpartition("@")[2]
    return last if DIGEST.fullmatch(last) else None


def tag_in(image: str) -> str:
    """The tag in NAME:TAG or NAME:TAG@sha256:…; empty if there is none."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


def repository(image: str) -> str | None:
    """The repository in full, without tag and digest; None for a digest by itself.

    `nginx:1`, `docker.io/nginx` and `index.docker.io/library/nginx@sha256:…` are all
    docker.io/library/nginx. The same goes for a pattern of names; one that begins with `*` is for
    names of any host.
    """
    if DIGEST.fullmatch(image):
        return None
    head, slash, tail = image.partition("@")[0].lower().rpartition("/")
    name = f"{head}{slash}{tail.partition(':')[0]}"
    if name.startswith("*"):
        return name
    first, slash, rest = name.partition("/")
    if not slash or not _is_host(first):
        first, rest = _HUB, name
    host = first.removesuffix(":443").rstrip(".")
    if host not in _HUB_HOSTS:
        return f"{first}/{rest}"
    is_official = "/" not in rest and not rest.startswith("*")
    return f"{_HUB}/library/{rest}" if is_official else f"{_HUB}/{rest}"


def _is_host(first: str) -> bool:
    return "." in first or ":" in first or first == "localhost" or "*" in first


def _is_digest(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
