"""What a value would lose on its way through JSON, and where: the slow and thorough half of the codec."""

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, time
from decimal import Decimal
from functools import lru_cache
from inspect import isclass
from typing import Any, TypeGuard, cast

import msgspec

DEPTH_MAX = 200
"""How many levels of lists and objects a value may have. Versions of Python stop at different depths, and what one
of them could record must be readable for every other, also from deep within an author's own calls."""

TOO_DEEP = f"it is nested more than {DEPTH_MAX} levels deep, or refers to itself"

Flaw = tuple[str, str]
"""The path to a part of a value, without the leading $, and what is wrong with it."""


def sentence(flaw: Flaw) -> str:
    """A flaw as the end of a message."""
    path, text = flaw
    return f"at ${path}, {text}"


# ---------------------------------------------------------------- what cannot be written
def locate(value: Any, error: Exception, write: Callable[[object], object]) -> str:
    """The part of `value` for which `write` raised `error`, and what is wrong with it."""
    path = ""
    for _ in range(DEPTH_MAX):
        for step, child in _children(value):
            try:
                write(child)
            except Exception as problem:  # users' properties and serializers may raise anything
                value, error, path = child, problem, path + step
                break
        else:
            return sentence((path, _what_is_wrong(value, error)))
    return TOO_DEEP


def _what_is_wrong(value: Any, error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return f"{'text' if isinstance(value, str) else 'a key'} holds a lone surrogate, which is no character"
    if isinstance(error, RecursionError):
        return TOO_DEEP
    if isinstance(value, int):
        return "an integer has more digits than Python turns into text (4,300)"
    return reason(error)


def not_finite(value: Any, depth: int = 0) -> Flaw | None:
    """Where `value` holds a float that JSON has no number for; None if nowhere. msgspec writes such a float as null."""
    if isinstance(value, float):
        return None if math.isfinite(value) else ("", f"{float.__repr__(value)} is no number that JSON has")
    if depth > DEPTH_MAX:
        return None
    if _is_dict(value):
        for key in value:
            if isinstance(key, float) and not math.isfinite(key):
                return "", f"the key {float.__repr__(key)} is no number that JSON has"
    for step, child in _children(value):
        if found := not_finite(child, depth + 1):
            return step + found[0], found[1]
    return None


def too_deep(body: bytes) -> bool:
    """True if JSON has more than DEPTH_MAX levels. Without a step in Python for each value: nearly all are flat."""
    if body.count(b"[") + body.count(b"{") <= DEPTH_MAX:
        return False
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Only brackets and quotes stay. Two quotes side by side may go: what is inside a string remains so.
    brackets = body.translate(_BRACKETS_ALIKE, _ALL_BUT_BRACKETS_AND_QUOTES).replace(b'""', b"")
    if b'"' in brackets:
        brackets = b"".join(brackets.split(b'"')[::2])
    for _ in range(DEPTH_MAX):
        brackets = brackets.replace(b"[]", b"")  # each round takes the innermost level away
    return bool(brackets)


_BRACKETS_ALIKE = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS_AND_QUOTES = bytes(set(range(256)) - set(b'[]{}"'))


# ---------------------------------------------------------------- what does not come back
def loss(value: Any, back: Any, *, coerce: bool) -> Flaw | None:
    """What differs between a value and its decoded copy and matters; None if nothing does.

    A list and a tuple may stand for each other, and a plain type for its subclass. With `coerce` plain JSON data may
    come back as something richer.
    """
    if value is back:
        return None
    if (fields := _fields(value)) is not None and type(value) is type(back):
        if left_out := _left_out(back):
            return f".{left_out}", f"{type_name(type(value))} leaves {LEFT_OUT}"
        back_fields = _fields(back) or {}
        return _first_loss(fields.items(), (back_fields.get(name) for name in fields), _attribute, coerce=coerce)
    if _is_dict(value) and _is_dict(back):
        if len(back) != len(value):
            return "", "two keys are the same as text"
        for key in value:
            if key not in back:
                return "", f"a key of type {type_name(type(key))} comes back as text: annotate the dict with its types"
        return _first_loss(value.items(), (back[key] for key in value), _item, coerce=coerce)
    alike = type(value) in (list, tuple) or isinstance(back, type(value))
    if _is_sequence(value) and _is_sequence(back) and alike and len(value) == len(back):
        return _first_loss(enumerate(value), back, _item, coerce=coerce)
    if _same(value, back):
        return None
    numbers = isinstance(value, (int, float)) and isinstance(back, (int, float))
    if coerce and not numbers and _is_json(value):
        return None
    return "", _comes_back(value, back)


LEFT_OUT = (
    "this field out when it is written, and a later default would take its place: "
    "let the class write all its fields (without omit_defaults, exclude= or a serializer that drops some)"
)


def _left_out(back: object) -> str | None:
    """A field of a decoded object that its class did not write, or would not write at its default. None if it is whole.

    Were it recorded so, a change of the default would change what replays read.
    """
    kind = cast("Any", type(back))
    if is_model(kind):
        return next(iter(set[str](kind.model_fields) - cast("Any", back).model_fields_set), None)
    return next(iter(_omitted_at_default(kind)), None)


@lru_cache(maxsize=4096)
def _omitted_at_default(kind: Any) -> tuple[str, ...]:
    if not issubclass(kind, msgspec.Struct):
        return ()
    config = kind.__struct_config__
    if not config.omit_defaults or config.array_like:
        return ()
    return tuple(field.name for field in msgspec.structs.fields(kind) if not field.required)


def _first_loss(
    parts: Iterable[tuple[Any, Any]], backs: Iterable[Any], step: Callable[[Any], str], *, coerce: bool
) -> Flaw | None:
    for (key, child), back in zip(parts, backs, strict=True):
        if child is back or (type(child) in _PLAIN and child == back):  # nearly all parts, without a call for each
            continue
        if found := loss(child, back, coerce=coerce):
            return step(key) + found[0], found[1]
    return None


_PLAIN = frozenset({str, int, float, bool})


def _same(value: Any, back: Any) -> bool:
    if isinstance(value, Decimal) and isinstance(back, Decimal):
        return str(value) == str(back)  # a NaN equals nothing, a signalling one may not even be compared
    if _fields(value) is None and equal(value, back):
        return True
    if isinstance(value, (datetime, time)) and isinstance(back, type(value)):
        # In the hour that comes twice no time equals one of another zone.
        return value.replace(tzinfo=None) == back.replace(tzinfo=None) and value.utcoffset() == back.utcoffset()
    return False


def _is_json(value: Any) -> bool:
    """True for what a JSON parser makes, all the way down."""
    if type(value) is dict:
        items = cast("dict[Any, Any]", value).items()
        return all(type(key) is str and _is_json(child) for key, child in items)
    if type(value) is list:
        return all(map(_is_json, cast("list[Any]", value)))
    return value is None or type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value))


def _comes_back(value: object, back: object) -> str:
    kind, back_kind = type_name(type(value)), type_name(type(back))
    if type(value) is type(back):
        return f"a {kind} would not come back as it is"
    if type(back) in (str, int, float, bool, list, dict, type(None)):
        return f"a {kind} would come back as a {back_kind}: annotate it with its type, or turn it into plain data"
    return f"a {kind} would come back as a {back_kind}, as it is annotated"


def equal(left: Any, right: Any) -> bool:
    """By ==, and False where that cannot be told."""
    try:
        return bool(left == right)
    except Exception:  # a user's __eq__ may raise anything
        return False


# ---------------------------------------------------------------- the parts of a value
def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if (fields := _fields(value)) is not None:
        yield from ((_attribute(name), child) for name, child in fields.items())
    elif _is_dict(value):
        yield from ((_item(key), child) for key, child in value.items())
    elif _is_sequence(value) or isinstance(value, (set, frozenset)):
        yield from ((_item(index), child) for index, child in enumerate(cast("Iterable[Any]", value)))


def _is_dict(value: object) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def _is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, (list, tuple))


def _attribute(name: str) -> str:
    return f".{name}"


def _item(key: Any) -> str:
    if isinstance(key, str):
        return f".{key}" if key.isidentifier() else f"[{key!a:.60}]"
    return f"[{key!r:.60}]" if type(key) in (int, float) else f"[{type_name(type(key))}]"


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of an instance of a class that the codec knows, by name; None for anything else."""
    kind = cast("Any", type(value))
    names = field_names(kind)
    if names is None:
        return None
    if is_model(kind):
        return cast("dict[str, Any]", vars(value) | (value.__pydantic_extra__ or {}))
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


@lru_cache(maxsize=4096)
def field_names(kind: Any) -> tuple[str, ...] | None:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    if hasattr(kind, "__attrs_attrs__"):
        return tuple(field.name for field in kind.__attrs_attrs__)
    return () if is_model(kind) else None


@lru_cache(maxsize=4096)
def is_model(kind: Any) -> bool:
    """True for a Pydantic model's class. Who has one has imported Pydantic; runtrue itself never does."""
    model = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return model is not None and issubclass(kind, model)


# ---------------------------------------------------------------- what a type says of its values
def classes_within(kind: object) -> list[Any] | None:
    """The classes that values of a type are made of, all the way down; None if msgspec cannot tell."""
    try:
        described = msgspec.inspect.type_info(kind)
    except Exception:  # msgspec reads some types that it cannot describe
        return None
    classes: list[Any] = []
    seen: set[int] = set()
    waiting: list[Any] = [described]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, tuple):
            waiting.extend(cast("tuple[Any, ...]", each))
        elif isinstance(each, (msgspec.inspect.Type, msgspec.inspect.Field)):
            if (found := getattr(each, "cls", None)) is not None:
                classes.append(found)
            waiting.extend(getattr(each, part) for part in each.__struct_fields__)
    return classes


def equality_tells(classes: list[Any] | None) -> bool:
    """True if values of these classes, and of plain types, that are equal by == cannot differ in any part.

    So it is for classes whose __eq__ was made for them from all their fields, and which write all of them.
    """
    return classes is not None and all(map(_class_equality_tells, classes))


def _class_equality_tells(kind: Any) -> bool:
    if not isclass(kind) or is_model(kind) or hasattr(kind, "__attrs_attrs__"):
        return False
    if issubclass(kind, msgspec.Struct):
        return kind.__eq__ is msgspec.Struct.__eq__ and kind.__struct_config__.eq and not _omitted_at_default(kind)
    if dataclasses.is_dataclass(kind):
        generated = getattr(getattr(kind.__eq__, "__code__", None), "co_filename", "") == "<string>"
        return generated and all(field.compare for field in dataclasses.fields(kind))
    return "__eq__" not in vars(kind)


# ---------------------------------------------------------------- words
def type_name(kind: Any) -> str:
    """A type as its author writes it."""
    if isclass(kind) and not hasattr(kind, "__args__"):
        return kind.__qualname__
    return repr(kind).replace("typing.", "")[:200]


def reason(error: Exception) -> str:
    """An exception as the end of a sentence."""
    if isinstance(error, RecursionError):
        return TOO_DEEP
    try:
        text = str(error)
    except Exception:  # a user's exception
        text = ""
    return text if isinstance(error, (msgspec.MsgspecError, TypeError)) and text else f"{type(error).__name__}: {text}"
