"""The one thread that writes. All work handed in while a transaction runs is carried out together in the next one."""

import asyncio
import concurrent.futures
import queue
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from runtrue.errors import OutcomeUnknown, StoreBusy, StoreError
from runtrue.store.sqlite.connection import BUSY_SECONDS, OWN_ERRORS, connect_writer, is_busy
from runtrue.store.sqlite.forks import at_work
from runtrue.store.sqlite.place import Place
from runtrue.store.sqlite.turnstile import Turnstile

Result = TypeVar("Result")
Work = Callable[[sqlite3.Connection], Result]

_COMMIT_SECONDS_MAX = 10.0
"""How long a foreign thread waits for an answer once its work is part of a running transaction."""
_BEGIN_MILLISECONDS = 100
"""So often a writer that waits for another one looks whether anybody still waits for it."""


class _Job:
    """Work that somebody waits for. Either the writer takes it or its owner withdraws it, never both."""

    __slots__ = ("error", "future", "outside", "quiet", "result", "settled", "work")

    def __init__(
        self,
        work: Work[Any],
        future: "asyncio.Future[Any] | concurrent.futures.Future[Any]",
        outside: bool,
        quiet: bool,
    ) -> None:
        self.work = work
        self.future = future
        self.outside = outside
        self.quiet = quiet
        self.settled = threading.Lock()
        self.result: Any = None
        self.error: BaseException | None = None

    def take(self) -> bool:
        """Claim the job, for the writer or for its withdrawal. True for the first who asks."""
        return self.settled.acquire(blocking=False)

    def resolve(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class Writer:
    """Owns the writing connection. `changed` is called on the event loop after commits with work that was not quiet."""

    def __init__(self, path: Path | None, place: Place, changed: Callable[[], None]) -> None:
        self._path = path
        self._place = place
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._turn = Turnstile(path)
        self._connection: sqlite3.Connection | None = None
        self._closed = False
        self.one_by_one = False
        """Read by work in the writer's thread: a failure costs this work alone, and need not be raised to be undone."""
        self._thread = threading.Thread(target=self._serve, name="runtrue-writer", daemon=True)
        self._thread.start()

    # ---------------------------------------------------------------- handing work in
    async def run(
        self, work: Work[Result], *, outside: bool = False, impatient: bool = False, quiet: bool = False
    ) -> Result:
        """Carry out `work` in a transaction of the writer (`outside`: in none) and return its result.

        `quiet` work is not told to `changed`: what it does is seen soon enough by looking at the file.

        Raises StoreBusy if the transaction could not begin within BUSY_SECONDS: the work will not be done later. Once
        it has begun it is waited for, unless the caller is `impatient`: then OutcomeUnknown is raised after that time.
        """
        future: asyncio.Future[Result] = self._loop.create_future()
        job = self._put(work, future, outside, quiet)
        timer = self._loop.call_later(BUSY_SECONDS, self._expire, job, impatient)
        try:
            return await future
        finally:
            timer.cancel()
            job.take()

    def run_from_thread(self, work: Work[Result]) -> Result:
        """As `run`, blocking, from any thread but the event loop's."""
        future: concurrent.futures.Future[Result] = concurrent.futures.Future()
        job = self._put(work, future, False, True)
        try:
            return future.result(BUSY_SECONDS)
        except concurrent.futures.TimeoutError:
            if job.take():
                raise self._busy() from None
        try:
            return future.result(_COMMIT_SECONDS_MAX)
        except concurrent.futures.TimeoutError:
            raise OutcomeUnknown(f"{self._path} has not answered in time; the change may be made yet") from None

    def _put(self, work: Work[Any], future: Any, outside: bool, quiet: bool) -> _Job:
        if self._closed:
            raise StoreError(f"the store on {self._path or 'memory'} is closed; open it again")
        job = _Job(work, future, outside, quiet)
        self._jobs.put(job)
        return job

    def _expire(self, job: _Job, impatient: bool) -> None:
        if job.take():
            job.error = self._busy()
            job.resolve()
        elif impatient and not job.future.done():
            job.future.set_exception(OutcomeUnknown(f"{self._path or 'the database'} has not answered in time"))

    def _busy(self) -> StoreBusy:
        return StoreBusy(f"{self._path or 'the database'} was busy for {BUSY_SECONDS} s; nothing was changed")

    async def close(self) -> None:
        """Carry out what was handed in, then close the connection."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        # A commit may hang in the disk for longer; then the thread is left behind, a daemon.
        await self._loop.run_in_executor(None, self._thread.join, _COMMIT_SECONDS_MAX)

    # ---------------------------------------------------------------- the thread
    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.settled.locked():
                continue
            with self._turn, at_work:
                try:
                    connection = self._connect()
                except sqlite3.Error as error:
                    self._fail(job, self._place.translate(error))
                    continue
                except Exception as error:  # Whatever it is, the caller gets it and the thread goes on for all others.
                    self._fail(job, error)
                    continue
                before = connection.total_changes
                jobs = self._carry_out_alone(connection, job) if job.outside else self._transaction(connection, job)
                changed = connection.total_changes != before and any(not job.quiet for job in jobs)
            self._deliver(jobs, changed)
        self._place.leave()
        if self._connection is not None:
            self._place.close(self._connection)
        self._turn.close()

    def _connect(self) -> sqlite3.Connection:
        """The connection, to a file that stands where it was opened."""
        self._place.check()
        if self._connection is None:
            connection = connect_writer(self._path)
            try:
                self._place.enter(connection)
            except BaseException:
                self._place.close(connection)
                raise
            self._connection = connection
        return self._connection

    def _transaction(self, connection: sqlite3.Connection, first: _Job) -> list[_Job]:
        """One transaction with `first` and all that is waiting. Returns the jobs that were settled by it."""
        try:
            while not self._begin(connection, first):
                if first.settled.locked():
                    return []
        except sqlite3.Error as error:
            first.error = self._place.translate(error)
            return [first] if first.take() else []
        jobs = [job for job in (first, *self._waiting()) if job.take()]
        failure = self._carry_out(connection, jobs)
        if failure is not None:
            # What one of them was refused may have been for what another one did, and that is undone.
            for job in jobs:
                job.error = failure
        return jobs

    def _carry_out(self, connection: sqlite3.Connection, jobs: list[_Job]) -> StoreError | None:
        """Do the jobs and commit. Returns what went wrong for all; what went wrong for one stands in its job."""
        try:
            if not self._carry_out_together(connection, jobs):
                self._roll_back(connection)
                if not self._begin(connection):
                    return self._busy()
                self._carry_out_one_by_one(connection, jobs)
        except sqlite3.Error as error:
            self._roll_back(connection)
            return self._place.translate(error)
        return self._commit(connection)

    def _waiting(self) -> list[_Job]:
        """The jobs that wait now. One that must run outside a transaction, or the order to close, stays for later."""
        jobs: list[_Job] = []
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is None or job.outside:
                self._jobs.put(job)
                break
            jobs.append(job)
        return jobs

    def _begin(self, connection: sqlite3.Connection, first: _Job | None = None) -> bool:
        """Begin, at once or within BUSY_SECONDS. False if somebody else writes all that time, or `first` is settled."""
        if connection.in_transaction:
            connection.execute("ROLLBACK")  # It could not be when it failed.
        if _begin_immediate(connection):
            return True
        connection.execute(f"PRAGMA busy_timeout = {_BEGIN_MILLISECONDS}")
        try:
            for _ in range(0, int(BUSY_SECONDS * 1000), _BEGIN_MILLISECONDS):
                if _begin_immediate(connection):
                    return True
                if first is not None and first.settled.locked():
                    return False
        finally:
            connection.execute("PRAGMA busy_timeout = 0")
        return False

    def _carry_out_together(self, connection: sqlite3.Connection, jobs: list[_Job]) -> bool:
        """Do all jobs as if none could fail. False as soon as one does: then nothing of this pass may be kept.

        A savepoint for each job would let SQLite copy every page before it is changed, for a failure that is rare.
        """
        self.one_by_one = False
        try:
            for job in jobs:
                job.result = job.work(connection)
        except sqlite3.Error as error:
            if not isinstance(error, OWN_ERRORS):
                raise
            return False
        except Exception:  # Whose it is shows in the second pass, where it costs its own job alone.
            return False
        return True

    def _carry_out_one_by_one(self, connection: sqlite3.Connection, jobs: list[_Job]) -> None:
        """Do each job in a savepoint: its own error costs it alone, one of the database ends the transaction."""
        self.one_by_one = True
        for job in jobs:
            connection.execute("SAVEPOINT job")
            try:
                job.result = job.work(connection)
            except OWN_ERRORS as error:
                job.error = StoreError(f"{self._path or 'the database'} refuses what was to be written: {error}")
            except sqlite3.Error:
                raise
            except Exception as error:  # The caller of this job gets it, and the writer must outlive it for all others.
                job.error = error
            if job.error is not None:
                connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")

    def _carry_out_alone(self, connection: sqlite3.Connection, job: _Job) -> list[_Job]:
        if not job.take():
            return []
        try:
            job.result = job.work(connection)
        except sqlite3.Error as error:
            job.error = self._place.translate(error)
        except Exception as error:  # The caller gets it, and the writer must outlive it for all others.
            job.error = error
        return [job]

    def _commit(self, connection: sqlite3.Connection) -> StoreError | None:
        if not connection.in_transaction:
            return None
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            # Only a transaction that is still open is known not to be committed.
            if connection.in_transaction and self._roll_back(connection):
                return self._place.translate(error)
            return OutcomeUnknown(f"{self._path}: the commit failed ({error}); whether it holds is not known")
        if self._place.lost():
            return OutcomeUnknown(f"{self._path} was lost during the commit; whether it holds is not known")
        return None

    def _roll_back(self, connection: sqlite3.Connection) -> bool:
        """Roll back what is open. True if the database did so. Some errors have done it already."""
        if not connection.in_transaction:
            return True
        try:
            connection.execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return True

    def _fail(self, job: _Job, error: Exception) -> None:
        if job.take():
            job.error = error
            self._deliver([job], False)

    def _deliver(self, jobs: list[_Job], changed: bool) -> None:
        """Resolve all futures of a transaction with one hand-over to the event loop."""
        for_loop: list[_Job] = []
        for job in jobs:
            if isinstance(job.future, concurrent.futures.Future):
                job.resolve()
            else:
                for_loop.append(job)
        if not for_loop and not changed:
            return
        try:
            self._loop.call_soon_threadsafe(self._resolve, for_loop, changed)
        except RuntimeError:
            # The loop is closed: nobody waits for these answers any more.
            return

    def _resolve(self, jobs: list[_Job], changed: bool) -> None:
        for job in jobs:
            job.resolve()
        if changed:
            self._changed()


def _begin_immediate(connection: sqlite3.Connection) -> bool:
    """True if a transaction has begun, False if somebody else writes. Raises what else the database says."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if is_busy(error):
            return False
        raise
    return True
