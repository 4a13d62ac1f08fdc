"""Commits and bytes of SQLite's write-ahead log, counted in the log itself and not asked of the engine.

The layout is SQLite's documented file format: a header of 32 bytes, then frames of a 24-byte header and a page. The
second word of a frame's header is zero but for the last frame of a transaction.
"""

import contextlib
import sqlite3
import struct
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24


@dataclass(frozen=True, slots=True)
class Written:
    """What was written to a log: transactions and bytes."""

    commits: int
    size_bytes: int


@contextlib.contextmanager
def kept(database: Path) -> Generator[None]:
    """Keep all of the log from now on: while somebody reads an old state, the log is never begun anew.

    The log then grows and checkpoints are in vain, so nothing is timed meanwhile.
    """
    reader = sqlite3.connect(database, isolation_level=None)
    try:
        reader.execute("BEGIN")
        reader.execute("PRAGMA schema_version").fetchone()
        yield
    finally:
        reader.close()


def written(database: Path) -> Written:
    """What the log holds now."""
    log = Path(f"{database}-wal").read_bytes()
    if len(log) < HEADER_BYTES:
        return Written(0, 0)
    (page_bytes,) = struct.unpack_from(">I", log, 8)
    salts = log[16:24]
    frame_bytes = FRAME_HEADER_BYTES + page_bytes
    commits, end = 0, HEADER_BYTES
    for start in range(HEADER_BYTES, len(log) - frame_bytes + 1, frame_bytes):
        if log[start + 8 : start + 16] != salts:
            break  # what was there before the log was begun anew
        commits += log[start + 4 : start + 8] != b"\0\0\0\0"
        end = start + frame_bytes
    return Written(commits, end)
