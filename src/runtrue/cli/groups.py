"""The groups of commands, and the one that takes a module in place of a command."""

import click

from runtrue import __version__
from runtrue.cli.options import database_option


class ModuleGroup(click.Group):
    """A group in which everything that is not one of its commands belongs to its command `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(
    epilog="Exit codes: 0 done as asked (a request that is recorded too), 1 error, 2 usage or configuration, "
    "3 not found, 4 conflict, refused or too late, 5 the run failed, 6 the run was cancelled, 7 the wait timed out, "
    "8 the run waits for a person, 130 interrupted."
)
@click.version_option(__version__, prog_name="runtrue")
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
    """Work on runs, or list the workers.

    `runtrue worker MODULE` works on the runs of MODULE.
    """


@root.group()
def db() -> None:
    """The database."""
