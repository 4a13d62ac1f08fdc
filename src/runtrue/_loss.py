"""What a value would lose on its way through JSON, and where: the slow and thorough half of the codec."""

import dataclasses
import math
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, time
from decimal import Decimal
from typing import Any, cast

import msgspec

DEPTH_MAX = 200
"""How many levels of lists and objects a value may have. Versions of Python stop at different depths, and what one
of them could record must be readable for every other, also from deep within an author's own calls."""

TOO_DEEP = f"it is nested more than {DEPTH_MAX} levels deep, or refers to itself"


def too_deep(body: bytes) -> bool:
    """True if JSON has more than DEPTH_MAX levels."""
    if body.count(b"[") + body.count(b"{") <= DEPTH_MAX:
        return False
    brackets = _STRING.sub(b"", body).translate(_BRACKETS, _NO_BRACKETS)
    for _ in range(DEPTH_MAX):
        brackets = brackets.replace(b"[]", b"")  # each round takes the innermost level away
    return bool(brackets)


_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def locate(value: object, error: Exception, write: Callable[[object], object]) -> str:
    """The path to the part of `value` for which `write` raised `error`, and what is wrong with it."""
    path = "$"
    for _ in range(DEPTH_MAX):
        for step, child in _children(value):
            try:
                write(child)
            except Exception as problem:  # users' properties and serializers may raise anything
                value, error, path = child, problem, path + step
                break
        else:
            return f"at {path}, {_what_is_wrong(value, error)}"
    return TOO_DEEP


def _what_is_wrong(value: object, error: Exception) -> str:
    if isinstance(error, UnicodeEncodeError):
        return f"{'text' if isinstance(value, str) else 'a key or name'} holds a lone surrogate, which is no character"
    if isinstance(error, RecursionError):
        return TOO_DEEP
    if isinstance(value, int):
        return "an integer has more digits than Python turns into text (4,300)"
    return reason(error)


def not_finite(value: object, path: str = "$", depth: int = 0) -> str | None:
    """Where `value` holds a float that JSON has no number for, as a sentence; None if nowhere."""
    if isinstance(value, float):
        return None if math.isfinite(value) else f"at {path}, {float.__repr__(value)} is no number that JSON has"
    if depth > DEPTH_MAX:
        return None
    keys = cast("dict[object, object]", value) if isinstance(value, dict) else ()
    for key in keys:
        if isinstance(key, float) and not math.isfinite(key):
            return f"at {path}, the key {float.__repr__(key)} is no number that JSON has"
    return next(
        (found for step, child in _children(value) if (found := not_finite(child, path + step, depth + 1))), None
    )


def loss(value: object, back: object, path: str = "$", *, coerce: bool) -> str | None:
    """What differs between a value and its decoded copy and matters, as a sentence; None if nothing does.

    A list and a tuple may stand for each other, and a plain type for its subclass. With `coerce` plain JSON data may
    become something richer.
    """
    if value is back:
        return None
    if (fields := _fields(value)) is not None:
        if type(value) is not type(back):
            return _comes_back(value, back, path)
        back_fields = _fields(back) or {}
        return _first_loss(
            ((f".{name}", child, back_fields.get(name)) for name, child in fields.items()), path, coerce=coerce
        )
    if isinstance(value, dict):
        return _loss_of_dict(cast("dict[object, object]", value), back, path, coerce=coerce)
    if isinstance(value, (list, tuple)):
        same = type(back) in (list, tuple) if type(value) in (list, tuple) else isinstance(back, type(value))
        if not same and not (coerce and type(value) is list):
            return _comes_back(value, back, path)
        if same:
            pairs = zip(cast("list[object]", value), cast("list[object]", back), strict=True)
            return _first_loss(((f"[{index}]", *pair) for index, pair in enumerate(pairs)), path, coerce=coerce)
        return None
    if _same_leaf(value, back) or (
        coerce and isinstance(value, (str, int, float)) and not isinstance(back, (int, float))
    ):
        return None
    return _comes_back(value, back, path)


def _first_loss(parts: Iterator[tuple[str, object, object]], path: str, *, coerce: bool) -> str | None:
    for step, child, back in parts:
        if child is not back and (found := loss(child, back, path + step, coerce=coerce)):
            return found
    return None


def _loss_of_dict(value: dict[object, object], back: object, path: str, *, coerce: bool) -> str | None:
    if isinstance(back, dict):
        back = cast("dict[object, object]", back)
        if len(back) != len(value):
            return f"at {path}, two keys are the same as text"
        for key in value:
            if key not in back:
                return f"at {path}, a key of type {type_name(type(key))} comes back as text: annotate the dict with its types"
        return _first_loss(((_key_step(key), child, back[key]) for key, child in value.items()), path, coerce=coerce)
    back_fields = _fields(back)
    if not coerce or back_fields is None:
        return _comes_back(value, back, path)
    pairs = (
        (f".{key}", child, back_fields[key])
        for key, child in value.items()
        if isinstance(key, str) and key in back_fields
    )
    return _first_loss(pairs, path, coerce=coerce)


def _same_leaf(value: object, back: object) -> bool:
    if isinstance(value, Decimal) and isinstance(back, Decimal):
        return str(value) == str(back)  # a NaN equals nothing, a signalling one may not even be compared
    if equal(value, back):
        return isinstance(value, type(back)) or isinstance(back, (int, float, set, frozenset))
    if isinstance(value, (datetime, time)) and type(back) is type(value):
        # In the hour that comes twice no time equals one of another zone.
        back = cast("datetime", back)
        return value.replace(tzinfo=None) == back.replace(tzinfo=None) and value.utcoffset() == back.utcoffset()
    return False


def _comes_back(value: object, back: object, path: str) -> str:
    if type(value) is type(back):
        return f"at {path}, a {type_name(type(value))} would come back changed"
    return (
        f"at {path}, a {type_name(type(value))} would come back as a {type_name(type(back))}: "
        f"annotate it with its own type, or return plain data"
    )


def equal(left: object, right: object) -> bool:
    """By ==, and False where that cannot be told."""
    try:
        return bool(left == right)
    except Exception:  # a user's __eq__ may raise anything
        return False


# ---------------------------------------------------------------- the parts of a value
def _children(value: object) -> Iterator[tuple[str, object]]:
    if (fields := _fields(value)) is not None:
        yield from ((f".{name}", child) for name, child in fields.items())
    elif isinstance(value, dict):
        yield from ((_key_step(key), child) for key, child in cast("dict[object, object]", value).items())
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{index}]", child) for index, child in enumerate(cast("list[object]", value)))


def _key_step(key: object) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f".{key}"
    return f"[{key!a:.60}]" if isinstance(key, (str, int, float)) else f"[{type_name(type(key))}]"


def _fields(value: object) -> dict[str, object] | None:
    """The fields of an instance of a class that the codec knows, by name; None for anything else."""
    kind: Any = type(value)
    if issubclass(kind, msgspec.Struct):
        names = kind.__struct_fields__
    elif dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    elif hasattr(kind, "__attrs_attrs__"):
        names = [field.name for field in kind.__attrs_attrs__]
    elif is_model(kind):
        return {**vars(value), **(cast("Any", value).__pydantic_extra__ or {})}
    else:
        return None
    return {each: getattr(value, each) for each in names if hasattr(value, each)}


def is_model(kind: type) -> bool:
    """True for a Pydantic model's class. Who has one has imported Pydantic; runtrue itself never does."""
    model = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return model is not None and issubclass(kind, model)


# ---------------------------------------------------------------- may equality be trusted
def equality_tells(described: object) -> bool:
    """True if values of a type that are equal by == cannot differ in any part. `described` is msgspec's view of it."""
    seen: set[int] = set()
    waiting: list[object] = [described]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, tuple):
            waiting.extend(cast("tuple[object, ...]", each))
        elif isinstance(each, (msgspec.inspect.Type, msgspec.inspect.Field)):
            kind: Any = getattr(each, "cls", None)
            if kind is not None and not _class_equality_tells(kind):
                return False
            waiting.extend(getattr(each, part) for part in each.__struct_fields__)
    return True


def _class_equality_tells(kind: Any) -> bool:
    if not isinstance(kind, type):
        return False
    if issubclass(kind, msgspec.Struct):
        return kind.__eq__ is msgspec.Struct.__eq__ and kind.__struct_config__.eq
    if dataclasses.is_dataclass(kind):
        generated = getattr(getattr(kind.__eq__, "__code__", None), "co_filename", "") == "<string>"
        return generated and all(field.compare for field in dataclasses.fields(kind))
    return "__eq__" not in vars(kind) and not hasattr(kind, "__attrs_attrs__") and not is_model(kind)


# ---------------------------------------------------------------- words
def type_name(kind: object) -> str:
    """A type as its author writes it."""
    if isinstance(kind, type) and not hasattr(kind, "__args__"):
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
