"""The one door for verbs and queries. The command line, App and Client all come through here."""

import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from runtrue.clock import Clock
from runtrue.codec import clean_text
from runtrue.errors import ConfigurationError, Conflict, NotFound, Refused
from runtrue.ids import check_id, new_request_id, new_run_id
from runtrue.lifecycle import (
    CLOSED_BY_ANSWER,
    CLOSED_BY_RESUME,
    Answer,
    Command,
    HoldKind,
    Status,
    available_actions,
)
from runtrue.records import (
    AttemptRecord,
    CommandRecord,
    Event,
    Hold,
    InFlight,
    Message,
    Pause,
    Request,
    RunRecord,
    StepRecord,
    Wait,
    WorkerRecord,
)
from runtrue.store.protocol import CommandReply, CommandRequest, Finding, NewRun, RunFilter, Started, Store

COMMAND_PATIENCE = 1_800_000
"""Microseconds after which a command that the database has not begun does nothing any more."""

DEFAULT_VERSION = "1"

WORDS_CHARACTERS_MAX = 2_000
"""Longer reasons and names of actors are cut: they stand beside the hot columns and in every event."""

EVENTS_LOOKED_BACK = 200
"""How many of a run's newest events tell which of the steps last reported as running have ended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command was met. It is made from the reply of the committed transaction, never from hope.

    `done`: it is so now. Otherwise the request is recorded and is carried out at the next step boundary.
    `changed` is False where the wish was fulfilled (or requested) already. `status` is the run's status after the
    command, `request` who asked for what, when and why. `holds` are the holds still open; `still_held_by` those
    that keep the run paused although this command closed one. `in_flight` are the steps that the worker last
    reported as still running. `repeated` marks the stored answer to a request id seen before.
    """

    run_id: str
    command: Command
    status: Status
    done: bool
    changed: bool
    available_actions: tuple[str, ...]
    request_id: str
    request: Request | None = None
    holds: tuple[Hold, ...] = ()
    still_held_by: tuple[Hold, ...] = ()
    in_flight: tuple[InFlight, ...] = ()
    pause_id: str | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """Runs, newest first; `cursor` asks for the next page, None on the last one."""

    runs: Sequence[RunRecord]
    cursor: tuple[int, str] | None


@dataclass(frozen=True, slots=True)
class StartOptions:
    """How a run is to be started. `delay`, `at` and `deadline` in microseconds (a span, a point in time, a span).

    `deadline`: how long after it may begin the run is cancelled if it has not ended by then.
    """

    id: str | None = None
    idempotency_key: str | None = None
    priority: int = 0
    delay: int | None = None
    at: int | None = None
    deadline: int | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Doctor:
    """What a look over the database found: broken promises, and what stands still for want of a worker."""

    findings: Sequence[Finding]
    advice: Sequence[str]
    counts: Mapping[Status, int]
    workers: Sequence[WorkerRecord]


class Service:
    """Verbs and queries over one store. `actor` is who commands are recorded for unless a call names another."""

    def __init__(self, store: Store, clock: Clock, actor: str = "") -> None:
        self.store = store
        self.clock = clock
        self.actor = actor or default_actor()

    # ------------------------------------------------------------ starting
    async def start(self, workflow: str, version: str | None, encoded: bytes, options: StartOptions) -> Started:
        """Start a run; the same start made before gives the same run.

        Raises Conflict where the id or the idempotency key belongs to another workflow or another input.
        """
        new = self.new_run(workflow, version or await self.served_version(workflow), encoded, options)
        (started,) = await self.store.start([new])
        return _unless_conflict(started)

    async def start_many(self, runs: Sequence[NewRun]) -> list[Started]:
        """Start many runs in one transaction. Raises Conflict for the first that conflicts; the others are started."""
        replies = await self.store.start(runs)
        return [_unless_conflict(started) for started in replies]

    def new_run(self, workflow: str, version: str, encoded: bytes, options: StartOptions) -> NewRun:
        """The row that a start would insert. Raises ConfigurationError for an id, key, tag or deadline that is none."""
        now = self.clock.now()
        ready_at = options.at if options.at is not None else now + (options.delay or 0)
        if options.deadline is not None and options.deadline <= 0:
            raise ConfigurationError("the deadline of a run must be longer than 0 seconds")
        if options.idempotency_key is not None:
            check_id("the idempotency key", options.idempotency_key)
        for key, value in options.tags.items():
            check_id("the tag", key)
            check_id(f"the value of tag {key}", value)
        return NewRun(
            id=check_id("the run id", options.id) if options.id is not None else new_run_id(now),
            workflow=check_id("the workflow name", workflow),
            version=check_id("the workflow version", version),
            input=encoded,
            ready_at=ready_at,
            priority=options.priority,
            idempotency_key=options.idempotency_key,
            tags=dict(options.tags),
            actor=_text_of("the actor", self.actor),
            deadline_at=None if options.deadline is None else max(now, ready_at) + options.deadline,
        )

    async def served_version(self, workflow: str) -> str:
        """The version of `workflow` that the youngest living worker serves; "1" where none does."""
        living = [worker for worker in await self.store.workers() if worker.status == "alive"]
        for worker in sorted(living, key=lambda worker: worker.started_at, reverse=True):
            versions = [version for name, _, version in (s.rpartition("@") for s in worker.serves) if name == workflow]
            if versions:
                return versions[-1]
        return DEFAULT_VERSION

    # ------------------------------------------------------------ queries
    async def get(self, run_id: str, *, payloads: bool = True) -> RunRecord:
        """The run as its row is now. Raises NotFound."""
        run = await self.store.get(run_id, payloads=payloads) if _can_be_id(run_id) else None
        if run is None:
            raise NotFound(f"there is no run {run_id!a}; `runtrue run list` shows the runs there are")
        return run

    async def list_runs(
        self,
        *,
        statuses: Sequence[Status] = (),
        workflow: str | None = None,
        tags: Mapping[str, str] | None = None,
        since: int | None = None,
        limit: int = 50,
        cursor: tuple[int, str] | None = None,
    ) -> Page:
        """Runs that match all that is given, newest first, at most `limit` (1 to 1,000)."""
        limit = max(1, min(limit, 1_000))
        looked_for = [] if workflow is None else [workflow]
        for key, value in (tags or {}).items():
            looked_for += [key, value]
        for text in looked_for:
            check_id("what is looked for", text)
        where = RunFilter(tuple(statuses), workflow, dict(tags or {}), since)
        runs = await self.store.list_runs(where, limit + 1, cursor)
        more = len(runs) > limit
        shown = runs[:limit]
        return Page(shown, (shown[-1].created_at, shown[-1].id) if more else None)

    async def steps(self, run_id: str) -> tuple[list[StepRecord], list[AttemptRecord]]:
        """The recorded steps of a run and its failed attempts. Raises NotFound."""
        await self.get(run_id, payloads=False)
        return await self.store.steps(run_id)

    async def waits(self, run_id: str) -> list[Wait]:
        """What the run's branches wait for, or waited for, from outside: messages and children. Raises NotFound."""
        await self.get(run_id, payloads=False)
        return await self.store.waits(run_id)

    async def messages(self, run_id: str) -> list[Message]:
        """The messages that were sent to a run, oldest first, received ones too. Raises NotFound."""
        await self.get(run_id, payloads=False)
        return await self.store.messages(run_id)

    async def published(self, run_id: str) -> dict[str, bytes]:
        """The values that the run has published, encoded, by key. Raises NotFound."""
        await self.get(run_id, payloads=False)
        return await self.store.published(run_id)

    async def children(self, run_id: str) -> list[RunRecord]:
        """The runs that this run has started as its children, oldest first, without payloads. Raises NotFound."""
        await self.get(run_id, payloads=False)
        return await self.store.children(run_id)

    async def events(self, run_id: str, *, after: int = 0, limit: int = 1_000) -> list[Event]:
        """What happened to a run after event `after`, in the order of commits. Raises NotFound."""
        found = await self.store.events(run_id, after, limit)
        if not found:
            await self.get(run_id, payloads=False)
        return found

    async def holds(self, run_id: str | None = None, *, open_only: bool = True) -> list[Hold]:
        """Holds of one run or of all."""
        return await self.store.holds(run_id, open_only=open_only)

    async def pauses(self, run_id: str) -> list[Pause]:
        """The pauses of a run, past and present."""
        return await self.store.pauses(run_id)

    async def commands(self, run_id: str) -> list[CommandRecord]:
        """Every command that the run was given, refused ones too."""
        return await self.store.commands(run_id)

    async def workers(self) -> list[WorkerRecord]:
        """All workers that are known, living ones and past ones."""
        return await self.store.workers()

    async def in_flight(self, run: RunRecord) -> tuple[InFlight, ...]:
        """The steps that are running now as far as is known, longest first.

        The worker tells them with each renewal, up to a second ago: one whose end was recorded since is left out.
        """
        if run.worker_id is None:
            return ()
        told = [
            step
            for worker in await self.store.workers()
            if worker.id == run.worker_id
            for step in worker.in_flight
            if step.run_id == run.id
        ]
        if not told:
            return ()
        newest = await self.store.events(run.id, max(0, run.event_seq - EVENTS_LOOKED_BACK))
        ended = {
            (event.data.get("name"), event.data.get("attempt"), event.data.get("started_at"))
            for event in newest
            if event.type in ("step", "attempt_failed")
        }
        running = [step for step in told if (step.step, step.attempt, step.since) not in ended]
        return tuple(sorted(running, key=lambda step: step.since))

    async def doctor(self) -> Doctor:
        """Look the whole database over."""
        findings = await self.store.check()
        workers = await self.store.workers()
        counts = await self.store.count_runs()
        served = {name for worker in workers if worker.status == "alive" for name in worker.serves}
        advice: list[str] = []
        if any(counts.get(status) for status in (Status.PENDING, Status.WAITING)) and not served:
            advice.append("runs are pending or waiting and no worker is alive: start one with `runtrue worker MODULE`")
        advice.extend(
            f"worker {worker.id} is stalled in {worker.stalled_in}" for worker in workers if worker.stalled_in
        )
        return Doctor(findings, advice, counts, workers)

    # ------------------------------------------------------------ verbs
    async def pause(self, run_id: str, *, reason: str = "", actor: str = "", request_id: str = "") -> Outcome:
        """Pause a run: at once where no worker has it, else at the next step boundary. Raises Refused, NotFound."""
        return await self._command(run_id, Command.PAUSE, reason=reason, actor=actor, request_id=request_id)

    async def resume(
        self, run_id: str, *, reason: str = "", actor: str = "", request_id: str = "", pause_id: str | None = None
    ) -> Outcome:
        """Resume a paused run, or withdraw a pause request; with `pause_id` only if that is still the active pause."""
        return await self._command(
            run_id, Command.RESUME, reason=reason, actor=actor, request_id=request_id, pause_id=pause_id
        )

    async def cancel(self, run_id: str, *, reason: str = "", actor: str = "", request_id: str = "") -> Outcome:
        """Cancel a run: at once where no worker has it, else at the next step boundary."""
        return await self._command(run_id, Command.CANCEL, reason=reason, actor=actor, request_id=request_id)

    async def terminate(self, run_id: str, *, reason: str = "", actor: str = "", request_id: str = "") -> Outcome:
        """End a run as cancelled now. Its worker is fenced out; what it still sends is discarded.

        `in_flight` of the outcome are the steps that may still run to their end.
        """
        before = await self.store.get(run_id, payloads=False) if _can_be_id(run_id) else None
        told = await self.in_flight(before) if before is not None else ()
        outcome = await self._command(run_id, Command.TERMINATE, reason=reason, actor=actor, request_id=request_id)
        return replace(outcome, in_flight=told) if outcome.changed and not outcome.repeated else outcome

    async def answer(
        self, run_id: str, hold_id: str, value: str, *, reason: str = "", actor: str = "", request_id: str = ""
    ) -> Outcome:
        """Answer an open hold, such as `retry` or `fail` for a run that keeps losing its worker."""
        return await self._command(
            run_id,
            Command.ANSWER,
            reason=reason,
            actor=actor,
            request_id=request_id,
            hold_id=hold_id,
            value=value,
        )

    async def send(self, run_id: str, topic: str, body: bytes, *, actor: str = "", request_id: str = "") -> Outcome:
        """Send an encoded message to a run. It is kept until the run receives it, also while the run is paused.

        The same message sent again under its request id changes nothing. Raises Conflict if that id was used for
        another one; Refused if the run has ended or is being cancelled.
        """
        return await self._command(
            run_id,
            Command.SEND,
            reason="",
            actor=actor,
            request_id=request_id,
            value=check_id("the topic", topic),
            body=body,
        )

    async def _command(
        self,
        run_id: str,
        verb: Command,
        *,
        reason: str,
        actor: str,
        request_id: str,
        pause_id: str | None = None,
        hold_id: str | None = None,
        value: str = "",
        body: bytes | None = None,
    ) -> Outcome:
        if not _can_be_id(run_id):
            raise NotFound(f"there is no run {run_id!a}; `runtrue run list` shows the runs there are")
        request = CommandRequest(
            run_id=run_id,
            verb=verb,
            request_id=check_id("the request id", request_id) if request_id else new_request_id(),
            not_after=self.clock.now() + COMMAND_PATIENCE,
            actor=_text_of("the actor", actor or self.actor),
            reason=_text_of("the reason", reason),
            pause_id=pause_id,
            hold_id=hold_id,
            value=value,
            body=body,
        )
        reply = await self.store.command(request)
        return await self._outcome(request, reply)

    async def _outcome(self, request: CommandRequest, reply: CommandReply) -> Outcome:
        run_id, verb = request.run_id, request.verb
        if not reply.found:
            raise NotFound(f"there is no run {run_id!a}; `runtrue run list` shows the runs there are")
        if reply.request_conflict:
            used = "another message or command" if verb is Command.SEND else "another command"
            raise Conflict(
                f"request id {request.request_id!a} was used for {used} of run {run_id}; nothing was changed"
            )
        actions = actions_for(reply.status, reply.open_holds)
        if reply.answer is Answer.REFUSED:
            raise Refused(f"{verb.value} refused for run {run_id}: {reply.refusal}", reply.status, actions)
        in_flight: tuple[InFlight, ...] = ()
        if reply.answer is Answer.REQUESTED and not reply.repeated:
            run = await self.store.get(run_id, payloads=False)
            in_flight = await self.in_flight(run) if run is not None else ()
        return Outcome(
            run_id=run_id,
            command=verb,
            status=reply.status,
            done=reply.answer is Answer.DONE,
            changed=reply.changed,
            available_actions=actions,
            request_id=request.request_id,
            request=reply.request,
            holds=tuple(reply.open_holds),
            still_held_by=tuple(reply.open_holds) if reply.still_held else (),
            in_flight=in_flight,
            pause_id=reply.pause_id,
            repeated=reply.repeated,
        )


def _can_be_id(text: object) -> bool:
    try:
        check_id("the run id", text)
    except ConfigurationError:
        return False
    return True


def _text_of(what: str, text: object) -> str:
    """Words of a person, as they can stand in a row: bounded, without NUL and lone surrogates."""
    if not isinstance(text, str):
        raise ConfigurationError(f"{what} must be text, not {type(text).__name__}")
    return clean_text(text, WORDS_CHARACTERS_MAX)


def actions_for(status: Status, open_holds: Sequence[Hold]) -> tuple[str, ...]:
    """The commands that would change something, as text: `answer` only where an open hold takes one, and so on."""
    open_kinds = {hold.kind for hold in open_holds if hold.closed_at is None}
    idle: set[Command] = set()
    if not open_kinds & set(CLOSED_BY_ANSWER):
        idle.add(Command.ANSWER)
    if status is Status.PAUSED and HoldKind.OPERATOR in open_kinds:
        idle.add(Command.PAUSE)
    if status is Status.PAUSED and open_kinds and not open_kinds & CLOSED_BY_RESUME:
        idle.add(Command.RESUME)
    return tuple(command.value for command in available_actions(status) if command not in idle)


def default_actor() -> str:
    """The name of the user whose process this is; `unknown` where the system has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container user without an entry in the password file
        return "unknown"


def _unless_conflict(started: Started) -> Started:
    if started.conflict:
        raise Conflict(f"nothing was started: {started.conflict}")
    return started
