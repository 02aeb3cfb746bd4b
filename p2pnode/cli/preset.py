"""`p2pnode preset`: images by digest, under short names, for `run --preset`."""

import importlib
from pathlib import Path
from typing import Any

import click

from p2pnode.cli.output import home_option, json_option, print_struct, print_table, say
from p2pnode.home import find_home


@click.group()
def preset() -> None:
    """See the images that a job can name in short.

    Yours are in presets.toml beside config.toml, as `show` prints one. An owner who pulls an image
    beforehand spares its renters the wait.
    """


@preset.command("list")
@home_option
@json_option
def list_presets(home: Path | None, as_json: bool) -> None:
    """List all presets."""
    documents = importlib.import_module("p2pnode.api.own_documents")
    found = importlib.import_module("p2pnode.presets").presets_of(find_home(home)).values()
    if as_json:
        items = tuple(documents.PresetDocument(**_fields(each)) for each in found)
        print_struct(documents.PresetListDocument(items=items))
    else:
        rows = [(each.name, each.cuda or "-", each.about) for each in found]
        print_table(("PRESET", "CUDA", "IS"), rows)


@preset.command()
@click.argument("name")
@home_option
@json_option
def show(name: str, home: Path | None, as_json: bool) -> None:
    """Print one preset as it stands in a presets.toml."""
    documents = importlib.import_module("p2pnode.api.own_documents")
    found = importlib.import_module("p2pnode.presets").preset_named(find_home(home), name)
    if as_json:
        print_struct(documents.PresetDocument(**_fields(found)))
        return
    say("[[preset]]", *(f'{key} = "{text}"' for key, text in _fields(found).items() if text))


def with_preset(home: Path | None, wanted: dict[str, Any]) -> dict[str, Any]:
    """The options of `run`, with what the preset says where they say nothing. Raises LocalFault."""
    if not wanted["preset"]:
        return wanted
    presets = importlib.import_module("p2pnode.presets")
    found = presets.preset_named(find_home(home), wanted["preset"])
    return {
        **wanted,
        "image": wanted["image"] or found.image,
        "cuda": wanted.get("cuda") or found.cuda or None,
    }


def _fields(preset: Any) -> dict[str, str]:
    return {
        "name": preset.name,
        "image": preset.image,
        "cuda": preset.cuda,
        "about": preset.about,
    }
