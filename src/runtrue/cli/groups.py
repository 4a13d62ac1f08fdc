"""The groups of commands, and the one that takes a module in place of a command."""

import click

from runtrue.cli.options import database_option


class ModuleGroup(click.Group):
    """A group in which everything that is not one of its commands belongs to its command `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group()
@database_option
def root() -> None:
    """Durable workflows that run true."""


@root.group()
def run() -> None:
    """Start runs, look at them, and ask something of them."""


@root.group()
def hold() -> None:
    """The reasons for which runs are held."""


@root.group(cls=ModuleGroup)
def worker() -> None:
    """Work on runs (`runtrue worker MODULE`), or list the workers."""


@root.group()
def db() -> None:
    """The database."""
