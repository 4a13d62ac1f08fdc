"""Loads the .sql files of a store: named statements, with the lifecycle table filled into their guards.

A file holds statements that each begin with a line `-- name: some_name`. What stands in double braces is made from
`lifecycle`, so that a guard in SQL cannot drift away from the table:

    {{from:pause}}     the statuses that `pause` may leave, as a list for IN (…)
    {{to:pause}}       where it leads: CASE status WHEN … THEN … END; only where each status leads to one other
    {{accepts:send}}   the statuses in which `send` is not refused, as a list
    {{terminal}}  {{owned}}  {{claimable}}    those sets of statuses, as lists
    {{legal_moves}}    every legal change, as one text of words such as pending>running, a space around each
"""

import re
from collections.abc import Iterable
from pathlib import Path

from runtrue import lifecycle
from runtrue.lifecycle import Answer, Command, Status

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{\{(\w+)(?::(\w+))?\}\}")
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)

_SETS = {"terminal": lifecycle.TERMINAL, "owned": lifecycle.OWNED, "claimable": lifecycle.CLAIMABLE}


def load_statements(file: Path) -> dict[str, str]:
    """The statements of `file` by name, guards filled in, comments and the closing semicolon left out.

    Raises ValueError for a name given twice, text before the first name, or a placeholder that lifecycle cannot fill.
    """
    before, *parts = _NAME.split(file.read_text(encoding="utf-8"))
    if _COMMENT.sub("", before).strip():
        raise ValueError(f"{file.name}: text before the first `-- name:` line")
    statements: dict[str, str] = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        if name in statements:
            raise ValueError(f"{file.name}: the name {name} is given twice")
        statements[name] = fill_guards(_COMMENT.sub("", text).strip().removesuffix(";"))
    return statements


def fill_guards(text: str) -> str:
    """`text` with its placeholders filled from the lifecycle table. Raises ValueError for one that is not known."""
    return _PLACEHOLDER.sub(_fill, text)


def _fill(match: re.Match[str]) -> str:
    kind, name = match.groups()
    if kind == "legal_moves":
        words = sorted(f"{leaving.value}>{to.value}" for leaving, to in lifecycle.legal_moves())
        return f"' {' '.join(words)} '"
    if kind in _SETS:
        return _quoted(status.value for status in Status if status in _SETS[kind])
    if name is not None and kind == "from":
        return _quoted(status.value for status in lifecycle.sources(name))
    if name is not None and kind == "accepts":
        table = lifecycle.TABLE[Command(name)]
        return _quoted(status.value for status in Status if table[status].answer is not Answer.REFUSED)
    if name is not None and kind == "to":
        return _case(name)
    raise ValueError(f"no placeholder {match.group()} is known")


def _quoted(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _case(name: str) -> str:
    arms: list[str] = []
    for leaving, reached in lifecycle.targets(name).items():
        if len(reached) != 1:
            raise ValueError(f"{{{{to:{name}}}}}: {leaving.value} leads to several statuses; write out which and when")
        arms.append(f"WHEN '{leaving.value}' THEN '{reached[0].value}'")
    return f"CASE status {' '.join(arms)} END"
