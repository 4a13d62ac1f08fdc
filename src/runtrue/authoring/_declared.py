"""What steps and workflows have in common: a function, a colour, and what becomes of them in a class."""

import copy
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from functools import cached_property, update_wrapper
from hashlib import sha256
from types import CodeType, MethodType
from typing import Any, ClassVar, Self, cast

from runtrue.errors import ConfigurationError


class Function:
    """The function under a decorator, looked at once for all the twins that are made of its step or workflow."""

    def __init__(self, kind: str, function: Callable[..., Any], name: str | None) -> None:
        self.plain = function
        self.name: str = getattr(function, "__name__", kind)
        self.what = f"{kind} {label_of(function) if name is None else name}"
        while isinstance(function, functools.partial):
            function = cast("functools.partial[Any]", function).func
        self._written = function

    @cached_property
    def signature(self) -> inspect.Signature:
        """The signature as it was written, `self` included."""
        return inspect.signature(self.plain)

    @cached_property
    def method_signature(self) -> inspect.Signature:
        """The signature without `self`. Raises ConfigurationError where there is none to leave out."""
        try:
            return inspect.signature(MethodType(self.plain, self))
        except ValueError:
            raise ConfigurationError(f"{self.what}: a method takes `self` as its first parameter") from None

    @cached_property
    def result_type(self) -> Any:
        """The annotated type of the result; Any where there is none. Raises ConfigurationError if it is unknown."""
        annotation = getattr(self._written, "__annotations__", {}).get("return", Any)
        if not isinstance(annotation, str):
            return type(None) if annotation is None else annotation
        try:
            return self._resolved("return", annotation)
        except NameError as unknown:
            raise ConfigurationError(
                f"{self.what}: its return annotation {annotation!r} cannot be resolved ({unknown}); "
                f"import the name where the function is defined, also at run time"
            ) from None

    @cached_property
    def hints(self) -> dict[str, Any]:
        """The annotated types of the parameters and of `return`. Raises ConfigurationError if one is unknown."""
        hints: dict[str, Any] = {"return": self.result_type}
        for parameter in self.signature.parameters.values():
            if parameter.annotation is inspect.Parameter.empty:
                continue
            try:
                hints[parameter.name] = self._resolved(parameter.name, parameter.annotation)
            except NameError as unknown:
                raise ConfigurationError(
                    f"{self.what}: the type {parameter.annotation!r} of parameter {parameter.name!r} cannot "
                    f"be resolved ({unknown}); import it where the function is defined, also at run time"
                ) from None
        return hints

    def _resolved(self, name: str, annotation: Any) -> Any:
        probe = type("_", (), {"__annotations__": {name: annotation}})
        return typing.get_type_hints(probe, vars(inspect.getmodule(self._written) or object), include_extras=True)[name]

    @cached_property
    def digest(self) -> str:
        """Which code this is: sha256 of the source in hexadecimal; of the bytecode where there is no source."""
        try:
            body = inspect.getsource(self._written)
        except (OSError, TypeError):
            code = getattr(inspect.unwrap(self._written), "__code__", None)
            body = "\n".join(_code_text(code)) if code is not None else self.what
        return sha256(body.encode(errors="backslashreplace")).hexdigest()


def _code_text(code: CodeType) -> Iterator[str]:
    """Bytecode as text that is the same in every process: no addresses, sets in order."""
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_text(constant)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, cast("frozenset[object]", constant))))
        else:
            yield repr(constant)


class Declared:
    """A step or workflow that has a function.

    It may be a method: accessed through an instance it is a twin bound to that instance, and `self` is recorded
    nowhere. `fn` is what is called: the function, or the bound method. `function` is the plain function for all
    twins, however they were bound or what options they were given.
    """

    is_async: ClassVar[bool]
    kind: ClassVar[str]

    def _declare(self, function: Callable[..., Any], name: str | None) -> None:
        self.declared_function = Function(self.kind, function, name)
        self.fn: Callable[..., Any] = function
        # The function's own attributes stay with it: one called `name`, say, must not become ours.
        update_wrapper(cast("Any", self), function, updated=())

    @property
    def function(self) -> Callable[..., Any]:
        """The plain function, also of a bound twin."""
        return self.declared_function.plain

    @property
    def is_bound(self) -> bool:
        """True for a method that was accessed through an instance."""
        return self.fn is not self.function

    @property
    def awaited(self) -> str:
        """How a call of this is written where it can be awaited."""
        return f"{self.declared_function.name}{'' if self.is_async else '.aio'}(...)"

    @property
    def blocking(self) -> str:
        """How a call of this is written where it blocks."""
        return f"{self.declared_function.name}{'.sync' if self.is_async else ''}(...)"

    def _bind(self, instance: object, owner: type[Any] | None) -> Self:
        """The twin whose function is the method of `instance`. A twin that is bound already stays as it is."""
        if self.is_bound:
            return self
        if instance is owner:
            raise self._classmethod_refusal()
        twin = copy.copy(self)
        twin.fn = MethodType(self.function, instance)
        cast("Any", twin).__wrapped__ = twin.fn
        return twin

    def _require_no_class(self, args: tuple[Any, ...]) -> None:
        """Since Python 3.13 a classmethod hands its class over as a first argument without binding."""
        if args and isinstance(args[0], type):
            found = vars(cast("type[Any]", args[0])).get(self.declared_function.name)
            if isinstance(found, classmethod) and cast("classmethod[Any, Any, Any]", found).__wrapped__ is self:
                raise self._classmethod_refusal()

    def _classmethod_refusal(self) -> ConfigurationError:
        what = self.declared_function.what
        return ConfigurationError(
            f"{what}: @classmethod stands over @rt.{self.kind}; make it an instance's method, or a plain function"
        )


def label_of(function: object) -> str:
    """What a function is called in its module: `Agent.solve`, without the functions around it."""
    return getattr(function, "__qualname__", repr(function)).rpartition("<locals>.")[2]


def require_function(kind: str, function: object) -> None:
    """Refuse what cannot be a step or workflow, with the reason."""
    label = label_of(function)
    if isinstance(function, classmethod):
        raise ConfigurationError(
            f"{kind} {label}: @classmethod stands under @rt.{kind}; make it an instance's method, or a plain function"
        )
    if isinstance(function, staticmethod):
        raise ConfigurationError(f"{kind} {label}: put @staticmethod over @rt.{kind}, not under it")
    if isinstance(function, Declared):
        raise ConfigurationError(f"{kind} {label} is a {function.kind} already")
    if not (inspect.isroutine(function) or isinstance(function, functools.partial)):
        raise ConfigurationError(f"{kind} {label} must be a function, not {type(function).__name__}")
    routine = cast("Callable[..., Any]", function)
    if inspect.isasyncgenfunction(routine) or inspect.isgeneratorfunction(routine):
        raise ConfigurationError(f"{kind} {label} is a generator; return a value instead of yielding")


def declared_errors(what: str, raises: object) -> tuple[type[Exception], ...]:
    """What `raises=` was given. Raises ConfigurationError for anything but a tuple of classes of Exception."""
    if not isinstance(raises, tuple):
        raise ConfigurationError(f"{what}: raises= takes a tuple of classes of Exception, not {raises!r}")
    for declared in cast("tuple[object, ...]", raises):
        if not (isinstance(declared, type) and issubclass(declared, Exception)):
            raise ConfigurationError(f"{what}: raises= takes classes of Exception, not {declared!r}")
    return cast("tuple[type[Exception], ...]", raises)
