"""Child runs: started by a branch, and waited for by it or not."""

from typing import TYPE_CHECKING, Any, NoReturn

from runtrue import codec
from runtrue.authoring import Workflow
from runtrue.engine.strands import Strand
from runtrue.engine.values import outcome_record
from runtrue.engine.waits import fact
from runtrue.errors import CodecError, Conflict, NotFound, RunCancelled, RunFailed
from runtrue.ids import check_id, fit_id
from runtrue.records import StepRecord, Wait
from runtrue.store.protocol import ChildStart, NewRun, ParentLink, RunEffects

if TYPE_CHECKING:
    from runtrue.engine.calls import Calls

NOT_STARTED = {"runtrue.errors.Conflict": Conflict, "runtrue.errors.NotFound": NotFound}


async def call(
    calls: "Calls",
    strand: Strand,
    recorded: StepRecord | None,
    ordinal: int,
    workflow: Workflow[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Start a child and wait for its result."""
    execution, path = calls.execution, calls.branch.path
    child_id = workflow.run_settings.id or id_of(execution.run_id, path, ordinal)
    if recorded is None:
        wait = execution.history.wait_at(path, ordinal)
        known, opening = wait is not None, None
        if known:
            strand.make_use()
        if wait is None:
            await execution.go_live(strand)
            strand.make_use()
            wait = Wait(path, ordinal, "child", workflow.name, child_id, calls.time())
            run = await _new_run(calls, child_id, ordinal, workflow, args, kwargs)
            opening = RunEffects(execution.run_id, execution.epoch, children=[ChildStart(run, wait=wait)])
        recorded = await fact(calls, strand, wait, known=known, opening=opening)
    return await _result(calls, strand, recorded, child_id, workflow)


async def start(
    calls: "Calls",
    strand: Strand,
    recorded: StepRecord | None,
    ordinal: int,
    workflow: Workflow[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> str:
    """Start a child and return its id."""
    execution, path = calls.execution, calls.branch.path
    if recorded is None:
        await execution.go_live(strand)
        strand.make_use()
        child_id = workflow.run_settings.id or id_of(execution.run_id, path, ordinal)
        run = await _new_run(calls, child_id, ordinal, workflow, args, kwargs)
        body = codec.encode(child_id, what="the child's id")
        record = outcome_record(path, ordinal, workflow.name, "start_child", body, calls.time())
        effects = RunEffects(execution.run_id, execution.epoch, children=[ChildStart(run, record=record)])
        reply = await execution.record_for(strand, effects, f"the start of a child run of {workflow.name}")
        place = (path, ordinal)
        recorded = next((step for step in reply.existing if (step.branch, step.ordinal) == place), record)
    if recorded.error is not None:
        _raise_not_started(recorded.error)
    return codec.decode(recorded.output or b"null", str, what="the child's id")


async def wait_for(
    calls: "Calls",
    strand: Strand,
    recorded: StepRecord | None,
    ordinal: int,
    run_id: str,
    workflow: Workflow[..., Any] | str,
) -> Any:
    """Wait for the result of a run that was started before."""
    if recorded is None:
        execution, path = calls.execution, calls.branch.path
        wait = execution.history.wait_at(path, ordinal)
        known = wait is not None
        if wait is None:
            await execution.go_live(strand)
            name = workflow if isinstance(workflow, str) else workflow.name
            wait = Wait(path, ordinal, "child", name, run_id, calls.time())
        recorded = await fact(calls, strand, wait, known=known)
    return await _result(calls, strand, recorded, run_id, workflow)


def id_of(run_id: str, path: str, ordinal: int) -> str:
    """The id of a child that was given none: its parent's, and the place of the call.

    The two signs tell generations from branches: no two places of a whole family have the same id.
    """
    place = ".".join((*path.split("/"), str(ordinal))) if path else str(ordinal)
    return fit_id(f"{run_id}~{place}")


async def _new_run(
    calls: "Calls",
    child_id: str,
    ordinal: int,
    workflow: Workflow[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> NewRun:
    execution, settings = calls.execution, workflow.run_settings
    host = execution.host
    version = workflow.version or host.version_of(workflow.name) or await host.outside.served_version(workflow.name)
    body = workflow.encode_input(args, kwargs)
    now = calls.time()
    return NewRun(
        id=check_id("the child's id", child_id),
        workflow=workflow.name,
        version=version,
        input=body,
        ready_at=settings.at if settings.at is not None else now + (settings.delay or 0),
        priority=settings.priority,
        idempotency_key=settings.idempotency_key,
        tags=dict(settings.tags),
        actor=f"run {execution.run_id}",
        deadline_at=None if settings.deadline is None else now + settings.deadline,
        parent=ParentLink(execution.run_id, calls.branch.path, ordinal, settings.on_parent_cancel == "cancel"),
    )


async def _result(
    calls: "Calls", strand: Strand, recorded: StepRecord, child_id: str, workflow: Workflow[..., Any] | str
) -> Any:
    known = workflow if isinstance(workflow, Workflow) else None
    if recorded.error is not None:
        _raise(recorded, child_id, known)
    try:
        result_type = known.result_type if known is not None else Any
        return codec.decode(recorded.output or b"null", result_type, what=f"the result of child run {child_id}")
    except CodecError as unfit:
        await calls.does_not_fit(strand, recorded.ordinal, unfit)


def _raise(recorded: StepRecord, child_id: str, workflow: Workflow[..., Any] | None) -> NoReturn:
    body = recorded.error or b"{}"
    if recorded.attempt == 0:
        _raise_not_started(body)
    if workflow is not None and workflow.raises:
        rebuilt = codec.rebuild_error(body, workflow.raises)
        if rebuilt is not None:
            raise rebuilt
    error = codec.decode_error(body)
    if error.type == "cancelled":
        raise RunCancelled(child_id, error.message)
    raise RunFailed(child_id, error)


def _raise_not_started(body: bytes) -> NoReturn:
    error = codec.decode_error(body)
    raise NOT_STARTED.get(error.type, Conflict)(error.message)
