"""The programs that `make check` reads strictly run as well."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "typed"
TOLD = {
    "orders.py": "42 is paid; the card was declined\n",
    "bakery.py": "lemon cake for 12 in a box LEMON; the oven is too small\n",
    "soundings.py": "390 m; 2 tracks unreadable\n",
    "membership.py": "still open, then a member: [7]\n",
    "harbour.py": "Ystad: H; Ida; Bore is in\n",
}


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *command], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", TOLD)
def test_a_typed_program_runs(name: str, tmp_path: Path):
    assert run(str(PROGRAMS / name), cwd=tmp_path) == TOLD[name]


def test_the_typed_tests_of_a_user_pass(tmp_path: Path):
    told = run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(PROGRAMS / "test_library.py"), cwd=tmp_path)
    assert "4 passed" in told


def test_every_typed_program_is_run():
    assert {file.name for file in PROGRAMS.glob("*.py")} == {*TOLD, "test_library.py"}
