"""Hypothesis strategies out of the structs themselves, so that a new field needs no word here."""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import reject, settings
from hypothesis import strategies as st
from msgspec import Meta, UnsetType

import protocol
from protocol.codec import Wire
from protocol.limits import EXTENSION_BYTES_MAX, KEY_BYTES_MAX

PRINTABLE = r"\A[ -~]+\Z"
HALF = settings(max_examples=max(25, settings().max_examples // 2))
"""For what is asked of every struct: there are thirty of them."""
TEXT_MAX = 20
"""Enough of a text or a list of bytes for what these tests look for."""


@cache
def structs(shape: type[Wire]) -> st.SearchStrategy[Any]:
    """Values of the struct, within the bounds of every field; optional ones come and go."""
    fields = {field.name: _of_type(field.type, Meta()) for field in msgspec.structs.fields(shape)}
    return st.fixed_dictionaries(fields).map(lambda drawn: _built(shape, drawn))


def _built(shape: type[Wire], fields: dict[str, Any]) -> Wire:
    try:
        return shape(**fields)
    except ValueError:  # fields that do not go together
        reject()


def _of_type(of: Any, meta: Meta) -> st.SearchStrategy[Any]:
    origin = get_origin(of)
    if origin is Annotated:
        inner, found, *_ = get_args(of)
        return _of_type(inner, found)
    if origin in {UnionType, Union}:
        return st.one_of(*(_of_type(arm, meta) for arm in get_args(of)))
    if of is UnsetType:
        return st.just(msgspec.UNSET)
    if origin is Literal:
        return st.sampled_from(get_args(of))
    if origin is tuple:
        return _tuples(get_args(of), meta)
    if origin is dict:
        return _maps(get_args(of), meta)
    if hasattr(of, "__supertype__"):
        return _of_type(of.__supertype__, meta)
    return _leaf(of, meta)


def _tuples(arms: tuple[Any, ...], meta: Meta) -> st.SearchStrategy[Any]:
    if arms[-1] is not Ellipsis:
        return st.tuples(*(_of_type(arm, Meta()) for arm in arms))
    lists = st.lists(
        _of_type(arms[0], Meta()),
        min_size=meta.min_length or 0,
        max_size=min(meta.max_length or 3, 3),
    )
    return lists.map(tuple)


def _maps(arms: tuple[Any, ...], meta: Meta) -> st.SearchStrategy[Any]:
    """Maps with keys and texts that also keep to their bounds in bytes."""
    keys, texts = (_of_type(arm, Meta()) for arm in arms)
    return st.dictionaries(
        keys.filter(lambda key: len(key.encode()) <= KEY_BYTES_MAX),
        texts.filter(
            lambda text: not isinstance(text, str) or len(text.encode()) <= EXTENSION_BYTES_MAX
        ),
        min_size=meta.min_length or 0,
        max_size=3,
    )


def _leaf(of: Any, meta: Meta) -> st.SearchStrategy[Any]:
    if of is int:
        assert meta.ge is not None
        assert meta.le is not None
        return st.integers(int(meta.ge), int(meta.le))
    if of is bytes:
        least = meta.min_length or 0
        return st.binary(min_size=least, max_size=max(least, min(meta.max_length or 40, 40)))
    if of is str:
        return _texts(meta)
    assert issubclass(of, Wire), of
    return structs(of)


def _texts(meta: Meta) -> st.SearchStrategy[str]:
    least, most = meta.min_length or 0, min(meta.max_length or TEXT_MAX, TEXT_MAX)
    if meta.pattern is None:
        return st.text(st.characters(exclude_categories=["Cs"]), min_size=least, max_size=most)
    if meta.pattern == PRINTABLE:  # much faster than out of the pattern
        return st.text(
            st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=least, max_size=most
        )
    return st.from_regex(meta.pattern).filter(lambda text: least <= len(text) <= most)


def shapes() -> list[type[Wire]]:
    """Every struct of the protocol that travels by itself, and so brings those that are in it."""
    for module in iter_modules(protocol.__path__):
        import_module(f"protocol.{module.name}")
    found = [shape for shape in Wire.__subclasses__() if shape.__module__.startswith("protocol.")]
    inner = [
        arm
        for shape in found
        for field in msgspec.structs.fields(shape)
        for arm in _arms(field.type)
    ]
    return sorted(
        (shape for shape in found if shape not in inner), key=lambda shape: shape.__name__
    )


def _arms(of: Any) -> list[Any]:
    return [of, *(inner for arm in get_args(of) for inner in _arms(arm))]


def edited(raw: bytes) -> st.SearchStrategy[bytes]:
    """The bytes with a few of them changed, put in or left out."""
    places = st.integers(0, len(raw))
    edits = st.tuples(st.sampled_from(("flip", "put", "drop")), places, st.integers(1, 255))
    return st.lists(edits, min_size=1, max_size=4).map(lambda edits: _apply(raw, edits))


def _apply(raw: bytes, edits: list[tuple[str, int, int]]) -> bytes:
    for what, place, byte in edits:
        head, tail = raw[:place], raw[place:]
        if what == "put":
            raw = head + bytes([byte]) + tail
        elif what == "drop":
            raw = head + tail[1:]
        elif tail:
            raw = head + bytes([tail[0] ^ byte]) + tail[1:]
    return raw
