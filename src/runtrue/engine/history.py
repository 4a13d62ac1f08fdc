"""What was recorded of a run, by place, and whether the code still fits it."""

from runtrue.records import AttemptRecord, StepRecord, Wait
from runtrue.store.protocol import Claimed

GROUPS = ("gather", "map", "first")


class Places:
    """The places of one branch: gives each durable call its own, and the record there."""

    __slots__ = (
        "_failed",
        "_first_started_at",
        "_history",
        "_next_ordinal",
        "_recorded",
        "last_fork",
        "path",
        "unvisited",
    )

    def __init__(self, history: "History", path: str) -> None:
        self.path = path
        self.unvisited = 0
        """How many recorded places of this branch the replay has not reached yet."""
        self.last_fork = -1
        """The last place of this branch where a group has opened branches that have records, or a wait is open."""
        self._history = history
        self._failed: dict[int, AttemptRecord] = {}
        self._first_started_at: dict[int, int] = {}
        self._recorded: dict[int, StepRecord | AttemptRecord] = {}
        self._next_ordinal = 0

    @property
    def is_replaying(self) -> bool:
        """True while something was recorded in this branch, or in one that it opens, which it has not reached yet."""
        return self.unvisited > 0 or self._next_ordinal <= self.last_fork

    def put(self, record: StepRecord | AttemptRecord) -> None:
        """Note a record of the claim. The attempts of a place come before its step, in their order."""
        ordinal = record.ordinal
        if isinstance(record, AttemptRecord):
            self._failed[ordinal] = record
            self._first_started_at.setdefault(ordinal, record.started_at)
        if ordinal not in self._recorded:
            self.unvisited += 1
        self._recorded[ordinal] = record

    def arrive(self, kind: str, name: str) -> tuple[StepRecord | None, int]:
        """The place of the next durable call, and what is recorded there. Compares name and kind."""
        ordinal = self._next_ordinal
        self._next_ordinal = ordinal + 1
        if self._history.is_empty:
            return None, ordinal
        recorded = self._recorded.get(ordinal)
        if recorded is None:
            wait = self._history.wait_at(self.path, ordinal)
            if wait is not None and (wait.kind, wait.name) != (kind, name):
                self._history.differ(
                    f"{self._where(ordinal)} is {described(kind, name)}, "
                    f"but the run waits for {described(wait.kind, wait.name)} there"
                )
            if (self.path, ordinal) in self._history.forks and kind not in GROUPS:
                self._history.differ(
                    f"{self._where(ordinal)} is {described(kind, name)}, "
                    "but the history holds the branches of a group there"
                )
            return None, ordinal
        self.unvisited -= 1
        self._history.unvisited -= 1
        if _kind_and_name(recorded) != (kind, name):
            self._history.differ(
                f"{self._where(ordinal)} is {described(kind, name)}, "
                f"but the history holds {described(*_kind_and_name(recorded))} there"
            )
        return (recorded if isinstance(recorded, StepRecord) else None), ordinal

    def last_failure(self, ordinal: int) -> AttemptRecord | None:
        """The last recorded failed attempt of the step at this place."""
        return self._failed.get(ordinal) if self._failed else None

    def first_started_at(self, ordinal: int) -> int:
        """When the first attempt of the step at this place began."""
        return self._first_started_at[ordinal]

    def first_unvisited(self) -> str:
        """The first recorded place that was not reached, for people."""
        missed = self._recorded[min(ordinal for ordinal in self._recorded if ordinal >= self._next_ordinal)]
        call = f"call {missed.ordinal + 1}" + (f" of branch {self.path}" if self.path else "")
        calls = "1 call" if self._next_ordinal == 1 else f"{self._next_ordinal} calls"
        return (
            f"the history holds {described(*_kind_and_name(missed))} as {call}, "
            f"but the code of {self._history.workflow} ended after {calls}" + (" there" if self.path else "")
        )

    def _where(self, ordinal: int) -> str:
        branch = f" of branch {self.path}" if self.path else ""
        return f"call {ordinal + 1}{branch} of {self._history.workflow}"


class History:
    """The records of one claim.

    `mismatch` is the sentence that names both sides once the code and the history differ; empty while they agree.
    """

    def __init__(self, claimed: Claimed) -> None:
        self.mismatch = ""
        self.workflow = claimed.workflow
        self.is_empty = not (claimed.steps or claimed.attempts or claimed.waits)
        """True where nothing was recorded before this claim."""
        self.unvisited = 0
        """How many recorded places the replay has not reached yet, over all branches."""
        self.forks: set[tuple[str, int]] = set()
        """The places of groups of which branches have records."""
        self._branches: dict[str, Places] = {}
        self._with_records: set[str] = set()
        """Branches in which, or within which, something was recorded."""
        self._patched: dict[tuple[str, str], bool] = {}
        self._waits = {(wait.branch, wait.ordinal): wait for wait in claimed.waits}
        if self.is_empty:
            return
        # A step that has only failed so far has its place too: the attempts may have had effects.
        for attempt in sorted(claimed.attempts, key=lambda attempt: attempt.attempt):
            self.places(attempt.branch).put(attempt)
        for step in claimed.steps:
            branch, _, change = step.branch.partition(PATCHED)
            if change:
                self._patched[branch, change] = True
            else:
                self.places(branch).put(step)
        for path, places in list(self._branches.items()):
            self.unvisited += places.unvisited
            while path:
                self._with_records.add(path)
                path, _, item = path.rpartition("/")  # noqa: PLW2901  walks from the branch up to the run
                self.forks.add((path, ordinal_of(item)))
        for path, ordinal in (*self.forks, *self._waits):
            places = self.places(path)
            places.last_fork = max(places.last_fork, ordinal)

    def places(self, path: str) -> Places:
        """The places of one branch."""
        places = self._branches.get(path)
        if places is None:
            places = self._branches[path] = Places(self, path)
        return places

    def has_records(self, path: str) -> bool:
        """True if anything was recorded in this branch, or in one within it."""
        return path in self._with_records

    def wait_at(self, path: str, ordinal: int) -> Wait | None:
        """The open wait that was registered at this place before the claim."""
        return self._waits.get((path, ordinal)) if self._waits else None

    def was_patched(self, path: str, change: str) -> bool | None:
        """What `patched` answered in this branch before; None if it was never asked."""
        return self._patched.get((path, change))

    def patch(self, path: str, change: str, *, answer: bool) -> None:
        """Keep the answer of this execution: code that asks twice is told the same."""
        self._patched[path, change] = answer

    def arrive_at_end(self) -> None:
        """The code has ended: recorded places that it never reached are a mismatch too."""
        if self.unvisited:
            missed = next(places for _, places in sorted(self._branches.items()) if places.unvisited)
            self.differ(missed.first_unvisited())

    def differ(self, mismatch: str) -> None:
        """Note a mismatch; the first one stands."""
        self.mismatch = self.mismatch or mismatch


PATCHED = "#"
"""Parts the path of a branch from the change that `patched` was asked for: a place beside the numbered ones."""


def item_path(path: str, ordinal: int, item: str) -> str:
    """The path of a group's item: the group's place and the item's number (`.3`) or key (`:KEY`)."""
    return f"{path}/{ordinal}{item}" if path else f"{ordinal}{item}"


def key_text(key: str) -> str:
    """A key of `map` as a part of a path, where it can be taken for nothing else."""
    for sign in f"%/.~{PATCHED}":
        key = key.replace(sign, f"%{ord(sign):02X}")
    return f":{key}"


def ordinal_of(item: str) -> int:
    """The ordinal of the group that opened this item of a path."""
    return int(item.partition(":")[0].partition(".")[0])


def _kind_and_name(recorded: StepRecord | AttemptRecord) -> tuple[str, str]:
    return (recorded.kind if isinstance(recorded, StepRecord) else "step"), recorded.name


def described(kind: str, name: str) -> str:
    """A durable call, for people."""
    match kind:
        case "step":
            return f"step {name}"
        case "receive":
            return f"rt.receive of {name}"
        case "child" | "start_child":
            return f"child run of {name}"
        case _:
            return f"rt.{kind}"
