"""What README and guide tell people to write must run as it stands."""

import asyncio
import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import runtrue as rt

ROOT = Path(__file__).parents[2]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_the_readme_s_program_runs_and_gives_the_result(tmp_path: Path):
    orders, program = blocks("README.md")
    (tmp_path / "orders.py").write_text(orders.replace("rt.sleep(5)", "rt.sleep(0.2)"))
    (tmp_path / "program.py").write_text(program)
    ended = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)  # noqa: PLW1510
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["43: payment-for-43", "payment-for-43"]


@pytest.mark.parametrize("number", range(len(blocks("docs/guide.md"))))
async def test_each_example_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"guide_{number}.py"
    path.write_text(blocks("docs/guide.md")[number].replace("rt.sleep(2)", "rt.sleep(0.05)"))
    names = await asyncio.to_thread(runpy.run_path, str(path))
    if "main" in names:
        main = names["main"]
        await (main() if inspect.iscoroutinefunction(main) else asyncio.to_thread(main))
        return
    async with names["app"] as app:
        if "fulfil" in names:
            run = await app.start(names["fulfil"], names["Order"]("7", 990))
            assert (await run.result(timeout=20)).startswith("payment ")
            declined = await app.start(names["fulfil"], names["Order"]("8", 9_000_000))
            with pytest.raises(rt.RunCancelled, match="declined"):
                await declined.result(timeout=20)
        else:
            assert await (await app.start(names["watch"])).result(timeout=20) == "looked 3 times"
