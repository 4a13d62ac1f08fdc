"""What all tests share: how chance is drawn, so that a red test can be run again as it was."""

import os
import random

import pytest
from hypothesis import settings

# A small sample that is the same on every machine, and a large one that is drawn anew: a failing example is printed.
settings.register_profile("test", derandomize=True, database=None, deadline=None, max_examples=50)
settings.register_profile("prove", database=None, deadline=None, max_examples=2_000, print_blob=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=1, help="the seed of all tests that draw by chance (default 1)")


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("prove" if config.getoption("markexpr") == "prove" else "test")


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.getoption('--seed')} (--seed N to draw otherwise)"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--seed")


@pytest.fixture
def chance(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """Random numbers of this test's own: the same for the same seed, whatever other tests draw."""
    return random.Random(f"{seed} {request.node.nodeid}")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own RUNTRUE_ variables must not reach the tests or the processes they start."""
    for name in [name for name in os.environ if name.startswith("RUNTRUE_")]:
        monkeypatch.delenv(name)
