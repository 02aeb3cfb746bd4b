"""Judges a document by a JSON Schema, as far as our schemas use the language."""

from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
KEYWORDS = {
    "$defs", "$id", "$ref", "$schema", "additionalProperties", "anyOf", "const", "default",
    "description", "enum", "items", "properties", "required", "title", "type",
}  # fmt: skip


def faults(value: Any, schema: Any, *, root: Any | None = None, at: str = "$") -> list[str]:
    """Where and why the value is not what the schema says; fields beyond it are faults too."""
    root = root or schema
    assert set(schema) <= KEYWORDS, f"a keyword that is not known here: {schema}"
    found: list[str] = []
    if "$ref" in schema:
        shape = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
        found += faults(value, shape, root=root, at=at)
    if "anyOf" in schema:
        tried = [faults(value, each, root=root, at=at) for each in schema["anyOf"]]
        found += [] if [] in tried else [fault for each in tried for fault in each]
    if "const" in schema and value != schema["const"]:
        found.append(f"{at}: not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: none of {schema['enum']}")
    if "type" in schema:
        is_wrong = type(value) not in TYPES[schema["type"]]
        found += [f"{at}: no {schema['type']}"] if is_wrong else []
    if isinstance(value, dict) and "$ref" not in schema and "anyOf" not in schema:
        found += _faults_of_object(value, schema, root, at)
    if isinstance(value, list) and "items" in schema:
        for n, item in enumerate(value):
            found += faults(item, schema["items"], root=root, at=f"{at}[{n}]")
    return found


def _faults_of_object(value: dict[str, Any], schema: Any, root: Any, at: str) -> list[str]:
    found = [f"{at}: lacks {key}" for key in schema.get("required", ()) if key not in value]
    rest = schema.get("additionalProperties")
    for key, item in value.items():
        shape = schema.get("properties", {}).get(key, rest)
        if shape is None:
            found.append(f"{at}.{key}: not in the schema")
        else:
            found += faults(item, shape, root=root, at=f"{at}.{key}")
    return found
