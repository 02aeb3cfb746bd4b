"""`p2pnode primary`: templates for a place of one's own that runs jobs besides the market."""

import importlib

import click

from p2pnode.cli.output import json_option, print_struct, print_table, say


@click.group()
def primary() -> None:
    """See the templates with which jobs run on your own cluster too."""


@primary.command("list")
@json_option
def list_templates(as_json: bool) -> None:
    """List the templates that come with this program."""
    templates = importlib.import_module("p2pnode.jobs.primary_template")
    documents = importlib.import_module("p2pnode.api.own_documents")
    named = [(name, templates.load_template(name).about) for name in templates.SHIPPED]
    if as_json:
        items = tuple(documents.PrimaryTemplate(name=name, about=about) for name, about in named)
        print_struct(documents.PrimaryListDocument(items=items))
    else:
        print_table(("TEMPLATE", "FOR"), named)


@primary.command()
@click.argument("name")
@json_option
def show(name: str, as_json: bool) -> None:
    """Print the template NAME, or the one in the file NAME if it is right.

    A copy of it, changed, is a template of your own: its path goes under [primary] in config.toml.
    """
    templates = importlib.import_module("p2pnode.jobs.primary_template")
    documents = importlib.import_module("p2pnode.api.own_documents")
    about = templates.load_template(name).about
    text = templates.template_text(name)
    if as_json:
        print_struct(documents.PrimaryShowDocument(name=name, about=about, text=text))
    else:
        say(*text.splitlines())
