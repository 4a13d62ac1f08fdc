"""Opening and closing Apps and Clients, and what they refuse."""

import asyncio
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.engine.faults import always, install
from tests.engine.running import Gate, finished, opened, until

import runtrue as rt
from runtrue.lifecycle import Status


@rt.workflow
async def flow() -> str:
    return "done"


@pytest.mark.parametrize("kind", [rt.Client, rt.App])
async def test_before_it_is_open_everything_is_refused_and_the_way_is_named(database: Path, kind: type[rt.Client]):
    client = kind(database)
    for call in (client.start(flow), client.get("x"), client.runs(), client.run(flow)):
        with pytest.raises(rt.ConfigurationError, match=f"this {kind.__name__} is not open; use `async with`"):
            await call
    assert not database.exists()  # noqa: ASYNC240


async def test_after_it_was_closed_everything_is_refused_and_it_can_be_opened_again(database: Path):
    app = rt.App(database, workflows=[flow])
    async with app:
        run = await app.start(flow)
        await finished(run)
    for call in (run.status, run.result, run.cancel, app.runs):
        with pytest.raises(rt.ConfigurationError, match="is not open"):
            await call()
    async with app:
        assert await run.status() is Status.COMPLETED
        assert await finished(await app.start(flow)) == "done"


async def test_opening_what_is_open_is_refused_and_leaves_it_open(database: Path):
    async with opened(database, flow) as app:
        with pytest.raises(rt.ConfigurationError, match="this App is open already; close it first"):
            await app.open()
        assert await finished(await app.start(flow)) == "done"


async def test_closing_twice_is_fine_and_closing_what_was_never_open_too(database: Path):
    app = rt.App(database, workflows=[flow])
    await app.close()
    await app.open()
    await app.close()
    await app.close()


async def test_an_app_whose_worker_cannot_register_is_closed_again(database: Path, monkeypatch: pytest.MonkeyPatch):
    faulty = install(monkeypatch)

    async def refuse(worker: object) -> None:
        raise rt.StoreBusy("busy; nothing was changed")

    faulty.register_worker = refuse  # type: ignore[attr-defined]
    app = rt.App(database, workflows=[flow])
    with pytest.raises(rt.StoreBusy, match="nothing was changed"):
        await app.open()
    with pytest.raises(rt.ConfigurationError, match="is not open"):
        await app.runs()
    async with app:  # the fault is only in the first database opened
        assert await finished(await app.start(flow)) == "done"


async def test_an_app_closes_though_its_goodbye_cannot_be_written(database: Path, monkeypatch: pytest.MonkeyPatch):
    faulty = install(monkeypatch)

    async def refuse(worker_id: str) -> None:
        raise rt.StoreBusy("busy")

    faulty.retire_worker = refuse  # type: ignore[attr-defined]
    faulty.before["renew"] = always(rt.StoreBusy("busy"))
    async with opened(database, flow) as app:
        assert await finished(await app.start(flow)) == "done"


def test_what_was_opened_before_a_fork_is_refused_in_the_child(database: Path):
    program = f"""
import asyncio, os, sys, runtrue as rt

async def main():
    async with rt.Client({str(database)!r}) as client:
        child = os.fork()
        if child == 0:
            try:
                client.store
            except rt.ConfigurationError as refused:
                os.write(1, str(refused).encode())
            os._exit(0)
        os.waitpid(child, 0)

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "this Client was opened before the fork; open one in the child"


def test_a_forked_child_closes_nothing_of_its_parent(database: Path):
    program = f"""
import asyncio, os, runtrue as rt

@rt.workflow
async def flow() -> None: ...

async def main():
    async with rt.Client({str(database)!r}) as client:
        child = os.fork()
        if child == 0:
            asyncio._set_running_loop(None)
            asyncio.run(client.close())
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print((await client.start(flow)).id != "")

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


async def test_a_client_that_must_not_create_refuses_a_file_that_is_not_there(database: Path):
    with pytest.raises(rt.StoreUnusable, match="there is no database at"):
        async with rt.Client(database, create=False):
            pass
    assert not database.exists()  # noqa: ASYNC240


async def test_two_apps_in_one_process_serve_two_databases(tmp_path: Path):
    async with opened(tmp_path / "one.db", flow) as one, opened(tmp_path / "two.db", flow) as two:
        first, second = await one.start(flow.options(id="same")), await two.start(flow.options(id="same"))
        assert await finished(first) == await finished(second) == "done"
        assert one.worker_id != two.worker_id
        assert len(await one.runs()) == len(await two.runs()) == 1


async def test_each_opening_is_another_worker(database: Path):
    app = rt.App(database, workflows=[flow])
    ids: list[str] = []
    for _ in range(2):
        assert app.worker_id == ""
        async with app:
            ids.append(app.worker_id)
    assert ids[0] != ids[1]


async def test_with_settings_gives_another_app_and_leaves_the_first_alone(tmp_path: Path):
    app = rt.App(tmp_path / "one.db", workflows=[flow], slots=7, lease=9)
    changed = app.with_settings(database=str(tmp_path / "two.db"), lease=3)
    assert app.database.value.endswith("one.db")
    assert changed.database.value.endswith("two.db")
    assert (changed._slots, changed._lease_seconds, app._lease_seconds) == (7, 3, 9)
    async with changed:
        assert await finished(await changed.start(flow)) == "done"
    assert not (tmp_path / "one.db").exists()


async def test_copied_results_show_at_once_what_a_record_loses(database: Path):
    made: list[list[int]] = []
    seen: list[list[int]] = []

    @rt.step
    async def numbers() -> list[int]:
        made.append([1, 2])
        return made[-1]

    @rt.workflow
    async def looking() -> None:
        seen.append(await numbers())

    for copies in (False, True):
        async with rt.App(database, workflows=[looking]).with_settings(copies_results=copies) as app:
            await finished(await app.start(looking))
    assert seen == made
    assert [one is other for one, other in zip(seen, made, strict=True)] == [True, False]


async def test_a_step_without_annotation_gives_from_the_first_time_on_what_its_record_gives(database: Path):
    seen: list[Any] = []

    @rt.step
    async def pair():
        return (1, 2)

    @rt.workflow
    async def looking() -> None:
        seen.append(await pair())

    async with rt.App(database, workflows=[looking]) as app:
        await finished(await app.start(looking))
    assert seen == [[1, 2]], "a replay would read a list, so a tuple must not be seen before"


async def test_serve_opens_executes_drains_and_closes_when_it_is_asked_to(database: Path):
    app = rt.App(database, workflows=[flow])
    serving = asyncio.create_task(app.serve())
    await until(lambda: bool(app.worker_id))
    assert await finished(await app.start(flow)) == "done"
    app.request_drain()
    async with asyncio.timeout(20):
        await serving
    assert app.worker_id == ""


def test_run_forever_ends_with_sigterm_and_gives_its_runs_back(tmp_path: Path):
    program = tmp_path / "forever.py"
    program.write_text(
        """
import os, signal
import runtrue as rt

@rt.step
async def work() -> None:
    os.kill(os.getpid(), signal.SIGTERM)

@rt.workflow
async def flow() -> None:
    for _ in range(100_000):
        await work()

@rt.step
async def begin() -> None: ...

app = rt.App("runs.db", workflows=[flow])
if __name__ == "__main__":
    import asyncio
    async def start() -> None:
        async with rt.Client("runs.db") as client:
            await client.start(flow.options(id="one"))
    asyncio.run(start())
    app.run_forever()
    print("ended well")
"""
    )
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ended well\n"), done.stderr

    async def look() -> Status:
        async with rt.Client(tmp_path / "runs.db") as client:
            return await (await client.get("one")).status()

    assert asyncio.run(look()) is Status.PENDING


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"slots": 0}, "slots must be a whole number from 1 to 100,000, not 0"),
        ({"slots": 1.5}, "not 1.5"),
        ({"slots": True}, "not True"),
        ({"lease": 0.1}, "a lease of 0.1 s is too short"),
        ({"lease": "3"}, "App: lease must be seconds or a timedelta, not str"),
        ({"drain": -1}, "App: drain"),
        ({"stall_limit": float("nan")}, "App: stall_limit"),
        ({"workflows": [7]}, "App: workflows= takes workflows and modules, not a int"),
        ({"workflows": [None]}, "not nothing"),
    ],
    ids=str,
)
def test_settings_that_can_be_none_are_refused_when_the_app_is_made(settings: dict[str, Any], message: str):
    with pytest.raises(rt.ConfigurationError, match=message):
        rt.App(**settings)


def test_two_workflows_of_one_name_and_version_are_refused_and_the_same_one_twice_is_fine():
    @rt.workflow(name="flow")
    async def another() -> None: ...

    with pytest.raises(rt.ConfigurationError, match="two workflows are called flow@1"):
        rt.App(workflows=[flow, another])
    assert rt.App(workflows=[flow, flow]).workflows == (flow,)


class Agent:
    def __init__(self, name: str) -> None:
        self.name = name

    @rt.workflow
    async def solve(self, task: str) -> str:
        return f"{self.name} solved {task}"


async def test_a_method_of_an_instance_is_a_workflow_that_clients_start_through_its_class(database: Path):
    async with opened(database, Agent("ana").solve) as app:
        assert await finished(await app.start(Agent.solve.options(id="one"), "it")) == "ana solved it"
        assert await finished(await app.start("solve", task="this")) == "ana solved this"


def test_a_method_without_its_instance_and_a_mere_name_are_refused_with_the_right_way():
    with pytest.raises(rt.ConfigurationError, match=r"App: Agent.solve is a method; .*: Agent\(\.\.\.\).solve"):
        rt.App(workflows=[Agent.solve])
    with pytest.raises(rt.ConfigurationError, match="App: workflow solve is known by its name only"):
        rt.App(workflows=[rt.ref("solve")])


def test_the_method_of_one_instance_may_be_given_twice_and_those_of_two_may_not():
    agent = Agent("ana")
    assert len(rt.App(workflows=[agent.solve, agent.solve]).workflows) == 1
    with pytest.raises(rt.ConfigurationError, match="two workflows are called solve@1"):
        rt.App(workflows=[agent.solve, Agent("otto").solve])


def test_a_module_gives_its_workflows_of_both_colours_and_leaves_out_what_it_only_names():
    @rt.workflow
    def blocking() -> None: ...

    module = ModuleType("flows")
    vars(module).update(flow=flow, blocking=blocking, solve=Agent.solve, other=rt.ref("other"))
    assert rt.App(workflows=[module]).workflows == (flow, blocking)


async def test_a_drain_waits_for_the_step_in_flight(database: Path):
    gate = Gate()

    @rt.step
    async def work() -> str:
        await gate.pass_through()
        return "worked"

    @rt.workflow
    async def working() -> str:
        return await work()

    async with opened(database, working) as app:
        run = await app.start(working)
        await gate.reached()
        closing = asyncio.create_task(app.close())
        await until(lambda: app._worker is None)
        assert not closing.done()
        gate.open()
        await closing
    async with rt.Client(database) as client:
        assert (await (await client.get(run.id)).info()).steps_done == 1
