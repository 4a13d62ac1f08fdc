"""Steps and workflows may be methods: the instance carries what they need, and is recorded nowhere."""

import inspect
from typing import Any

import pytest
from tests.authoring.fake_engine import in_async_workflow, in_def_workflow

import runtrue as rt


class Agent:
    def __init__(self, name: str) -> None:
        self.name = name

    @rt.step(retry=3)
    async def think(self, turns: int) -> str:
        return f"{self.name} thinks {turns}"

    @rt.step
    def refund(self, order: str) -> str:
        return f"{self.name} refunds {order}"

    @rt.workflow(version="2")
    async def solve(self, task: str, *, turns: int = 20) -> str:
        return f"{self.name} solves {task}"

    @rt.workflow
    def report(self, day: int) -> str:
        return f"{self.name} reports {day}"

    @staticmethod
    @rt.step
    async def fetch(url: str) -> str:
        return url


async def test_a_method_is_called_with_its_own_instance():
    ana, bob = Agent("ana"), Agent("bob")
    assert await ana.think(3) == "ana thinks 3"
    assert bob.refund("7") == "bob refunds 7"
    assert await bob.refund.aio("7") == "bob refunds 7"
    assert await ana.solve.fn("it") == "ana solves it"
    assert bob.report.fn(1) == "bob reports 1"


async def test_a_method_is_named_after_its_function_and_its_instance_is_no_argument():
    ana = Agent("ana")
    with in_async_workflow() as runtime:
        await ana.think(3)
        await ana.refund.aio("7")
        await ana.solve("it", turns=1)
    (_, think, *think_args), (_, refund, *refund_args), (_, solve, *solve_args) = runtime.made
    assert (think.name, think_args) == ("think", [(3,), {}])
    assert (refund.name, refund_args) == ("refund", [("7",), {}])
    assert (solve.name, solve.version, solve_args) == ("solve", "2", [("it",), {"turns": 1}])
    assert await think.fn(4) == "ana thinks 4"
    with in_def_workflow() as runtime:
        ana.refund("7")
        ana.report(1)
    assert [made[2:] for made in runtime.made] == [(("7",), {}), ((1,), {})]


def test_the_signature_of_a_bound_method_lacks_self():
    ana = Agent("ana")
    for bound in (ana.think, ana.refund, ana.solve, ana.report):
        assert "self" not in inspect.signature(bound).parameters
    assert list(ana.solve.signature.parameters) == ["task", "turns"]
    assert ana.solve.hints == {"return": str, "task": str, "turns": int}


def test_a_workflow_that_is_reached_through_its_class_can_be_started_but_not_served():
    unbound = Agent.solve.options(id="ticket-7")
    assert unbound.run_settings.id == "ticket-7"
    assert list(unbound.signature.parameters) == ["task", "turns"]
    assert unbound.encode_input(("it",), {}) == b'{"task":"it","turns":20}'
    assert unbound.lacks_instance
    assert not Agent("ana").solve.lacks_instance
    assert not rt.workflow(Agent("ana").solve.fn).lacks_instance


async def test_a_step_that_is_reached_through_its_class_takes_the_instance_as_its_first_argument():
    assert await Agent.think(Agent("ana"), 3) == "ana thinks 3"
    assert Agent.refund(Agent("bob"), "7") == "bob refunds 7"


def test_a_step_keeps_one_plain_function_through_all_its_twins():
    ana, bob = Agent("ana"), Agent("bob")
    twins = [Agent.think, ana.think, bob.think, ana.think.options(name="other"), Agent.think.options(retry=9)]
    assert {twin.function for twin in twins} == {Agent.think.function}
    assert ana.think.fn != bob.think.fn
    assert ana.think.fn == ana.think.fn


async def test_options_of_a_method_keep_its_instance_and_options_come_first_or_last():
    ana = Agent("ana")
    assert await ana.think.options(name="think:again")(3) == "ana thinks 3"
    assert ana.think.options(name="think:again").name == "think:again"
    assert ana.solve.options(priority=5).run_settings.priority == 5
    assert await ana.solve.options(priority=5).fn("it") == "ana solves it"


async def test_a_bound_method_in_another_class_keeps_its_own_instance():
    class Other:
        think = Agent("ana").think

    assert await Other().think(3) == "ana thinks 3"


async def test_a_static_method_is_a_plain_function():
    assert await Agent.fetch("a") == "a"
    with in_async_workflow() as runtime:
        await Agent("ana").fetch("b")
    assert [made[2:] for made in runtime.made] == [(("b",), {})]


def test_a_workflow_method_without_self_is_refused_with_its_name():
    class Forgetful:
        @rt.workflow
        async def solve() -> None:  # type: ignore[misc]
            ...

    with pytest.raises(rt.ConfigurationError, match=r"workflow Forgetful.solve: a method takes `self`"):
        Forgetful().solve.resolve()


class Wrapped:
    @classmethod
    @rt.step
    async def build(cls, size: int) -> int:
        return size

    @classmethod
    @rt.step
    def make(cls, size: int) -> int:
        return size

    @classmethod
    @rt.workflow
    async def solve(cls, task: str) -> str:
        return task


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: Wrapped.build(3), "step Wrapped.build: @classmethod stands over @rt.step"),
        (lambda: Wrapped.make(3), "step Wrapped.make: @classmethod stands over @rt.step"),
        (lambda: Wrapped.solve("x"), "workflow Wrapped.solve: @classmethod stands over @rt.workflow"),
    ],
)
def test_a_classmethod_over_the_decorator_is_refused_when_it_is_called(call: Any, named: str):
    with in_async_workflow(), pytest.raises(rt.ConfigurationError, match=named):
        call()
