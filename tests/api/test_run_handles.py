"""A run seen from outside: results, waiting, looking, events."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.engine.running import Gate, finished, opened, reaches, until
from tests.support.manual_clock import ManualClock

import runtrue as rt
from runtrue.lifecycle import Status


@dataclass
class Receipt:
    number: int


@rt.workflow
async def issue(number: int) -> Receipt:
    return Receipt(number)


@rt.workflow
async def break_down() -> None:
    raise LookupError("no such order")


@rt.workflow
async def nap() -> str:
    await rt.sleep(60)
    return "awake"


async def test_result_is_of_the_annotated_type_also_from_a_handle_found_again(database: Path):
    async with opened(database, issue) as app:
        run = await app.start(issue, 7)
        assert await finished(run) == Receipt(7)
        assert await finished(await app.get(run.id)) == Receipt(7), "the App has the code"
    async with rt.Client(database) as client:
        assert await finished(await client.get(run.id, issue)) == Receipt(7)
        assert await finished(await client.get(run.id)) == {"number": 7}, "without the code it is plain data"


async def test_result_of_a_failed_run_raises_its_error(database: Path):
    async with opened(database, break_down) as app:
        run = await app.start(break_down)
        with pytest.raises(rt.RunFailed) as failed:
            await finished(run)
        assert failed.value.run_id == run.id
        assert failed.value.error.type == "LookupError"
        assert str(failed.value) == f"run {run.id} failed: LookupError: no such order"
        assert 'raise LookupError("no such order")' in failed.value.error.traceback


async def test_result_of_a_cancelled_run_raises_with_the_reason(database: Path):
    async with rt.Client(database) as client:
        run = await client.start(issue, 1)
        await run.cancel(reason="not needed")
        with pytest.raises(rt.RunCancelled, match=f"run {run.id} was cancelled: not needed") as cancelled:
            await run.result()
        assert cancelled.value.reason == "not needed"


async def test_a_result_that_does_not_come_in_time_ends_the_wait_and_not_the_run(database: Path, clock: ManualClock):
    async with opened(database, nap, clock=clock) as app:
        run = await app.start(nap)
        await reaches(run, "waiting")
        waiting = asyncio.create_task(run.result(timeout=5))
        await clock.sleeper(5)
        clock.advance(5)
        with pytest.raises(rt.ResultTimeout, match="is still waiting; it goes on") as timeout:
            await waiting
        assert timeout.value.status is Status.WAITING
        assert isinstance(timeout.value, TimeoutError)
        clock.advance(55)
        assert await finished(run) == "awake"


async def test_a_timeout_of_nothing_looks_once(database: Path):
    async with rt.Client(database) as client:
        run = await client.start(issue, 1)
        with pytest.raises(rt.ResultTimeout):
            await run.result(timeout=0)
        with pytest.raises(rt.ConfigurationError, match="timeout must be from 0 seconds"):
            await run.result(timeout=-1)


async def test_a_caller_that_gives_up_by_asyncio_timeout_leaves_the_run_alone(database: Path):
    async with rt.Client(database) as client:
        run = await client.start(issue, 1)
        with pytest.raises(TimeoutError) as timeout:
            async with asyncio.timeout(0.02):
                await run.result(timeout=50)
        assert not isinstance(timeout.value, rt.ResultTimeout)
        assert await run.status() is Status.PENDING
        assert client.watcher._waiting == {}


async def test_many_callers_wait_for_one_run(database: Path, clock: ManualClock):
    async with opened(database, nap, clock=clock) as app:
        run = await app.start(nap)
        waiting = [asyncio.create_task(run.result()) for _ in range(20)]
        await reaches(run, "waiting")
        clock.advance(60)
        assert set(await asyncio.gather(*waiting)) == {"awake"}


async def test_wait_returns_the_run_as_it_is_when_it_gets_there_or_has_ended_otherwise(
    database: Path, clock: ManualClock
):
    async with opened(database, nap, clock=clock) as app:
        run = await app.start(nap)
        found = await run.wait("waiting")
        assert found.status is Status.WAITING
        paused = asyncio.create_task(run.wait("paused"))
        await run.pause()
        assert (await paused).status is Status.PAUSED
        failed = asyncio.create_task(run.wait("failed"))
        await run.cancel()
        assert (await failed).status is Status.CANCELLED, "it cannot fail any more"
        assert (await run.wait()).status is Status.CANCELLED


@pytest.mark.parametrize("until", ["running", "pending", "done", "", "cancelling"])
async def test_wait_for_what_cannot_be_waited_for_is_refused_with_the_choice(database: Path, until: str):
    async with rt.Client(database) as client:
        run = await client.start(issue, 1)
        with pytest.raises(rt.ConfigurationError, match="one of finished, paused, waiting, completed"):
            await run.wait(until)  # type: ignore[arg-type]


async def test_wait_in_one_process_sees_what_another_one_does(database: Path):
    async with rt.Client(database) as watching:
        run = await watching.start(issue, 3)
        waiting = asyncio.create_task(run.result())
        async with opened(database, issue):
            async with asyncio.timeout(20):
                assert await waiting == Receipt(3)


async def test_a_wait_that_is_open_when_the_client_closes_says_so(database: Path):
    client = rt.Client(database)
    await client.open()
    run = await client.start(issue, 3)
    waiting = asyncio.create_task(run.result())
    await until(lambda: bool(client.watcher._waiting))
    await client.close()
    with pytest.raises(rt.ConfigurationError, match=f"closed while it waited for run {run.id}; the run goes on"):
        await waiting


async def test_info_tells_the_whole_row(database: Path):
    async with opened(database, issue, break_down) as app:
        run = await app.start(issue.options(tags={"team": "red"}), 7)
        await finished(run)
        info = await run.info()
        assert (info.id, info.workflow, info.version, info.status) == (run.id, "issue", "1", Status.COMPLETED)
        assert (info.output, info.error, info.attempt, info.steps_done) == (Receipt(7), None, 1, 0)
        assert info.tags == {"team": "red"}
        assert info.started_at is not None
        assert info.finished_at is not None
        assert info.created_at <= info.started_at <= info.finished_at
        assert info.created_at.tzinfo is UTC
        broken = await app.start(break_down)
        failed = await broken.wait()
        assert (failed.output, failed.error and failed.error.message) == (None, "no such order")


async def test_a_result_that_does_not_fit_the_type_that_is_asked_for_is_told(database: Path):
    @rt.workflow(name="issue")
    async def issue_text(number: int) -> str:
        return str(number)

    async with opened(database, issue) as app:
        run = await app.start(issue, 7)
        await finished(run)
    async with rt.Client(database) as client:
        with pytest.raises(rt.NotDecodable, match=f"the result of run {run.id} cannot be read as str"):
            await (await client.get(run.id, issue_text)).result()


async def test_an_unknown_run_is_not_found_by_any_call(database: Path):
    async with rt.Client(database) as client:
        with pytest.raises(rt.NotFound, match="there is no run 'nowhere'; `runtrue run list` shows the runs there are"):
            await client.get("nowhere")
        ghost = rt.RunHandle[int](client, "nowhere")
        for call in (ghost.status, ghost.info, ghost.result, ghost.wait, ghost.pause, ghost.resume, ghost.cancel):
            with pytest.raises(rt.NotFound):
                await call()
        with pytest.raises(rt.NotFound):
            await ghost.terminate()
        with pytest.raises(rt.NotFound):
            _ = [event async for event in ghost.events()]


async def test_a_handle_of_another_workflow_is_refused(database: Path):
    async with rt.Client(database) as client:
        run = await client.start(issue, 1)
        with pytest.raises(rt.ConfigurationError, match=f"run {run.id} is a run of issue, not of nap"):
            await client.get(run.id, nap)


async def test_events_tell_what_happened_in_order_without_gaps_and_from_any_point(database: Path):
    async with opened(database, nap) as app:
        run = await app.start(nap)
        await reaches(run, "waiting")
        await run.pause(reason="lunch")
        await run.cancel()
        events = [event async for event in run.events()]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        types = [event.type for event in events]
        assert types[:4] == ["created", "claimed", "step", "waiting"]
        assert "paused" in types
        assert types[-1] == "cancelled"
        assert [event async for event in run.events(after=3)] == events[3:]
        assert [event async for event in run.events(after=len(events))] == []


async def test_events_are_followed_until_the_run_has_ended(database: Path):
    gate = Gate()

    @rt.step
    async def work() -> None:
        await gate.pass_through()

    @rt.workflow
    async def flow() -> None:
        await work()

    async with opened(database, flow) as app, rt.Client(database) as client:
        run = await client.start(flow)
        seen: list[str] = []
        async with asyncio.timeout(20):
            async for event in run.events(follow=True):
                seen.append(event.type)
                if event.type == "claimed":
                    gate.open()
        assert seen == ["created", "claimed", "step", "completed"]
        assert app.worker_id


async def test_events_of_a_long_run_come_in_pages_and_none_is_lost(database: Path):
    @rt.workflow
    async def many() -> None:
        for _ in range(1_005):
            rt.uuid4()

    async with opened(database, many) as app:
        run = await app.start(many)
        await finished(run)
        assert [event.seq async for event in run.events()] == list(range(1, 1_009))


async def test_runs_are_listed_newest_first_by_status_workflow_and_tag(database: Path, clock: ManualClock):
    async with opened(database, issue, nap, clock=clock) as app:
        ids: list[str] = []
        for number, team in enumerate(("red", "blue", "red")):
            clock.advance(1)
            run = await app.start(issue.options(tags={"team": team, "n": str(number)}), number)
            await finished(run)
            ids.append(run.id)
        clock.advance(1)
        sleeping = await app.start(nap)
        await reaches(sleeping, "waiting")

        async def listed(**filters: object) -> list[str]:
            return [run.id for run in await app.runs(**filters)]  # type: ignore[arg-type]

        assert await listed() == [sleeping.id, *reversed(ids)]
        assert await listed(limit=2) == [sleeping.id, ids[2]]
        assert await listed(status=Status.WAITING) == [sleeping.id]
        assert await listed(status=[Status.WAITING, Status.COMPLETED], limit=2) == [sleeping.id, ids[2]]
        assert await listed(workflow="issue") == list(reversed(ids))
        assert await listed(tag={"team": "red"}) == [ids[2], ids[0]]
        assert await listed(tag={"team": "red", "n": "0"}) == [ids[0]]
        assert await listed(tag={"team": "green"}) == []
        assert await listed(workflow="issue", status=Status.FAILED) == []
        assert (await app.runs(workflow="issue"))[0].output is None, "a list carries no payloads"


async def test_handles_and_times_show_well(database: Path):
    async with rt.Client(database) as client:
        run = await client.start(issue.options(id="order-1"), 1)
        assert repr(run) == "<run order-1>"
        assert (await run.info()).created_at > datetime(2024, 1, 1, tzinfo=UTC)
    assert repr(issue) == "<workflow issue@1>"
