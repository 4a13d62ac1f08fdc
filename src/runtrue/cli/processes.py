"""`runtrue dev` and `runtrue worker`: the processes that work on runs."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

import click

from runtrue.app import App, load_app
from runtrue.cli.exits import Exit
from runtrue.cli.groups import root, worker
from runtrue.cli.options import check_lasting, database_flag, database_option, database_setting, span
from runtrue.cli.text import note
from runtrue.cli.wording import stopped_text
from runtrue.config import location
from runtrue.errors import ConfigurationError, RuntrueError, StoreUnusable
from runtrue.lifecycle import Status
from runtrue.service import Service

_OURS = f"{Path(__file__).parents[1]}{os.sep}"

LEAVE_SECONDS = 2.0
"""How long a process may take to end once its worker has stopped."""
DEV_LEASE_SECONDS = 3.0
"""Short, so that after a crash or a restart the runs go on within seconds."""


@root.command()
@click.argument("module", metavar="MODULE")
@database_option
def dev(*, module: str) -> int:
    """Work on the runs of MODULE while you write it.

    As `worker`, but with a short lease, and with the results of steps read back from their recorded form, so that what
    a record loses shows on the first run.

    MODULE is a file or a dotted module that holds an App, with `:name` where it holds several.
    """
    return _serve(module, slots=None, lease_seconds=DEV_LEASE_SECONDS, copies_results=True)


@worker.command("run")
@click.argument("module", metavar="MODULE")
@click.option("--slots", type=click.IntRange(1), help="How many runs to hold at once.")
@click.option("--lease", "lease_seconds", type=span, help="After so long without a sign of life others take the runs.")
@database_option
def run_worker(*, module: str, slots: int | None, lease_seconds: float | None) -> int:
    """Work on the runs of MODULE until SIGTERM or Ctrl-C.

    `runtrue worker MODULE` is the same.

    MODULE is a file or a dotted module that holds an App, with `:name` where it holds several. When asked to end, the
    worker takes no new run, lets the steps in flight finish and gives its runs back; asked again, it leaves at once.
    """
    return _serve(module, slots=slots, lease_seconds=lease_seconds)


def _serve(module: str, *, slots: int | None, lease_seconds: float | None, copies_results: bool = False) -> int:
    try:
        app = load_app(module)
    except RuntrueError:
        raise
    except BaseException as error:  # the module is the user's own and may raise anything, SystemExit included
        if isinstance(error, KeyboardInterrupt):
            raise
        raise click.ClickException(f"{module} cannot be imported:\n{_users_traceback(error)}") from None
    setting = app.database if database_flag() is None else database_setting()
    check_lasting(setting)
    ended = _Ended()
    app = app.with_settings(
        database=setting.value,
        slots=slots,
        lease=lease_seconds,
        copies_results=copies_results,
        exits_when_stalled=True,
        on_ended=ended.hear,
    )
    serves = [f"{workflow.name}@{workflow.version}" for workflow in app.workflows]
    if not serves:
        raise ConfigurationError(f"the App in {module} has no workflow to work on; write rt.App(workflows=[...])")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    note(f"working on {', '.join(serves)}; Ctrl-C ends it")
    note(f"database: {location(setting.value)} ({setting.source})")
    return asyncio.run(_until_drained(app, ended))


def _users_traceback(error: BaseException) -> str:
    """The traceback of an error in the user's module, without the frames of runtrue and of the import machinery."""
    frames = error.__traceback__
    while frames is not None and (
        "importlib" in (name := frames.tb_frame.f_code.co_filename) or name.startswith(_OURS)
    ):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).rstrip()


class _Ended:
    """The runs that this worker has let go of. Of those that failed or are held the terminal says what the row says."""

    def __init__(self) -> None:
        self._unread: asyncio.Queue[str] = asyncio.Queue()

    def hear(self, run_id: str, status: Status) -> None:
        """Take a run to be looked at, unless its status says that there is nothing to tell."""
        if status in (Status.FAILED, Status.PAUSED):
            self._unread.put_nowait(run_id)

    async def tell(self, service: Service) -> None:
        """Read the rows of these runs and tell; for ever. A row that cannot be read now is left to `run list`."""
        while True:
            run_id = await self._unread.get()
            with contextlib.suppress(RuntrueError):
                if text := stopped_text(await service.get(run_id), await service.holds(run_id)):
                    note(text)


async def _until_drained(app: App, ended: _Ended) -> int:
    """Work until a signal asks for the end; the first lets the steps in flight finish, the second leaves at once.

    The end comes by itself, with an error, when the database is lost for good.
    """
    loop = asyncio.get_running_loop()
    heard: list[signal.Signals] = []

    def hear(sign: signal.Signals) -> None:
        heard.append(sign)
        if len(heard) > 1:
            note("left at once; other workers take the runs when the lease has run out")
            sys.stderr.flush()
            # Nothing is lost by it: what is recorded is committed, and what is not is done again, as after a crash.
            os._exit(Exit.INTERRUPTED)
        note(f"{sign.name}: takes no new runs, lets the steps in flight finish; again to leave at once")
        app.request_drain()

    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, hear, sign)
    code = Exit.DONE
    async with app:
        note(f"ready, as worker {app.worker_id}")
        telling = asyncio.create_task(ended.tell(app.service))
        try:
            await app.until_drain()
        except StoreUnusable as lost:
            note(f"Error: {lost}")
            code = Exit.ERROR
        worker_id = app.worker_id
    telling.cancel()
    note(f"worker {worker_id} has ended")
    if signal.SIGINT in heard:
        code = Exit.INTERRUPTED
    _leave_in_time(app, code)
    return code


def _leave_in_time(app: App, code: int) -> None:
    """End the process soon, whatever is left in it.

    asyncio and the interpreter wait for tasks that swallow their cancellation, and for threads, for ever. The worker
    has said goodbye by now: others take such a run at once, and nothing that its step still does will be recorded.
    """

    def leave() -> None:
        app.clock.wait_in_thread(threading.Event(), LEAVE_SECONDS)
        note("a step in flight did not let itself be interrupted; it ends with this process and is done again")
        sys.stderr.flush()
        os._exit(code)

    threading.Thread(target=leave, name="runtrue-leave", daemon=True).start()
