"""Arguments in, text out. Talks to a running node through its API.

Nothing here loads the node, its network library or its scheduler, so that help is instant; the
commands that run a node import it when they do.
"""

import importlib
import sys
from typing import Final, NoReturn

import click

from p2pnode.cli.output import report
from protocol.errors import P2PError, Unavailable

EXIT_FAILED: Final = 1
EXIT_UNREACHABLE: Final = 6
EXIT_INTERRUPTED: Final = 130

COMMANDS: Final = {
    "init": ("p2pnode.cli.setup:init", "Answer five questions and write config.toml."),
    "doctor": ("p2pnode.cli.setup:doctor", "Check what a node needs on this host."),
    "up": ("p2pnode.cli.node:up", "Run a node here until Ctrl-C."),
    "status": ("p2pnode.cli.node:status", "Show the running node and how it fares."),
    "network": ("p2pnode.cli.network:network", "Found a network, invite to it, join one."),
    "key": ("p2pnode.cli.key:key", "Change the key that this node signs with."),
    "offer": ("p2pnode.cli.offer:offer", "See what is offered on the network."),
    "market": ("p2pnode.cli.market:market", "See what is asked and paid, per class of GPU."),
    "why": ("p2pnode.cli.why:why", "Say why a job has no match, or an owner no work."),
    "run": ("p2pnode.cli.run:run", "Run a program on somebody's GPU and follow it."),
    "job": ("p2pnode.cli.job:job", "Look after jobs: logs, outputs, bids, receipts."),
    "preset": ("p2pnode.cli.preset:preset", "See the images that a job can name in short."),
    "primary": ("p2pnode.cli.primary:primary", "Run jobs on your own cluster too."),
    "pool": ("p2pnode.cli.pool:pool", "Look after jobs on several nodes."),
    "receipt": ("p2pnode.cli.receipt:receipt", "Check a receipt, without a node."),
    "auction": ("p2pnode.cli.auction:auction", "Check who had to win an auction, without a node."),
    "lease": ("p2pnode.cli.lease:lease", "See the leases given and taken; take bronze back."),
    "gpu": ("p2pnode.cli.lease:gpu", "Look after the GPUs of this node."),
    "ledger": ("p2pnode.cli.ledger:ledger", "See, verify and copy the replicated record."),
    "earn": ("p2pnode.cli.earn:earn", "See what this node has earned; confirm payments."),
    "spend": ("p2pnode.cli.spend:spend", "See what this node owes, and how to pay it."),
    "reputation": ("p2pnode.cli.reputation:reputation", "See what this node thinks of a peer."),
    "bid": ("p2pnode.cli.bid:bid", "See this owner's bids and what came of them."),
    "ask": ("p2pnode.cli.ask:ask", "See or set the price this node asks; pause it."),
    "allow": ("p2pnode.cli.allow:allow", "See or change whom and what this node lets in."),
    "window": ("p2pnode.cli.window:window", "See or change the hours of this node."),
    "demo": ("testnet.cli:demo", "Run a whole network on this machine, once."),
    "testnet": ("testnet.cli:testnet", "A network of real nodes on this machine, to play with."),
    "schema": ("p2pnode.cli.schema:schema", "Print the JSON Schema of what --json prints."),
    "version": ("p2pnode.cli.node:version", "Print the version."),
}
"""Command -> (where it is, its line in the help); loaded when called."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """In the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command, imported."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Rent out, or rent, a GPU directly from another person's machine."""


def main() -> NoReturn:
    """The command `p2pnode`. Exit codes are listed in README.md."""
    try:
        code = cli.main(prog_name="p2pnode", standalone_mode=False)
    except click.exceptions.Abort:
        code = EXIT_INTERRUPTED
    except click.ClickException as error:
        report(error.format_message(), _hint(error))
        code = error.exit_code
    except P2PError as error:
        report(getattr(error, "what", str(error)), getattr(error, "cure", ""))
        code = EXIT_UNREACHABLE if isinstance(error, Unavailable) else EXIT_FAILED
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain when it flushes.
        sys.stdout = None
        code = 0
    sys.exit(code or 0)


def _hint(error: click.ClickException) -> str:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{error.ctx.command_path} --help"
    return ""
