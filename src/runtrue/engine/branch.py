"""One branch of a run: its path, its place in the tree, and what it has on hand."""

import asyncio
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING

from runtrue.engine.history import Places
from runtrue.records import StepRecord

if TYPE_CHECKING:
    from runtrue.engine.groups import Group
    from runtrue.engine.strands import Strand


class Settled(Enum):
    """What the recorded outcome of its group says of an item."""

    COUNTS = "counts"
    """It ended, and its result or error is what the group gave: its records lead to its end."""
    CLOSED = "closed"
    """It was closed where its records end."""


class Branch:
    """The run itself, or one item of a group. Its calls are numbered from zero."""

    __slots__ = (
        "closed",
        "errands",
        "group",
        "items",
        "open_calls",
        "over_at",
        "parent",
        "path",
        "places",
        "settled",
        "settling",
        "strand",
        "strands",
        "swallowed",
        "unsettled",
        "wakes_alone",
    )

    def __init__(self, places: Places, parent: "Branch | None" = None, group: "Group | None" = None) -> None:
        self.path = places.path
        self.places = places
        self.parent = parent
        """The branch whose strand joins this one."""
        self.group = group
        self.strand: Strand | None = None
        """The strand that carries out the branch; None before it began."""
        self.strands: set[Strand] = set()
        """That one, and those of its calls that tasks of somebody else carry out."""
        self.items: list[Branch] = []
        """The branches of the groups that this one has under way."""
        self.closed = False
        """Its group needs it no longer: it gets the result of what is on its way, and is unwound at its next call."""
        self.over_at = 0
        """When its group was decided without it: a sleep until then was over, any other was not."""
        self.settled: Settled | None = None
        self.open_calls: dict[int, tuple[str, str]] = {}
        """Calls that were made and not awaited yet: kind and name by ordinal."""
        self.errands = 0
        """Calls of this branch that tasks of somebody else carry out now."""
        self.unsettled: list[StepRecord] = []
        """Values drawn since the last effect, not recorded yet."""
        self.settling: asyncio.Event | None = None
        """Set when the values that are on their way are recorded."""
        self.swallowed = 0
        """How often its code has swallowed the signal that unwinds it."""
        self.wakes_alone = True
        """The end of a child that this branch waits for lets something go on by itself."""

    @property
    def is_over(self) -> bool:
        """True if it is closed, or was closed where it stands: its code comes to its next call, and no further."""
        return self.closed or (self.settled is Settled.CLOSED and not self.places.is_replaying)

    def close(self, at: int) -> "Iterator[Branch]":
        """Close the branch and all within it, and give each of them."""
        if not self.closed:
            self.closed, self.over_at = True, at
        yield self
        for item in self.items:
            yield from item.close(at)
