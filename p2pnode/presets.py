"""Images under short names: those that come with this program, and the user's own."""

import tomllib
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from p2pnode.home import Home, read_if_there
from protocol.errors import LocalFault

FILE_BYTES_MAX: Final = 262_144


class Preset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One image, and what it needs."""

    name: Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9.-]{0,40}\Z")]
    image: Annotated[str, Meta(pattern=r"\A[a-z0-9][a-z0-9._/:-]{0,200}@sha256:[0-9a-f]{64}\Z")]
    """By digest, so that it is the same everywhere and for ever."""
    cuda: Annotated[str, Meta(pattern=r"\A([0-9]{1,2}\.[0-9]{1,2})?\Z")] = ""
    """The CUDA version that the driver must run; empty: none."""
    about: str = ""


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    preset: tuple[Preset, ...] = ()


def presets_file(home: Home) -> Path:
    """Where the user's own are."""
    return home.config_dir / "presets.toml"


def presets_of(home: Home) -> dict[str, Preset]:
    """All by name; one of the user's own goes before one that ships. Raises LocalFault."""
    shipped = (files("p2pnode") / "presets.toml").read_text("utf-8")
    own = read_if_there(presets_file(home), size_max=FILE_BYTES_MAX) or b""
    return {
        each.name: each
        for each in (
            *_read(shipped, "presets.toml"),
            *_read(own.decode("utf-8", "replace"), str(presets_file(home))),
        )
    }


def preset_named(home: Home, name: str) -> Preset:
    """Raises LocalFault if there is none."""
    presets = presets_of(home)
    if name not in presets:
        raise LocalFault(f"There is no preset {name!a}.", "p2pnode preset list")
    return presets[name]


def _read(text: str, origin: str) -> Iterable[Preset]:
    try:
        found = msgspec.convert(tomllib.loads(text), _File).preset
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise LocalFault(f"{origin}: {error}", "p2pnode preset show pytorch prints one") from error
    names = [each.name for each in found]
    if len(dict.fromkeys(names)) < len(names):
        raise LocalFault(f"{origin}: a name is there twice.", "rename one")
    return found
