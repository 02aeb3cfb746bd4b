"""Canonical CBOR in and out of frozen structs. The one place where a peer's bytes are parsed.

SPEC.md section 2. A value has exactly one encoding: what decodes is encoded again and must give
the bytes received, so two peers can never read one message differently.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Final, NoReturn, TypeVar

import cbor2
import msgspec
from msgspec import UNSET, Meta, UnsetType, inspect

from protocol.errors import PeerFault
from protocol.limits import (
    DEPTH_MAX,
    DETAIL_CHARACTERS_MAX,
    EXTENSION_BYTES_MAX,
    EXTENSIONS_MAX,
    INT_MAX,
    KEY_BYTES_MAX,
)
from protocol.units import Digest, Micros, Millis, MillisSpan, NetId, PeerId, PublicKey, Signature

UInt = Annotated[int, Meta(ge=0, le=INT_MAX)]
Instant = Annotated[Millis, Meta(ge=1, le=INT_MAX)]
"""Zero is refused: it is what a forgotten timestamp looks like."""
Span = Annotated[MillisSpan, Meta(ge=0, le=INT_MAX)]
Money = Annotated[Micros, Meta(ge=0, le=INT_MAX)]
Hash = Annotated[Digest, Meta(min_length=32, max_length=32)]
Network = Annotated[NetId, Meta(min_length=32, max_length=32)]
Key = Annotated[PublicKey, Meta(min_length=32, max_length=32)]
Seal = Annotated[Signature, Meta(min_length=64, max_length=64)]
Peer = Annotated[PeerId, Meta(min_length=38, max_length=38)]
Id16 = Annotated[bytes, Meta(min_length=16, max_length=16)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"\A[ -~]+\Z")]
"""Printable ASCII on one line: what may be shown to a person without escaping."""
CurrencyCode = Annotated[str, Meta(min_length=3, max_length=4, pattern=r"\A[A-Z]{3,4}\Z")]
"""ISO 4217, or TEST in test networks."""
ExtensionText = Annotated[str, Meta(max_length=EXTENSION_BYTES_MAX)]
ExtensionKey = Annotated[str, Meta(min_length=1, max_length=KEY_BYTES_MAX)]
"""Both bounds hold for the UTF-8 bytes, which `extensions_fault` counts."""
Extensions = (
    Annotated[dict[ExtensionKey, ExtensionText], Meta(min_length=1, max_length=EXTENSIONS_MAX)]
    | UnsetType
)


class Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every struct on the wire is made of. A field that is UNSET is absent in the bytes.

    A struct to which a later version may add something has the field `x: Extensions = UNSET`.
    """

    def __post_init__(self) -> None:
        # msgspec counts characters, the bound is in bytes. From `decode` this is `codec.shape`.
        extensions = getattr(self, "x", UNSET)
        if extensions is not UNSET and (why := extensions_fault(extensions)):
            raise ValueError(why)


W = TypeVar("W", bound=Wire)

Plain = int | bytes | str | list["Plain"] | dict[str, "Plain"] | dict[int, "Plain"]


def _refuse_tag(_value: object, _immutable: bool = False) -> NoReturn:
    raise ValueError("tags are not part of the format")


# cbor2 acts on these tags before it hands anything back (it would compile a regular expression);
# all others reach `tag_hook`.
_TAGS_OF_CBOR2: Final = (
    0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 100, 256, 258, 260, 261, 1004, 43000, 55799,
)  # fmt: skip
_NO_TAGS: Final = dict.fromkeys(_TAGS_OF_CBOR2, _refuse_tag)
_NUMBERS: Final = {str(number): number for number in range(24)}
"""Names of the fields of numbered structs."""


def encode(value: Wire) -> bytes:
    """The one encoding of a struct."""
    plain = msgspec.to_builtins(value, builtin_types=(bytes,))
    return cbor2.dumps(plain) if _is_in_order(type(value)) else encode_plain(plain)


def encode_plain(value: object) -> bytes:
    """The one encoding of integers, bytes, text, and lists and maps of them."""
    return cbor2.dumps(value, canonical=True)


def decode(raw: bytes, shape: type[W], *, size_max: int) -> W:
    """The struct that these bytes are the encoding of.

    Raises PeerFault `codec.size`, `codec.form` (not CBOR of our subset, or not its only encoding)
    or `codec.shape` (a field missing, unknown, of another type or out of bounds).
    """
    value = _converted(_loaded(raw, size_max=size_max, text_keys=True), shape)
    if encode(value) != raw:
        raise PeerFault("codec.form", "not the canonical encoding")
    return value


def encode_numbered(value: Wire) -> bytes:
    """The one encoding of a struct whose fields are named "0" to "23": a map with integer keys."""
    fields = msgspec.to_builtins(value, builtin_types=(bytes,))
    plain = {_NUMBERS[name]: field for name, field in fields.items()}
    return cbor2.dumps(plain) if _is_in_order(type(value)) else encode_plain(plain)


def checked_numbered(value: W) -> W:
    """The struct as whoever decodes its encoding will have it; its maker may have ignored bounds.

    Raises PeerFault `codec.shape`.
    """
    return _converted(msgspec.to_builtins(value, builtin_types=(bytes,)), type(value))


def decode_numbered(raw: bytes, shape: type[W], *, size_max: int) -> W:
    """The struct with numbered fields that these bytes are the encoding of.

    Raises PeerFault `codec.size`, `codec.form` or `codec.shape`, as `decode` does.
    """
    plain = decode_plain(raw, size_max=size_max)
    if not isinstance(plain, dict):
        raise PeerFault("codec.shape", "not a map")
    value = _converted({str(number): field for number, field in plain.items()}, shape)
    if encode_numbered(value) != raw:
        raise PeerFault("codec.form", "not the canonical encoding")
    return value


@cache
def _is_in_order(shape: type[Wire]) -> bool:
    """Whether all maps in values of this shape are made in canonical order, so none needs sorting.

    Whether "10" comes after "9" is asked of names: numbers up to 23 lie so by length, then bytes.
    """
    return _is_sorted(inspect.type_info(shape))


def _is_sorted(kind: inspect.Type) -> bool:
    match kind:
        case inspect.StructType():
            names = [field.encode_name for field in kind.fields]
            ordered = sorted(names, key=lambda name: (len(name), name))
            return (kind.array_like or names == ordered) and all(
                _is_sorted(field.type) for field in kind.fields
            )
        case inspect.UnionType():
            return all(_is_sorted(each) for each in kind.types)
        case inspect.VarTupleType():
            return _is_sorted(kind.item_type)
        case inspect.IntType() | inspect.BytesType() | inspect.StrType() | inspect.LiteralType():
            return True
        case _:
            return isinstance(kind, inspect.CustomType) and kind.cls is UnsetType


def decode_plain(raw: bytes, *, size_max: int) -> object:
    """Bytes to plain values; only the caller's comparison proves that they are canonical.

    Map keys may be of any type here, and keys that are lists can be made to collide: 8 kB of them
    take 5 ms, so `size_max` must be small. Raises PeerFault `codec.size` or `codec.form`.
    """
    return _loaded(raw, size_max=size_max, text_keys=False)


def _loaded(raw: bytes, *, size_max: int, text_keys: bool) -> object:
    if len(raw) > size_max:
        raise PeerFault("codec.size", f"{len(raw)} bytes, at most {size_max}")
    try:
        value: object = cbor2.loads(
            raw,
            tag_hook=_refuse_tag,
            semantic_decoders=_NO_TAGS,
            max_depth=DEPTH_MAX,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            # Python hashes text with a secret, lists without: a frame full of colliding keys
            # would stop the node for seconds.
            strict_hashable_types=text_keys,
        )
    except (cbor2.CBORDecodeError, TypeError, ValueError, OverflowError, MemoryError) as error:
        raise PeerFault("codec.form", _detail(error)) from error
    return value


def _converted(plain: object, shape: type[W]) -> W:
    try:
        return msgspec.convert(plain, shape, strict=True, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise PeerFault("codec.shape", _detail(error)) from error


def _detail(error: Exception) -> str:
    """What a library says of a peer's bytes, which it may quote: short, and safe to print."""
    return ascii(str(error)[:DETAIL_CHARACTERS_MAX])[1:-1]


def extensions_fault(extensions: Mapping[str, str] | UnsetType) -> str | None:
    """Why these extensions break their bounds in bytes, or None. SPEC.md 2.3."""
    if extensions is UNSET:
        return None
    for key, text in extensions.items():
        if len(key.encode()) > KEY_BYTES_MAX or len(text.encode()) > EXTENSION_BYTES_MAX:
            return f"extension {key!a} is too long"
    return None
