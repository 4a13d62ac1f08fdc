"""What was recorded of a run, by place, and whether the code still fits it."""

from runtrue.records import AttemptRecord, StepRecord
from runtrue.store.protocol import Claimed

BRANCH = ""
"""The only branch of a run of sequential steps."""


class History:
    """Gives each durable call its place and the record there.

    `mismatch` is the sentence that names both sides once the code and the history differ; empty while they agree.
    """

    def __init__(self, claimed: Claimed) -> None:
        self.mismatch = ""
        self._workflow = claimed.workflow
        self._failed: dict[int, AttemptRecord] = {}
        for attempt in sorted(claimed.attempts, key=lambda attempt: attempt.attempt):
            self._failed[attempt.ordinal] = attempt
        # A step that has only failed so far has its place too: the attempts may have had effects.
        self._recorded: dict[int, StepRecord | AttemptRecord] = dict(self._failed)
        self._recorded.update((step.ordinal, step) for step in claimed.steps)
        self.unvisited = len(self._recorded)
        """How many recorded places the replay has not reached yet."""
        self._next_ordinal = 0

    @property
    def is_empty(self) -> bool:
        """True where nothing was recorded before this claim."""
        return not self._recorded

    def arrive(self, kind: str, name: str) -> tuple[StepRecord | None, int]:
        """The place of the next durable call, and what is recorded there. Compares name and kind."""
        ordinal = self._next_ordinal
        self._next_ordinal = ordinal + 1
        recorded = self._recorded.get(ordinal) if self._recorded else None
        if recorded is None:
            return None, ordinal
        self.unvisited -= 1
        if _kind_and_name(recorded) != (kind, name):
            self.differ(
                f"call {ordinal + 1} of {self._workflow} is {described(kind, name)}, "
                f"but the history holds {described(*_kind_and_name(recorded))} there"
            )
        return (recorded if isinstance(recorded, StepRecord) else None), ordinal

    def arrive_at_end(self) -> None:
        """The code has ended: recorded places that it never reached are a mismatch too."""
        if self.unvisited:
            missed = self._recorded[min(ordinal for ordinal in self._recorded if ordinal >= self._next_ordinal)]
            calls = "1 call" if self._next_ordinal == 1 else f"{self._next_ordinal} calls"
            self.differ(
                f"the history holds {described(*_kind_and_name(missed))} as call {missed.ordinal + 1}, "
                f"but the code of {self._workflow} ended after {calls}"
            )

    def differ(self, mismatch: str) -> None:
        """Note a mismatch; the first one stands."""
        self.mismatch = self.mismatch or mismatch

    def last_failure(self, ordinal: int) -> AttemptRecord | None:
        """The last recorded failed attempt of the step at this place."""
        return self._failed.get(ordinal) if self._failed else None


def _kind_and_name(recorded: StepRecord | AttemptRecord) -> tuple[str, str]:
    return (recorded.kind if isinstance(recorded, StepRecord) else "step"), recorded.name


def described(kind: str, name: str) -> str:
    """A durable call, for people."""
    return f"step {name}" if kind == "step" else f"rt.{kind}"
