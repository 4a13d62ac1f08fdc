"""Where a setting comes from: command line, then argument, environment, pyproject.toml, default."""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from runtrue.errors import ConfigurationError
from runtrue.store import path_of

DATABASE_VARIABLE = "RUNTRUE_DATABASE_URL"
DATABASE_DEFAULT = "sqlite:///runtrue.db"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value and where it was found, for people to read."""

    value: str
    source: str


def resolve_database(flag: str | None = None, argument: str | Path | None = None) -> Setting:
    """The database URL and who said so. Raises ConfigurationError for what can be no database."""
    if flag:
        return Setting(database_url(flag), "--database")
    if argument is not None:
        return Setting(database_url(argument), "the program's own setting")
    variable = os.environ.get(DATABASE_VARIABLE)
    if variable:
        return Setting(database_url(variable), DATABASE_VARIABLE)
    written = _pyproject().get("database")
    if written is not None:
        if not isinstance(written, str):
            raise ConfigurationError("[tool.runtrue] database in pyproject.toml must be text")
        return Setting(database_url(written), "[tool.runtrue] in pyproject.toml")
    return Setting(DATABASE_DEFAULT, "default")


def database_url(given: str | Path) -> str:
    """A URL from what users write: a URL, or a path of a SQLite file."""
    text = str(given)
    if not text:
        raise ConfigurationError("the database is empty text; give a file, or a URL such as sqlite:///runtrue.db")
    if isinstance(given, str) and "://" in text:
        if text.startswith("sqlite://"):
            return text
        scheme = text.split("://", 1)[0]
        raise ConfigurationError(f"{scheme}:// is no database that runtrue knows; use sqlite:///FILE or a path")
    if text == ":memory:":
        return "sqlite://"
    return f"sqlite:///{text}"


def location(url: str) -> str:
    """Where the database is, absolute, for people to read. Raises ConfigurationError for what names no file."""
    path = path_of(url)
    return "memory, gone with the process" if path is None else str(path)


def _pyproject() -> dict[str, object]:
    path = Path("pyproject.toml")
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as broken:
        raise ConfigurationError(f"{path.resolve()} cannot be read: {broken}") from None
    found: object = table
    for name in ("tool", "runtrue"):
        if not isinstance(found, dict):
            break
        found = cast("dict[str, object]", found).get(name, {})
    if not isinstance(found, dict):
        raise ConfigurationError("[tool.runtrue] in pyproject.toml must be a table")
    return cast("dict[str, object]", found)
