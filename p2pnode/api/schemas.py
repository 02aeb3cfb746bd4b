"""The JSON Schema of each document, by the name that the document bears."""

from typing import Any, Final

import msgspec

from p2pnode.api import (
    auction_documents,
    documents,
    job_documents,
    ledger_documents,
    market_documents,
    money_documents,
    own_documents,
    owner_documents,
    pool_documents,
    reputation_documents,
)
from protocol.errors import LocalFault

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def _named() -> dict[str, type[msgspec.Struct]]:
    found = {}
    for module in (
        auction_documents,
        documents,
        job_documents,
        ledger_documents,
        market_documents,
        money_documents,
        own_documents,
        owner_documents,
        pool_documents,
        reputation_documents,
    ):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct):
                fields = {each.name: each.default for each in msgspec.structs.fields(value)}
                if isinstance(name := fields.get("schema"), str):
                    found[name] = value
    return dict(sorted(found.items()))


DOCUMENTS: Final = _named()
"""Name of a document -> what it is made of."""


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of the documents with this name; `p2pnode.` and the version may be left out.

    Later versions of a document have a name of their own; within one, fields are only added.
    Raises LocalFault.
    """
    wanted = next((each for each in DOCUMENTS if name in {each, _short(each)}), None)
    if wanted is None:
        raise LocalFault(f"no document is called {name!a}.", "p2pnode schema lists the names")
    schema = msgspec.json.schema(DOCUMENTS[wanted])
    shape = schema["$defs"][DOCUMENTS[wanted].__name__]
    shape["properties"]["schema"] = {"const": wanted}
    shape["required"] = ["schema", *shape["required"]]
    return {"$schema": DIALECT, "$id": wanted, **schema}


def _short(name: str) -> str:
    return name.removeprefix("p2pnode.").partition("/")[0]
