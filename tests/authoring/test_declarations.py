"""What may be said of steps and workflows when they are written, and what is refused there and then."""

import functools
import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import runtrue as rt

if TYPE_CHECKING:
    from decimal import Decimal


async def plain(number: int) -> int:
    """What it does."""
    return number


def sync(number: int) -> int:
    return number


async def generates() -> AsyncIterator[int]:
    yield 1


def yields() -> Iterator[int]:
    yield 1


class Instance:
    async def __call__(self) -> int:
        return 1


def test_a_step_keeps_the_name_docstring_and_signature_of_its_function():
    step = rt.step(plain)
    assert (step.name, step.__name__, step.__doc__) == ("plain", "plain", "What it does.")
    assert step.__wrapped__ is plain  # type: ignore[attr-defined]
    assert list(inspect.signature(step).parameters) == ["number"]
    assert repr(step) == "<step plain>"
    assert isinstance(step, rt.Step)
    assert isinstance(step, rt.AsyncStep)


def test_a_workflow_keeps_the_name_docstring_and_signature_of_its_function():
    workflow = rt.workflow(plain)
    assert (workflow.name, workflow.version, workflow.__doc__) == ("plain", "1", "What it does.")
    assert list(inspect.signature(workflow).parameters) == ["number"]
    assert repr(rt.workflow(name="other", version="2024-01")(plain)) == "<workflow other@2024-01>"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (generates, "is a generator; return a value instead of yielding"),
        (yields, "is a generator; return a value instead of yielding"),
        (classmethod(plain), "@classmethod stands under @rt.(step|workflow); make it an instance's method"),
        (staticmethod(plain), "put @staticmethod over @rt.(step|workflow), not under it"),
        (rt.step(plain), "is a step already"),
        (rt.workflow(plain), "is a workflow already"),
        (Instance(), "must be a function, not Instance"),
        (int, "must be a function, not type"),
        (7, "must be a function, not int"),
    ],
    ids=["async generator", "generator", "classmethod", "staticmethod", "step", "workflow", "callable", "class", "int"],
)
@pytest.mark.parametrize("decorator", [rt.step, rt.workflow, rt.step(), rt.workflow()])
def test_what_is_no_function_with_a_result_is_refused(decorator: Callable[[Any], Any], function: Any, message: str):
    with pytest.raises(rt.ConfigurationError, match=message):
        decorator(function)


def test_an_attribute_of_the_function_does_not_become_the_steps():
    async def marked() -> None: ...

    marked.fn = marked.settings = "mine"  # type: ignore[attr-defined]
    step = rt.step(marked)
    assert step.fn is marked
    assert step.settings.timeout_seconds is None


def test_a_partial_of_an_async_function_can_be_a_step():
    assert rt.step(name="three")(functools.partial(plain, 3)).name == "three"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retry": 0}, "attempts must be a whole number from 1"),
        ({"retry": -1}, "not -1"),
        ({"retry": 1.5}, "not 1.5"),
        ({"retry": True}, "not True"),
        ({"timeout": 0}, "timeout must be over 0 seconds"),
        ({"timeout": -1}, "timeout must be from 0 seconds"),
        ({"timeout": math.nan}, "not nan"),
        ({"timeout": "3"}, "must be seconds or a timedelta, not str"),
        ({"timeout": True}, "not bool"),
        ({"deadline": 0}, "deadline must be over 0 seconds"),
        ({"deadline": "3"}, "step plain: deadline must be seconds or a timedelta, not str"),
        ({"timeout_abandons": True}, "timeout_abandons= is for `def` steps"),
        ({"raises": (int,)}, r"raises= takes classes of Exception, not <class 'int'>"),
        ({"raises": (ValueError("x"),)}, "raises= takes classes of Exception"),
        ({"raises": (KeyboardInterrupt,)}, "raises= takes classes of Exception"),
        ({"raises": ValueError}, "raises= takes"),
        ({"name": ""}, "the step name must have 1 to 200 characters"),
        ({"name": "a\nb"}, "the step name"),
        ({"name": 7}, "the step name must be text, not int"),
    ],
    ids=str,
)
def test_step_settings_that_can_be_none_are_refused_when_the_step_is_made(settings: dict[str, Any], message: str):
    with pytest.raises(rt.ConfigurationError, match=message):
        rt.step(**settings)(plain)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attempts": 0}, "attempts must be a whole number from 1"),
        ({"attempts": "3"}, "not '3'"),
        ({"factor": 0.5}, "factor must be from 1 to 1,000, not 0.5"),
        ({"factor": math.nan}, "not nan"),
        ({"factor": "2"}, "factor must be from 1 to 1,000, not '2'"),
        ({"first_delay": -1}, "first_delay must be from 0 seconds"),
        ({"max_delay": math.inf}, "max_delay must be from 0 seconds"),
        ({"first_delay": None}, "first_delay must be seconds or a timedelta"),
        ({"retry_on": "ValueError"}, "retry_on takes types of exceptions, or a function of the error"),
        ({"retry_on": (ValueError, "KeyError")}, "retry_on takes types of exceptions"),
        ({"retry_on": 7}, "retry_on takes types of exceptions"),
        ({"give_up_on": "ValueError"}, "give_up_on takes types of exceptions"),
        ({"give_up_on": (7,)}, "give_up_on takes types of exceptions"),
    ],
    ids=str,
)
def test_retry_settings_that_can_be_none_are_refused_when_they_are_made(settings: dict[str, Any], message: str):
    with pytest.raises(rt.ConfigurationError, match=message):
        rt.Retry(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": ""}, "the workflow name must have 1 to 200 characters"),
        ({"name": "a\0"}, "the workflow name"),
        ({"version": ""}, "the workflow version"),
        ({"version": "1@2"}, "the version '1@2' must not hold an @"),
        ({"deadline": 0}, "workflow plain: deadline must be over 0 seconds"),
        ({"deadline": -1}, "deadline must be from 0 seconds"),
        ({"raises": ValueError}, "raises= takes a tuple of classes of Exception"),
        ({"raises": (BaseException,)}, "raises= takes classes of Exception"),
        ({"version": 1}, "the workflow version must be text, not int"),
    ],
    ids=str,
)
def test_workflow_settings_that_can_be_none_are_refused_when_it_is_made(settings: dict[str, Any], message: str):
    with pytest.raises(rt.ConfigurationError, match=message):
        rt.workflow(**settings)(plain)


def test_options_change_what_is_given_and_leave_the_rest():
    step = rt.step(retry=rt.Retry(4), timeout=9, raises=(ValueError,), interruptible=True)(plain)
    same = step.options()
    assert (same.name, same.settings) == (step.name, step.settings)
    changed = step.options(name="other", retry=2, timeout=timedelta(minutes=1), interruptible=False)
    assert changed.name == "other"
    assert changed.settings.retry.attempts == 2
    assert changed.settings.timeout_seconds == 60
    assert changed.settings.raises == (ValueError,)
    assert not changed.settings.interruptible
    none = step.options(retry=None, timeout=None)
    assert none.settings.retry.attempts == 1
    assert none.settings.timeout_seconds is None
    assert (step.settings.retry.attempts, step.settings.timeout_seconds) == (4, 9)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"retry": 0}, {"name": ""}], ids=str)
def test_options_that_can_be_none_are_refused_where_they_are_given(options: dict[str, Any]):
    with pytest.raises(rt.ConfigurationError):
        rt.step(plain).options(**options)


def test_a_parameter_whose_type_is_unknown_is_named_when_the_app_is_made():
    @rt.workflow
    async def flow(price: "Decimal") -> None: ...

    with pytest.raises(rt.ConfigurationError) as refused:
        rt.App(workflows=[flow])
    assert "workflow flow: the type 'Decimal' of parameter 'price' cannot be resolved" in str(refused.value)
    assert "import it where the function is defined, also at run time" in str(refused.value)


def test_a_return_annotation_that_is_unknown_is_named_too():
    @rt.workflow
    async def flow() -> "Decimal": ...

    with pytest.raises(
        rt.ConfigurationError, match="workflow flow: its return annotation 'Decimal' cannot be resolved"
    ):
        rt.App(workflows=[flow])


def test_options_of_a_step_keep_its_result_type():
    assert rt.step(plain).options(name="x").result_type is int
    assert rt.step(generic).result_type is Any


async def generic(number: int):
    return number
