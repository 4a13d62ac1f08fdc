"""The demo: one real workflow, two worker processes, a kill -9, a pause and a cancel, told by the database itself."""

import asyncio
import signal
from pathlib import Path

from rich.console import Console

from runtrue.config import database_url, location
from runtrue.demo._crew import Crew
from runtrue.demo._screen import Screen
from runtrue.demo._story import MODULE, Pace, tell
from runtrue.errors import ConfigurationError

__all__ = ["Pace", "run"]

DATABASE = "runtrue-demo.db"
EXIT_INTERRUPTED = 130


def run(database: str | None = None, *, pace: Pace | None = None) -> int:
    """Show a run that survives what happens to it, and return the exit code.

    `database` is a path or `sqlite:///` URL of a file, `runtrue-demo.db` in the working directory if None. It is made
    where it does not exist and only added to where it does; the example's own tables go to a second file beside it.
    Takes under a minute with the default pace. 0: everything that was told did happen; 1: something did not, or the
    database cannot be used, and the last lines say what; 130: interrupted, after the workers were ended and the runs
    terminated. Raises ConfigurationError for a database that is no file.
    """
    path = database_path(database)
    pace = pace or Pace()
    screen = Screen(Console(highlight=False, markup=False, emoji=False, soft_wrap=True))
    try:
        with Crew(MODULE, path, pace.lease_seconds) as crew:
            return 0 if asyncio.run(_interruptible(path, pace, screen, crew)) else 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        screen.note("interrupted: its workers are ended")
        return EXIT_INTERRUPTED
    finally:
        screen.close()


def database_path(database: str | None) -> Path:
    """The absolute path of the file. Raises ConfigurationError for a database that is no file."""
    url = database_url(DATABASE if database is None else database)
    if not url.removeprefix("sqlite://"):
        raise ConfigurationError("the demo's workers are processes, which share no memory; give it a file")
    return Path(location(url))


async def _interruptible(path: Path, pace: Pace, screen: Screen, crew: Crew) -> bool:
    """Tell the story; SIGTERM ends it as Ctrl-C does, so that no worker process outlives it."""
    story = asyncio.ensure_future(tell(path, pace, screen, crew))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, story.cancel)
    return await story
