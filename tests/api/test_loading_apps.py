"""MODULE on the command line, and modules in `workflows=`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import runtrue as rt
from runtrue.app import load_app

FLOW = """
import runtrue as rt

@rt.workflow
async def flow() -> None: ...
"""


@pytest.fixture(autouse=True)
def _no_modules_left_behind() -> Iterator[None]:
    """Modules of one test must not be found by the next one."""
    modules, path = dict(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]
    sys.path[:] = path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_only_app_of_a_file_is_found(here: Path):
    write(here / "flows_a.py", FLOW + "app = rt.App('a.db', workflows=[flow])\nsame = app\n")
    assert load_app("flows_a.py").database.value == "sqlite:///a.db"
    assert load_app("flows_a").database.value == "sqlite:///a.db"
    assert [workflow.name for workflow in load_app(str(here / "flows_a.py")).workflows] == ["flow"]


def test_a_dotted_module_in_the_working_folder_is_found(here: Path):
    write(here / "package_b" / "__init__.py", "")
    write(here / "package_b" / "inner.py", FLOW + "app = rt.App('b.db')\n")
    assert load_app("package_b.inner").database.value == "sqlite:///b.db"


def test_a_file_may_import_its_neighbours(here: Path):
    write(here / "sub" / "neighbour_c.py", "NAME = 'c.db'\n")
    write(here / "sub" / "flows_c.py", "import runtrue as rt\nfrom neighbour_c import NAME\napp = rt.App(NAME)\n")
    assert load_app("sub/flows_c.py").database.value == "sqlite:///c.db"


def test_one_of_several_apps_is_named_after_a_colon(here: Path):
    write(here / "flows_d.py", "import runtrue as rt\none = rt.App('1.db')\ntwo = rt.App('2.db')\nother = 7\n")
    with pytest.raises(
        rt.ConfigurationError, match=r"flows_d.py holds several Apps; say which: flows_d.py:one, flows_d.py:two"
    ):
        load_app("flows_d.py")
    assert load_app("flows_d.py:two").database.value == "sqlite:///2.db"
    with pytest.raises(rt.ConfigurationError, match=r"other in flows_d.py is a int, not an rt.App"):
        load_app("flows_d.py:other")
    with pytest.raises(
        rt.ConfigurationError, match=r"flows_d\.py has no `three`; its Apps: flows_d.py:one, flows_d.py:two"
    ):
        load_app("flows_d.py:three")


def test_a_module_without_an_app_is_told_how_to_get_one(here: Path):
    write(here / "flows_e.py", FLOW)
    with pytest.raises(rt.ConfigurationError, match=r"holds no rt.App; add one: app = rt.App\(workflows="):
        load_app("flows_e.py")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere.py", "there is no file /.*nowhere.py"),
        ("nowhere", "there is no module nowhere; give a file such as orders.py"),
        ("nowhere.inner", "there is no module nowhere.inner"),
        ("a/b", "there is no file"),
        ("", "a file such as orders.py"),
        (".", "a file such as orders.py"),
        ("..x", "a file such as orders.py"),
    ],
)
def test_what_is_not_there_is_told(here: Path, target: str, message: str):
    with pytest.raises(rt.ConfigurationError, match=message):
        load_app(target)


def test_an_error_inside_the_module_leaves_as_it_is(here: Path):
    write(here / "flows_f.py", "raise LookupError('in the module')\n")
    write(here / "flows_g.py", "import a_module_that_is_missing\n")
    with pytest.raises(LookupError, match="in the module"):
        load_app("flows_f.py")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_missing"):
        load_app("flows_g")


def test_a_file_whose_name_is_taken_by_another_module_is_refused(here: Path):
    write(here / "json.py", "import runtrue as rt\napp = rt.App()\n")
    with pytest.raises(
        rt.ConfigurationError, match=r"json.py cannot be imported: the name json is taken by .*; rename"
    ):
        load_app("json.py")


def test_all_workflows_of_a_module_are_served(here: Path):
    write(here / "flows_h.py", FLOW + "\n@rt.workflow(version='2')\nasync def other() -> None: ...\n")
    assert [repr(each) for each in rt.App(workflows=["flows_h"]).workflows] == [
        "<workflow flow@1>",
        "<workflow other@2>",
    ]
    write(here / "flows_i.py", "x = 1\n")
    with pytest.raises(rt.ConfigurationError, match="module flows_i holds no workflow"):
        rt.App(workflows=["flows_i"])
