"""By which digests jobs may name an image that an engine has. Pure."""

from typing import Any


def digests_of(image: dict[str, Any]) -> list[bytes]:
    """SHA-256 of the image's configuration, and of its manifests as registries name them."""
    names = [image.get("Id") or "", *(image.get("RepoDigests") or ())]
    marks = (name.rpartition("sha256:")[2] for name in names if "sha256:" in name)
    return [bytes.fromhex(mark) for mark in marks if _is_digest(mark)]


def _is_digest(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)
