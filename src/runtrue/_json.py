"""JSON by msgspec, and what msgspec does not write or read by itself."""

import inspect
from base64 import b64decode
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Any, cast

import msgspec

from runtrue._loss import equality_tells, is_model, reason, type_name
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


@dataclass(frozen=True, slots=True)
class Reader:
    """A decoder for one type. `equality_tells`: two of its values that are equal by == have nothing that differs."""

    decode: Any
    equality_tells: bool


JSON_READER = Reader(msgspec.json.Decoder().decode, True)


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
    return Reader(decoder.decode, equality_tells(kind))


_kept_reader = lru_cache(maxsize=4096)(_make_reader)
