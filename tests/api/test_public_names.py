"""The public names, and what an import of them costs."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import runtrue as rt
import runtrue.sync

NAMES = [
    "App",
    "AsyncStep",
    "AsyncWorkflow",
    "CancelRun",
    "ChildHandle",
    "Client",
    "CodecError",
    "ConfigurationError",
    "Conflict",
    "Duration",
    "ErrorInfo",
    "Event",
    "Hold",
    "HoldKind",
    "NotDecodable",
    "NotEncodable",
    "NotFound",
    "Outcome",
    "OutcomeUnknown",
    "PayloadTooLarge",
    "Refused",
    "ResultTimeout",
    "Retry",
    "Run",
    "RunCancelled",
    "RunFailed",
    "RunHandle",
    "RunInfo",
    "RuntrueError",
    "Status",
    "Step",
    "StepFailed",
    "StepInfo",
    "StoreBusy",
    "StoreError",
    "StoreUnusable",
    "SyncClient",
    "SyncRunHandle",
    "SyncStep",
    "SyncWorkflow",
    "Topic",
    "WaitFor",
    "WaitTimeout",
    "Workflow",
    "WrongPlace",
    "first",
    "gather",
    "logger",
    "map",
    "now",
    "patched",
    "publish",
    "random",
    "receive",
    "ref",
    "send",
    "set_progress",
    "sleep",
    "sleep_until",
    "start_child",
    "state",
    "step",
    "this_run",
    "this_step",
    "uuid4",
    "workflow",
]

SIGNATURES = {
    "App": "database workflows slots threads lifespan around_step lease drain stall_limit actor",
    "Client": "database actor create",
    "Retry": "attempts first_delay factor max_delay jitter retry_on give_up_on",
    "step": "fn name retry timeout deadline raises interruptible timeout_abandons",
    "workflow": "fn name version deadline raises",
    "ref": "name result",
    "sleep": "duration",
    "sleep_until": "when",
    "set_progress": "done total note",
    "publish": "key value",
    "patched": "change",
    "state": "type",
    "Topic": "name type",
    "receive": "topic type timeout default",
    "send": "run topic payload",
    "gather": "calls",
    "first": "calls",
    "map": "fn items limit key return_exceptions",
    "start_child": "workflow args kwargs",
    "ChildHandle.result": "self",
    "ChildHandle.send": "self topic payload",
    "RunHandle.result": "self timeout",
    "RunHandle.wait": "self until timeout",
    "RunHandle.pause": "self reason request_id",
    "RunHandle.resume": "self reason request_id pause_id",
    "RunHandle.cancel": "self reason request_id wait",
    "RunHandle.terminate": "self reason request_id",
    "RunHandle.answer": "self hold_id value reason request_id",
    "RunHandle.events": "self after follow",
    "Client.runs": "self status workflow tag limit",
    "Workflow.options": "self id idempotency_key priority delay at deadline tags on_parent_cancel",
    "Step.options": "self name retry timeout deadline interruptible",
}


def test_the_public_names_are_these_and_no_others():
    assert sorted(rt.__all__) == sorted(NAMES)
    loose = {name for name, value in vars(rt).items() if not name.startswith("_") and not inspect.ismodule(value)}
    assert loose == set(NAMES)


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_parameters_of_public_calls_keep_their_names(name: str):
    target = rt
    for part in name.split("."):
        target = getattr(target, part)
    assert " ".join(inspect.signature(target).parameters) == SIGNATURES[name]


ONLY_AWAITED = {"ChildHandle", "Client", "RunHandle"}
BOTH = {"first", "gather", "map", "receive", "send", "sleep", "sleep_until", "start_child"}


def test_the_names_of_runtrue_sync_are_the_same_but_for_what_is_only_awaited():
    assert set(runtrue.sync.__all__) == set(NAMES) - ONLY_AWAITED | {"SyncChildHandle"}
    for name in set(NAMES) - ONLY_AWAITED:
        assert (getattr(runtrue.sync, name) is getattr(rt, name)) == (name not in BOTH), name


@pytest.mark.parametrize("name", sorted(BOTH))
def test_a_blocking_word_takes_what_its_awaited_twin_takes(name: str):
    awaited, blocking = inspect.signature(getattr(rt, name)), inspect.signature(getattr(runtrue.sync, name))
    assert [(p.name, p.kind, p.default) for p in awaited.parameters.values()] == [
        (p.name, p.kind, p.default) for p in blocking.parameters.values()
    ]
    assert inspect.getdoc(getattr(runtrue.sync, name))


def test_every_public_name_says_what_it_is():
    for name in NAMES:
        if name not in {"Duration", "WaitFor", "logger"}:  # aliases and an instance cannot carry one
            assert inspect.getdoc(getattr(rt, name)), name


def test_errors_are_one_tree():
    for name in NAMES:
        kind = getattr(rt, name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert issubclass(kind, rt.RuntrueError), name
    assert not issubclass(rt.CancelRun, Exception)
    assert issubclass(rt.ResultTimeout, TimeoutError)


def test_importing_runtrue_opens_no_file_starts_no_thread_and_makes_no_loop(tmp_path: Path):
    program = """
import json, sys, threading
opened = []
sys.addaudithook(lambda name, args: opened.append(str(args[0])) if name == "sqlite3.connect" else None)
sys.addaudithook(lambda name, args: opened.append(str(args)) if name == "socket.connect" else None)
import runtrue
app = runtrue.App("nowhere/runs.db")
client = runtrue.Client()
print(json.dumps([opened, threading.active_count(), app.worker_id]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == [[], 1, ""]
    assert list(tmp_path.iterdir()) == []
