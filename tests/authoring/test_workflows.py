"""What a workflow tells the engine of itself: its input, its options, its code."""

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import runtrue as rt
from runtrue.authoring import RunSettings


@rt.workflow(deadline=timedelta(hours=3), raises=(LookupError,))
async def nightly(day: datetime, *, limit: int = 16) -> int:
    return limit


def test_what_is_said_of_a_workflow_goes_with_it():
    assert nightly.raises == (LookupError,)
    assert nightly.run_settings == RunSettings(deadline=3 * 3_600_000_000)
    chosen = nightly.options(deadline=60, on_parent_cancel="abandon", delay=1, id="x", tags={"a": "b"})
    assert chosen.run_settings == RunSettings(
        id="x", delay=1_000_000, deadline=60_000_000, tags={"a": "b"}, on_parent_cancel="abandon"
    )
    assert chosen.options().run_settings == chosen.run_settings
    assert chosen.raises == (LookupError,)
    assert nightly.run_settings.on_parent_cancel == "cancel"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"deadline": 0}, "workflow nightly: deadline must be over 0 seconds"),
        ({"deadline": "soon"}, "deadline must be seconds or a timedelta"),
        ({"on_parent_cancel": "kill"}, "on_parent_cancel is 'cancel' or 'abandon', not 'kill'"),
        ({"priority": 1.5}, "priority is a whole number"),
        ({"delay": 1, "at": datetime.now(UTC)}, "give delay or at, not both"),
    ],
    ids=str,
)
def test_options_that_can_be_none_are_refused_where_they_are_given(options: dict[str, Any], message: str):
    with pytest.raises(rt.ConfigurationError, match=message):
        nightly.options(**options)


def test_an_input_is_bound_to_the_parameters_with_their_defaults_and_checked():
    day = datetime(2026, 1, 31, tzinfo=UTC)
    assert nightly.encode_input((day,), {}) == b'{"day":"2026-01-31T00:00:00Z","limit":16}'
    with pytest.raises(rt.ConfigurationError, match="the input of nightly: missing a required argument: 'day'"):
        nightly.encode_input((), {})
    with pytest.raises(rt.NotEncodable, match="the input of nightly, argument limit, cannot be recorded"):
        nightly.encode_input((day,), {"limit": "many"})


def test_a_reference_knows_a_name_and_the_type_of_the_result_and_takes_arguments_by_name():
    far = rt.ref("far", list[int])
    assert (far.name, far.version, far.result_type, far.raises) == ("far", None, list[int], ())
    assert rt.ref("far").result_type is Any
    assert repr(far) == "<reference to workflow far>"
    assert far.encode_input((), {"n": 1}) == b'{"n":1}'
    assert far.options(id="x", deadline=1).run_settings == RunSettings(id="x", deadline=1_000_000)
    with pytest.raises(rt.ConfigurationError, match=r"workflow far is started by name, .* arguments by keyword"):
        far.encode_input((1,), {})
    with pytest.raises(rt.ConfigurationError, match="the workflow name must have 1 to 200 characters"):
        rt.ref("")


# ---------------------------------------------------------------- the digest of the code
def made(source: str) -> Callable[..., Any]:
    """A function whose source is in no file."""
    names: dict[str, Any] = {}
    exec(compile(source, "<made>", "exec"), names)
    return names["flow"]


WITHOUT_SOURCE = """
async def flow(word):
    inner = lambda: {word in {'red', 'green', 'blue', 'black'}, 7}
    return inner(), word.strip()
"""


def test_the_digest_changes_with_the_code_and_with_nothing_else():
    async def one() -> int:
        return 1

    digest = rt.workflow(one).code_digest
    assert len(digest) == 64
    assert set(digest) <= set("0123456789abcdef")
    assert rt.workflow(name="other", version="7")(one).code_digest == digest
    assert rt.workflow(one).options(id="x").code_digest == digest

    async def two() -> int:
        return 2

    assert rt.workflow(two).code_digest != digest


def test_without_a_source_the_digest_is_that_of_the_bytecode():
    digest = rt.workflow(made(WITHOUT_SOURCE)).code_digest
    assert rt.workflow(made(WITHOUT_SOURCE)).code_digest == digest
    for old, new in [("7", "8"), ("strip", "title"), ("'red'", "'pink'"), ("in {", "not in {")]:
        assert rt.workflow(made(WITHOUT_SOURCE.replace(old, new))).code_digest != digest, new


def test_a_method_has_the_same_digest_bound_and_unbound():
    class Service:
        @rt.workflow
        async def solve(self) -> int:
            return 1

    assert Service().solve.code_digest == Service.solve.code_digest
    assert len(Service.solve.code_digest) == 64


def test_the_digest_is_the_same_in_every_process():
    program = f"""
import runtrue as rt
names = {{}}
exec(compile({WITHOUT_SOURCE!r}, "<made>", "exec"), names)
print(rt.workflow(names["flow"]).code_digest)
"""
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert digests == {rt.workflow(made(WITHOUT_SOURCE)).code_digest + "\n"}
