"""JSON by msgspec, and what msgspec does not write or read by itself."""

import inspect
from base64 import b64decode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Any, cast

import msgspec

from runtrue._loss import classes_within, equality_tells, field_names, is_model, reason, type_name
from runtrue.errors import CodecError


def _write_custom(value: object) -> object:
    """What msgspec does not write by itself. Subclasses of plain types are written as what they are underneath."""
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, bytes):
        return b"".join((value,))
    if is_model(type(value)):
        return msgspec.Raw(cast("Any", value).model_dump_json(by_alias=True, round_trip=True).encode())
    raise TypeError(f"an object of type {type_name(type(value))} has no form in JSON")


def _read_custom(kind: Any, value: Any) -> object:
    """What msgspec does not read by itself. Raises ValueError, to which msgspec adds the path."""
    if inspect.isclass(kind):
        if issubclass(kind, (PurePath, str)) and type(value) is str:
            return kind(value)
        if issubclass(kind, (int, float)) and (
            type(value) is int or (type(value) is float and issubclass(kind, float))
        ):
            return kind(value)
        if issubclass(kind, bytes) and type(value) is str:
            return kind(b64decode(value, validate=True))
        if is_model(kind):
            return _read_model(kind, value)
    raise ValueError(f"{type_name(kind)} cannot be made of a recorded {type_name(type(value))}")


def _read_model(kind: Any, value: Any) -> object:
    try:
        return kind.model_validate_json(write(value))
    except ValueError as error:
        problems: list[dict[str, Any]] = cast("Any", error).errors() if hasattr(error, "errors") else []
        text = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in problems)
        raise ValueError(f"{type_name(kind)}: {text or error}") from error


write = msgspec.json.Encoder(enc_hook=_write_custom).encode
"""JSON bytes of a value. Raises whatever the classes of its parts raise."""


# ---------------------------------------------------------------- what msgspec leaves out
Check = Callable[[Any], bool]


def lacks(value: object) -> bool:
    """True if a dataclass in a decoded value, at any depth, lacks a field of its own whose default its class has.

    msgspec sets no field that was not in the JSON if the class answers for it, and writes only what the instance has
    of its own: the field would be missing in what is recorded, and read with whatever default later code has.
    """
    check = _CHECKS[type(value)]
    return check is not None and check(value)


def _one_lacks(values: Iterable[object]) -> bool:
    for value in values:
        check = _CHECKS[type(value)]
        if check is not None and check(value):
            return True
    return False


def _check_of(kind: Any) -> Check | None:
    """What `lacks` asks of an instance of a class. None if it lacks nothing, nor can its parts."""
    if issubclass(kind, dict):
        return lambda value: _one_lacks(value.values())
    if issubclass(kind, (list, tuple, set, frozenset)):
        return _one_lacks
    if is_model(kind):  # Pydantic leaves out no default, neither of a model nor of a dataclass within one
        return None
    own, inner = _left_to_class(kind), _looked_into(kind)

    def own_lacks(value: Any) -> bool:
        held = value.__dict__
        for name in own:  # noqa: SIM110 - any() takes three times as long, and this runs for all that is recorded
            if name not in held:
                return True
        return False

    def lacks_anything(value: Any) -> bool:
        if own and own_lacks(value):
            return True
        for name in inner:
            part = getattr(value, name, None)
            check = _CHECKS[type(part)]
            if check is not None and check(part):
                return True
        return False

    return lacks_anything if inner else own_lacks if own else None


class _Checks(dict[Any, Check | None]):
    """The check of each class, made when it is first asked for: a look into a dict costs less than a cached call."""

    def __missing__(self, kind: Any) -> Check | None:
        if len(self) >= 4096:  # a program that makes classes without end
            self.clear()
        made = self[kind] = _check_of(kind)
        return made


_CHECKS = _Checks()


def fill_in(value: Any) -> None:
    """Give the dataclasses in a decoded value, at any depth, what `lacks` finds missing."""
    kind = cast("Any", type(value))
    if isinstance(value, dict):
        parts = cast("Iterable[Any]", value.values())
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = cast("Iterable[Any]", value)
    elif is_model(kind):
        return
    else:
        for name in _left_to_class(kind):
            value.__dict__.setdefault(name, getattr(kind, name))
        parts = [getattr(value, name, None) for name in field_names(kind) or ()]
    for part in parts:
        fill_in(part)


def _looked_into(kind: Any) -> tuple[str, ...]:
    names = field_names(kind) or ()
    try:
        described = cast("Any", msgspec.inspect.type_info(kind))
    except Exception:  # msgspec cannot describe it
        return names
    flat = {field.name for field in described.fields if isinstance(field.type, _FLAT)} if names else ()
    return tuple(name for name in names if name not in flat)


_FLAT = (
    msgspec.inspect.StrType,
    msgspec.inspect.IntType,
    msgspec.inspect.FloatType,
    msgspec.inspect.BoolType,
    msgspec.inspect.DateTimeType,
)


@lru_cache(maxsize=4096)
def _left_to_class(kind: Any) -> tuple[str, ...]:
    """The fields whose default is an attribute of their dataclass. One in a slot hides behind the slot: it is set."""
    if not is_dataclass(kind):
        return ()
    defaults = ((name, getattr(kind, name, msgspec.UNSET)) for name in field_names(kind) or ())
    return tuple(name for name, default in defaults if default is not msgspec.UNSET and not hasattr(default, "__set__"))


# ---------------------------------------------------------------- readers
@dataclass(frozen=True, slots=True)
class Reader:
    """A decoder for one type.

    `equality_tells`: two of its values that are equal by == have nothing that differs. `lacks` is there if what it
    decodes may lack defaults: see the function of that name.
    """

    decode: Any
    equality_tells: bool
    lacks: Check | None


JSON_READER = Reader(msgspec.json.Decoder().decode, equality_tells=True, lacks=None)


def reader_of(kind: Any, what: str, failure: type[CodecError]) -> Reader:
    """The reader for an annotation, kept from its first use on. Raises `failure` for one that cannot be read."""
    try:
        return _kept_reader(kind) if _has_hash(kind) else _make_reader(kind)
    except Exception as error:  # whatever the annotated classes raise while they are looked at
        raise failure(f"{what} is annotated {type_name(kind)}, which cannot be recorded: {reason(error)}") from error


def _has_hash(kind: object) -> bool:
    try:
        hash(kind)
    except TypeError:  # Annotated, with metadata that has no hash
        return False
    return True


def _make_reader(kind: Any) -> Reader:
    if kind is inspect.Parameter.empty:
        return JSON_READER
    decoder = msgspec.json.Decoder(kind, dec_hook=_read_custom)
    classes = classes_within(kind)
    check = None
    if classes is None or any(map(_left_to_class, classes)):
        check = (_CHECKS[kind] if inspect.isclass(kind) else None) or lacks
    return Reader(decoder.decode, equality_tells(classes), check)


_kept_reader = lru_cache(maxsize=4096)(_make_reader)
