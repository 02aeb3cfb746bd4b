"""`p2pnode schema`: what scripts may count on in what `--json` prints."""

import importlib

import click

from p2pnode.cli.output import json_option, print_document, say


@click.command()
@click.argument("name", required=False)
@json_option
def schema(name: str | None, as_json: bool) -> None:
    """Print the JSON Schema of the documents called NAME, or list the names.

    NAME is the `schema` of a document, such as p2pnode.ledger.show/1, or ledger.show for short.
    """
    schemas = importlib.import_module("p2pnode.api.schemas")
    if name is not None:
        print_document(schemas.schema_of(name))
    elif as_json:
        print_document({"schema": "p2pnode.schema.list/1", "items": list(schemas.DOCUMENTS)})
    else:
        say(*schemas.DOCUMENTS)
