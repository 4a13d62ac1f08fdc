"""What a TestApp does with the steps of its workflows: put fakes in their place, note their calls, strike at them."""

import inspect
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias

from runtrue.authoring import Step, StepInfo
from runtrue.engine.signals import Unwound
from runtrue.testing._losses import Losses

Point: TypeAlias = Literal["before", "after_effect", "after_commit"]
POINTS: tuple[Point, ...] = ("before", "after_effect", "after_commit")

Function = Callable[..., Any]

_call: ContextVar[tuple[str, int]] = ContextVar("runtrue_testing_call")
"""Which call the current strand carries out, by its idempotency key, and how many workers had been lost before it."""


class Steps:
    """Looks in on every attempt of every step. `lose_worker` is called where a test wants the worker to be lost."""

    def __init__(self, losses: Losses, lose_worker: Callable[[], None], stirred: Callable[[], None]) -> None:
        self.in_flight: dict[str, StepInfo] = {}
        """The attempts whose function is being executed, by idempotency key."""
        self._losses = losses
        self._lose_worker = lose_worker
        self._stirred = stirred
        self._fakes: dict[Function, Function] = {}
        self._calls: defaultdict[Function, list[Mapping[str, Any]]] = defaultdict(list)
        self._strikes: Counter[tuple[Function, Point]] = Counter()
        self._struck: list[tuple[str, Point]] | None = None
        """While the worker is lost everywhere: where that was done. None at other times."""
        self._struck_calls: set[tuple[str, Point]] = set()

    # ------------------------------------------------------------ what a test asks
    def replace(self, step: Step[..., Any], fake: Function) -> None:
        """Call `fake` where the engine would call the step's function."""
        self._fakes[step.function] = fake

    def calls(self, step: Step[..., Any]) -> list[Mapping[str, Any]]:
        """The arguments of each call of the function so far, or of its fake."""
        return list(self._calls[step.function])

    def strike(self, step: Step[..., Any], when: Point, times: int) -> None:
        """Lose the worker the next `times` times that an attempt of the step comes to this point."""
        self._strikes[step.function, when] += times

    def strike_everywhere(self, struck: list[tuple[str, Point]] | None) -> None:
        """Lose the worker at each point of each call, once, and tell it to this list; with None no more."""
        self._struck = struck
        self._struck_calls.clear()

    @property
    def strikes_everywhere(self) -> bool:
        """True while the worker is lost at each point of each call."""
        return self._struck is not None

    def forget_flights(self, run_id: str | None = None) -> None:
        """The attempts of a run, or all, are over."""
        for key, info in list(self.in_flight.items()):
            if run_id is None or info.run_id == run_id:
                del self.in_flight[key]

    # ------------------------------------------------------------ what the engine asks (the StepHooks protocol)
    def function_of(self, step: Step[..., Any]) -> Function:
        """The fake, or the step's own function, each of its calls noted."""
        function = self._fakes.get(step.function, step.fn)
        if not step.is_async and not inspect.iscoroutinefunction(function):

            def call(*args: Any, **kwargs: Any) -> Any:
                self._note(step, args, kwargs)
                return function(*args, **kwargs)

            return call

        async def call_on_loop(*args: Any, **kwargs: Any) -> Any:
            self._note(step, args, kwargs)
            result = function(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result

        return call_on_loop

    async def before(self, info: StepInfo, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ARG002  the protocol's
        """The step is at work from now on, unless the worker is to be lost before it."""
        if self._losses.is_worker_gone:
            raise Unwound
        _call.set((info.idempotency_key, self._losses.count))
        self._strike_at("before", step)
        self.in_flight[info.idempotency_key] = info
        self._stirred()

    async def after_effect(self, info: StepInfo, step: Step[..., Any]) -> None:
        """The function is through."""
        self._strike_at("after_effect", step)
        self.in_flight.pop(info.idempotency_key, None)
        self._stirred()

    async def after_commit(self, run_id: str, step: Step[..., Any]) -> None:  # noqa: ARG002  the protocol's
        """The outcome is recorded."""
        self._strike_at("after_commit", step)

    def _note(self, step: Step[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            bound = inspect.signature(step.fn).bind(*args, **kwargs)
        except TypeError:
            return  # they do not fit: the call itself says so
        bound.apply_defaults()
        self._calls[step.function].append(bound.arguments)

    def _strike_at(self, when: Point, step: Step[..., Any]) -> None:
        _, losses_before = _call.get()
        if losses_before == self._losses.count and self._is_due(when, step):
            self._lose_worker()
        if losses_before != self._losses.count:
            # What a lost worker executes goes no further, not even to the next durable call.
            raise Unwound

    def _is_due(self, when: Point, step: Step[..., Any]) -> bool:
        if self._strikes[step.function, when]:
            self._strikes[step.function, when] -= 1
            return True
        point = _call.get()[0], when
        if self._struck is None or point in self._struck_calls:
            return False
        self._struck_calls.add(point)
        self._struck.append((step.name, when))
        return True
