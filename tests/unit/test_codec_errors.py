"""Errors are recorded whatever they hold, business errors come back, and text is safe for every database."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtrue import codec
from runtrue.codec import (
    clean_text,
    decode_error,
    encode_business_error,
    encode_error,
    place_digest,
    rebuild_error,
)
from runtrue.errors import ErrorInfo, NotDecodable, NotEncodable


class CardDeclined(Exception):
    pass


class StolenCard(CardDeclined):
    pass


class WithCode(Exception):
    def __init__(self, code: int, note: str = "") -> None:
        super().__init__(code, note)
        self.code = code


class ComposesItsMessage(Exception):
    def __init__(self, n: int) -> None:
        super().__init__(f"n is {n}")


class NeedsKeyword(Exception):
    def __init__(self, text: str, *, code: int) -> None:
        super().__init__(text)
        self.code = code


class RaisesWhenMade(Exception):
    made = False

    def __init__(self, text: str) -> None:
        super().__init__(text)
        if RaisesWhenMade.made:
            raise KeyboardInterrupt if text == "interrupt" else RuntimeError("once only")


class RaisesInStr(Exception):
    def __str__(self) -> NoReturn:
        raise SystemExit(3)


class OddStr(Exception):
    def __str__(self) -> Any:
        return 5  # noqa: PLE0307 - that is the point


class HostileText(str):
    __slots__ = ()

    def __getitem__(self, key: Any) -> NoReturn:
        raise RuntimeError

    def __len__(self) -> NoReturn:
        raise RuntimeError

    def replace(self, *_: Any) -> NoReturn:
        raise RuntimeError

    def __str__(self) -> "HostileText":
        return self


class HostileStr(Exception):
    def __str__(self) -> str:
        return HostileText("hostile")


def raised(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def caused_in_a_circle() -> BaseException:
    first, second = raised(ValueError("first")), raised(ValueError("second"))
    first.__cause__, second.__cause__ = second, first
    return first


def a_long_chain() -> BaseException:
    error: BaseException = ValueError("the root")
    for _ in range(5_000):
        outer = KeyError("link")
        outer.__cause__ = error
        error = outer
    return error


def deeply_nested_group() -> BaseException:
    error: Exception = ValueError("leaf")
    for _ in range(300):
        error = ExceptionGroup("group", [error])
    return error


def from_deep_down(levels: int) -> BaseException:
    def down(left: int) -> None:
        if left:
            down(left - 1)
        raise ValueError("deep")

    try:
        down(levels)
    except ValueError as error:
        return error
    raise AssertionError


def endless() -> BaseException:
    def again() -> None:
        again()

    try:
        again()
    except RecursionError as error:
        return error
    raise AssertionError


def with_note(error: BaseException, note: str) -> BaseException:
    error.add_note(note)
    return error


HOSTILE: list[tuple[str, Callable[[], BaseException]]] = [
    ("plain", lambda: raised(ValueError("plain"))),
    ("never raised", lambda: ValueError("never raised")),
    ("its __str__ raised SystemExit", RaisesInStr),
    ("its __str__ raised TypeError", OddStr),
    ("hostile", HostileStr),
    ("a\\x00b", lambda: raised(ValueError("a\0b"))),
    ("\\ud800", lambda: raised(ValueError("\ud800"))),
    ("characters in all)", lambda: raised(ValueError("x" * 5_000_000))),
    ("characters in all)", lambda: raised(ValueError("\0" * 5_000_000))),
    ("characters in all)", lambda: with_note(ValueError("\ud800" * 20_000), "\0\udfff" * 100_000)),
    ("keyword", lambda: NeedsKeyword("keyword", code=1)),
    ("first", caused_in_a_circle),
    ("link", a_long_chain),
    ("group", deeply_nested_group),
    ("deep", lambda: from_deep_down(500)),
    ("recursion", endless),
    ("", asyncio.CancelledError),
    ("", KeyboardInterrupt),
    ("b'\\xff'", lambda: ValueError(b"\xff", object())),
    ("lines", lambda: ExceptionGroup("lines", [ValueError("\n" * 9_000)] * 50)),
    ("unhashable", lambda: type("Unhashable", (Exception,), {"__hash__": None, "__eq__": None})("unhashable")),
    ("\\ud800", lambda: type("Odd", (Exception,), {"__qualname__": "Odd\ud800\0"})("\ud800")),
    ("no module", lambda: type("NoModule", (Exception,), {"__module__": None})("no module")),
]


@pytest.mark.parametrize(("message", "make"), HOSTILE, ids=[f"{index}" for index in range(len(HOSTILE))])
def test_an_error_is_recorded_whatever_it_holds(message: str, make: Callable[[], BaseException]):
    info = decode_error(encode_error(make()))
    assert message in info.message
    assert info.type
    assert len(info.message) <= 10_000
    assert len(info.traceback) <= 20_000
    for text in (info.type, info.message, info.traceback):
        assert "\0" not in text
        text.encode()


def test_an_error_is_named_as_tracebacks_name_it():
    assert decode_error(encode_error(ValueError("x"))) == ErrorInfo("ValueError", "x", "ValueError: x\n")
    assert decode_error(encode_error(json.JSONDecodeError("x", "", 0))).type == "json.decoder.JSONDecodeError"
    assert decode_error(encode_error(CardDeclined())).type == f"{__name__}.CardDeclined"


def test_the_traceback_begins_with_the_users_frames_and_keeps_its_end():
    def users_own() -> None:
        raise ValueError("x" * 3_000)

    namespace: dict[str, Any] = {}
    engine = compile("def engine(f):\n    f()", f"{codec.__file__.rpartition('/')[0]}/engine/worker.py", "exec")
    exec(engine, namespace)  # a frame that lies in the engine
    with pytest.raises(ValueError, match="x") as caught:
        namespace["engine"](users_own)
    own = caught.value.__traceback__
    assert own is not None
    info = decode_error(encode_error(caught.value.with_traceback(own.tb_next)))
    assert "users_own" in info.traceback
    assert "worker.py" not in info.traceback
    assert "worker.py" in decode_error(encode_error(caught.value.with_traceback(own))).traceback

    long = decode_error(
        encode_error(raised(ExceptionGroup("g", [ValueError(f"{n} {'y' * 1_900}") for n in range(40)])))
    )
    assert long.traceback.startswith("… (")
    assert "and 25 more exceptions" in long.traceback


def test_an_error_of_the_engine_itself_keeps_its_frames():
    with pytest.raises(NotEncodable) as caught:
        codec.encode(object(), what="x")
    own = caught.value.__traceback__
    assert own is not None
    assert "round_trip" in decode_error(encode_error(caught.value.with_traceback(own.tb_next))).traceback


def test_a_declared_error_comes_back_as_its_class_with_its_args():
    body = encode_business_error(CardDeclined("no funds", {"limit": [1, None]}), (OSError, CardDeclined))
    rebuilt = rebuild_error(body, (OSError, CardDeclined))
    assert type(rebuilt) is CardDeclined
    assert rebuilt.args == ("no funds", {"limit": [1, None]})
    assert decode_error(body).message == "('no funds', {'limit': [1, None]})"

    with_code = rebuild_error(encode_business_error(WithCode(7), (WithCode,)), (WithCode,))
    assert isinstance(with_code, WithCode)
    assert with_code.code == 7
    assert isinstance(
        rebuild_error(encode_business_error(CardDeclined(), (CardDeclined,)), (CardDeclined,)), CardDeclined
    )


def test_a_subclass_comes_back_as_the_nearest_declared_class():
    both = (Exception, CardDeclined)
    assert type(rebuild_error(encode_business_error(StolenCard("x"), both), both)) is CardDeclined
    every = (CardDeclined, StolenCard)
    assert type(rebuild_error(encode_business_error(StolenCard("x"), every), every)) is StolenCard


@pytest.mark.parametrize(
    "error",
    [
        NeedsKeyword("x", code=1),
        ComposesItsMessage(3),
        CardDeclined(object()),
        CardDeclined(b"bytes"),
        CardDeclined(float("nan")),
        CardDeclined("\ud800"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"),
        ExceptionGroup("g", [ValueError()]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_declared_error_that_cannot_be_made_again_says_so_on_both_paths(error: Exception):
    body = encode_business_error(error, (type(error),))
    assert rebuild_error(body, (type(error),)) is None
    info = decode_error(body)
    assert info.message
    assert f"({type(error).__qualname__} is declared in raises=, but cannot be made again" in info.traceback


def test_a_constructor_that_raises_when_the_error_is_made_again_gives_none(monkeypatch: pytest.MonkeyPatch):
    body = encode_business_error(RaisesWhenMade("x"), (RaisesWhenMade,))
    assert rebuild_error(body, (RaisesWhenMade,)) is not None
    monkeypatch.setattr(RaisesWhenMade, "made", True)
    assert rebuild_error(body, (RaisesWhenMade,)) is None


def test_an_undeclared_error_is_recorded_plainly_and_never_rebuilt():
    body = encode_business_error(ValueError("x"), (CardDeclined,))
    assert body == encode_error(ValueError("x"))
    assert rebuild_error(body, (ValueError,)) is None
    assert rebuild_error(encode_business_error(ValueError("x"), ()), ()) is None
    assert rebuild_error(encode_business_error(CardDeclined("x"), (CardDeclined,)), (ValueError,)) is None


def renamed(name: str, module: str) -> type[Exception]:
    return type(name, (Exception,), {"__module__": module})


def test_a_class_is_found_by_its_whole_name_first_and_alone_by_its_short_one():
    program, imported = renamed("Declined", "__main__"), renamed("Declined", "flows.orders")
    body = encode_business_error(program("x"), (program,))
    assert type(rebuild_error(body, (imported, ValueError))) is imported
    other = renamed("Declined", "another")
    assert rebuild_error(body, (imported, other)) is None
    assert type(rebuild_error(encode_business_error(other("x"), (imported, other)), (imported, other))) is other


def test_no_recorded_name_reaches_a_class_that_was_not_given():
    body = json.dumps({"type": "os.system", "message": "", "traceback": "", "args": ["false"]}).encode()
    assert rebuild_error(body, (CardDeclined, OSError)) is None


def test_bytes_that_hold_no_error_are_refused():
    for body in (b"", b"null", b'{"type":1}'):
        with pytest.raises(NotDecodable, match="a recorded error"):
            decode_error(body)


@given(st.text(st.characters()), st.integers(100, 300))
def test_clean_text_is_bounded_and_fit_for_every_database(text: str, limit: int):
    clean = clean_text(text * 3, limit)
    assert len(clean) <= limit
    assert "\0" not in clean
    clean.encode()
    if "\0" not in text and len(text) * 3 <= limit and not any("\ud800" <= each <= "\udfff" for each in text):
        assert clean == text * 3


def test_what_was_replaced_or_left_out_of_a_text_can_be_seen():
    assert clean_text("a\0b\udc80") == "a\\x00b\\udc80"
    assert clean_text("x" * 1_000, 100) == "x" * 73 + "… (1,000 characters in all)"
    assert clean_text("\0" * 100, 100) == "\\x00" * 18 + "\\x0… (100 characters in all)"


def test_a_digest_is_of_place_and_outcome_signed_and_the_same_for_ever():
    assert place_digest("", 0, b"1", None) == place_digest("", 0, b"1", None) == GOLDEN
    outcomes = [
        place_digest(branch, ordinal, result, error)
        for branch in ("", "0", "0.1")
        for ordinal in (0, 1, 10)
        for result, error in ((b"1", None), (None, b"1"), (b"", None), (None, None))
    ]
    assert len(set(outcomes)) == len(outcomes)
    assert all(-(2**63) <= each < 2**63 for each in outcomes)
    assert min(outcomes) < 0 < max(outcomes)


GOLDEN = -2512025888869814514
"""Recorded digests are compared with computed ones for as long as a run is paused: this may never change."""
