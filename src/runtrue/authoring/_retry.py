"""Retry: when and how often a step is tried again."""

from collections.abc import Callable
from typing import cast

from runtrue.authoring._duration import Duration, seconds_of
from runtrue.errors import ConfigurationError
from runtrue.ids import jitter


class Retry:
    """When and how often a step is tried again.

    `attempts` counts all of them, the first included; None tries for ever. The delay before attempt n + 1 is
    `first_delay` times `factor` to the power n - 1, at most `max_delay`, spread by half either way with `jitter`.
    `retry_on` says which errors are worth another attempt (types, or a function of the error), `give_up_on` which
    are not; errors that the step declares with `raises=` are never tried again.
    """

    __slots__ = (
        "_is_worth_it",
        "attempts",
        "factor",
        "first_delay_seconds",
        "give_up_on",
        "jitter",
        "max_delay_seconds",
    )

    def __init__(
        self,
        attempts: int | None = 3,
        *,
        first_delay: Duration = 1,
        factor: float = 2,
        max_delay: Duration = 300,
        jitter: bool = True,
        retry_on: type[BaseException] | tuple[type[BaseException], ...] | Callable[[Exception], bool] = Exception,
        give_up_on: type[BaseException] | tuple[type[BaseException], ...] = (),
    ) -> None:
        if attempts is not None and (type(attempts) is not int or attempts < 1):
            raise ConfigurationError(f"Retry: attempts must be a whole number from 1 (or None), not {attempts!r}")
        if type(factor) not in (int, float) or not 1 <= factor <= 1_000:
            raise ConfigurationError(f"Retry: factor must be from 1 to 1,000, not {factor!r}")
        self.attempts = attempts
        self.first_delay_seconds = seconds_of("Retry: first_delay", first_delay)
        self.factor = factor
        self.max_delay_seconds = seconds_of("Retry: max_delay", max_delay)
        self.jitter = jitter
        self.give_up_on = _error_types("give_up_on takes types of exceptions", give_up_on)
        if callable(retry_on) and not isinstance(retry_on, type):
            self._is_worth_it: Callable[[Exception], bool] = retry_on
        else:
            kinds = _error_types("retry_on takes types of exceptions, or a function of the error", retry_on)
            self._is_worth_it = lambda error: isinstance(error, kinds)

    def wants(self, error: Exception, attempt: int) -> bool:
        """True if `error` of attempt number `attempt` is worth another attempt."""
        if self.attempts is not None and attempt >= self.attempts:
            return False
        if isinstance(error, self.give_up_on):
            return False
        return self._is_worth_it(error)

    def delay_seconds(self, attempt: int) -> float:
        """How long to wait after attempt number `attempt` failed."""
        # The exponent is bounded so that endless retries cannot overflow a float.
        delay = min(self.max_delay_seconds, self.first_delay_seconds * self.factor ** min(attempt - 1, 60))
        return min(self.max_delay_seconds, delay * jitter()) if self.jitter else delay


def _error_types(says: str, given: object) -> tuple[type[BaseException], ...]:
    kinds = cast("tuple[object, ...]", given if isinstance(given, tuple) else (given,))
    if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
        raise ConfigurationError(f"Retry: {says}, not {given!r}")
    return cast("tuple[type[BaseException], ...]", kinds)


def retry_of(retry: Retry | int | None) -> Retry:
    """A policy from what an author writes: None is one attempt, n is n attempts in all."""
    if isinstance(retry, Retry):
        return retry
    return Retry(1 if retry is None else retry)
