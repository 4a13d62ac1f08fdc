"""The input of a workflow: bound to its signature, recorded by name, read by its hints."""

import inspect
import json
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from runtrue.codec import decode_arguments, encode_arguments
from runtrue.errors import ConfigurationError, NotDecodable, NotEncodable, PayloadTooLarge

WHAT = "the input of fulfil"


@dataclass
class Order:
    id: str
    due: date | None = None


def record(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bytes:
    return encode_arguments(
        inspect.signature(function), typing.get_type_hints(function, include_extras=True), args, kwargs, what=WHAT
    )


def read(body: bytes, function: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
    hints = typing.get_type_hints(function, include_extras=True)
    return decode_arguments(body, inspect.signature(function), hints, what=WHAT)


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What the worker will do: call with what was recorded."""
    read_args, read_kwargs = read(record(function, *args, **kwargs), function)
    return function(*read_args, **read_kwargs)


def everything(n: int, /, order: Order, *rest: date, flag: bool = False, **more: tuple[int, str]) -> tuple[Any, ...]:
    return n, order, rest, flag, more


def plain(a, b=2):  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]
    return a, b  # pyright: ignore[reportUnknownVariableType]


def positional(a: int = 1, b: int = 2, /, c: int = 3) -> tuple[int, int, int]:
    return a, b, c


def test_every_kind_of_parameter_is_recorded_by_name_and_handed_back():
    day = date(2024, 5, 1)
    body = record(everything, 1, Order("o", day), day, day, flag=True, x=(1, "a"))
    assert json.loads(body) == {
        "n": 1,
        "order": {"id": "o", "due": "2024-05-01"},
        "rest": ["2024-05-01", "2024-05-01"],
        "flag": True,
        "more": {"x": [1, "a"]},
    }
    assert call(everything, 1, Order("o", day), day, day, flag=True, x=(1, "a")) == (
        1,
        Order("o", day),
        (day, day),
        True,
        {"x": (1, "a")},
    )


def test_defaults_are_recorded_so_that_a_later_change_of_them_changes_no_run():
    assert json.loads(record(plain, 1)) == {"a": 1, "b": 2}
    assert record(plain, 1) == record(plain, 1, 2) == record(plain, b=2, a=1)


def test_plain_data_stands_for_richer_types_as_a_command_line_gives_it():
    order = {"id": "o", "due": "2024-05-01"}
    assert call(everything, 1, order) == (1, Order("o", date(2024, 5, 1)), (), False, {})


def test_positional_only_parameters_may_be_given_by_name():
    assert call(positional, b=5) == (1, 5, 3)
    assert call(positional, 9, c=4, b=5) == (9, 5, 4)
    assert call(everything, order=Order("o"), n=7)[0] == 7


def test_parameters_without_hints_take_plain_data_only():
    assert call(plain, {"a": [1]}) == ({"a": [1]}, 2)
    with pytest.raises(NotEncodable, match=r"the input of fulfil, argument a, .* a date would come back as a str"):
        record(plain, date(2024, 5, 1))


def test_missing_unknown_surplus_and_double_arguments_are_refused_with_the_signature():
    for args, kwargs, message in (
        ((), {}, "missing a required argument: 'a'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"c": 3}, "unexpected keyword argument 'c'"),
        ((1,), {"a": 3}, "multiple values for argument 'a'"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            record(plain, *args, **kwargs)
        assert str(refused.value).startswith("the input of fulfil: ")
        assert message in str(refused.value)
        assert "(a, b=2)" in str(refused.value)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n": "10"}, "argument n, cannot be recorded: it does not fit its annotation int: Expected `int`, got `str`"),
        ({"order": {"id": 1}}, "argument order, .* Expected `str`, got `int` - at `\\$.id`"),
        ({"order": {"id": "o", "due": "soon"}}, "argument order, .* Invalid RFC3339 encoded date - at `\\$.due`"),
        ({"flag": "yes"}, "argument flag, .* Expected `bool`"),
        ({"extra": [1]}, "argument more, .* length 2 - at `\\$\\[...\\]`"),
        ({"n": float("nan")}, "argument n, .* nan is no number"),
        ({"order": object()}, "argument order, .* object has no form in JSON"),
    ],
)
def test_an_argument_of_the_wrong_type_is_refused_by_name_before_a_run_exists(kwargs: dict[str, Any], message: str):
    with pytest.raises(NotEncodable, match=message):
        record(everything, **({"n": 1, "order": {"id": "o"}} | kwargs))


def test_an_input_over_the_cap_is_refused_as_a_whole_and_by_argument():
    signature = inspect.signature(plain)
    with pytest.raises(PayloadTooLarge, match="argument b, is 102 bytes"):
        encode_arguments(signature, {}, (1, "x" * 100), {}, what=WHAT, limit_bytes=100)
    with pytest.raises(PayloadTooLarge, match="the input of fulfil is 135 bytes"):
        encode_arguments(signature, {}, ("x" * 60, "x" * 60), {}, what=WHAT, limit_bytes=100)


def test_an_input_given_by_name_alone_takes_the_defaults_when_it_is_read():
    assert read(b'{"order":{"id":"o"},"n":1}', everything) == ([1, Order("o")], {"flag": False})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"order":{"id":"o"}}', "argument n is missing; its parameters are"),
        (b'{"order":{"id":"o"},"m":1}', "argument n is missing, and there is no parameter m; its parameters are"),
        (b'{"n":1,"order":{"id":"o"},"gone":1}', "there is no parameter gone; its parameters are"),
        (b'{"n":"1","order":{"id":"o"}}', "argument n, cannot be read as int: Expected `int`, got `str`"),
        (b'{"n":1,"order":{"id":"o","due":1}}', "argument order, cannot be read as .*Order: .*due"),
        (b"[1]", "Expected `object`, got `array`"),
        (b"", "truncated"),
    ],
)
def test_a_recorded_input_that_no_longer_fits_is_refused_by_name(body: bytes, message: str):
    with pytest.raises(NotDecodable, match=message) as refused:
        read(body, everything)
    assert str(refused.value).startswith("the input of fulfil")


def test_a_workflow_without_parameters_has_an_empty_input():
    assert record(lambda: None) == b"{}"
    assert read(b"{}", lambda: None) == ([], {})
