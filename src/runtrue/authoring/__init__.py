"""What a workflow author writes. It reaches the engine by a Protocol in a context variable."""

from runtrue.authoring._calls import (
    RunLogger,
    logger,
    now,
    random,
    set_progress,
    sleep,
    sleep_until,
    this_run,
    this_step,
    uuid4,
)
from runtrue.authoring._context import (
    BlockingRuntime,
    RunInfo,
    Runtime,
    StepInfo,
    Threaded,
    blocking_variable,
    runtime_variable,
    step_variable,
)
from runtrue.authoring._duration import Duration, datetime_of, microseconds_of, seconds_of
from runtrue.authoring._retry import Retry
from runtrue.authoring._step import AsyncStep, Step, StepSettings, SyncStep, step
from runtrue.authoring._workflow import (
    AsyncWorkflow,
    DefinedWorkflow,
    RunSettings,
    SyncWorkflow,
    Workflow,
    ref,
    workflow,
)

__all__ = [
    "AsyncStep",
    "AsyncWorkflow",
    "BlockingRuntime",
    "DefinedWorkflow",
    "Duration",
    "Retry",
    "RunInfo",
    "RunLogger",
    "RunSettings",
    "Runtime",
    "Step",
    "StepInfo",
    "StepSettings",
    "SyncStep",
    "SyncWorkflow",
    "Threaded",
    "Workflow",
    "blocking_variable",
    "datetime_of",
    "logger",
    "microseconds_of",
    "now",
    "random",
    "ref",
    "runtime_variable",
    "seconds_of",
    "set_progress",
    "sleep",
    "sleep_until",
    "step",
    "step_variable",
    "this_run",
    "this_step",
    "uuid4",
    "workflow",
]
