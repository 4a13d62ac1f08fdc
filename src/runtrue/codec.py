"""Values to JSON bytes and back, by their annotated types.

What is written reads back equal, or is refused while it is written: every value is decoded again by its annotation
and compared before its bytes are handed out. It is whole: each field is written, so that no default of later code
takes the place of one. msgspec does the work, Pydantic models are accepted where Pydantic is imported. Without an
annotation a value may hold only what JSON has.
"""

import dataclasses
import inspect
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import GenericAlias, TracebackType
from typing import Any, cast

import msgspec

from runtrue._json import JSON_READER, fill_in, reader_of, write
from runtrue._loss import (
    DEPTH_MAX,
    TOO_DEEP,
    equal,
    locate,
    loss,
    not_finite,
    reason,
    sentence,
    too_deep,
    type_name,
)
from runtrue.errors import CodecError, ConfigurationError, ErrorInfo, NotDecodable, NotEncodable, PayloadTooLarge

PAYLOAD_BYTES_MAX = 32 * 1024 * 1024
"""The largest encoded value that is recorded, unless a call says otherwise."""

MESSAGE_CHARACTERS_MAX = 10_000
TRACEBACK_CHARACTERS_MAX = 20_000


# ---------------------------------------------------------------- the public pair
def encode(
    value: object,
    type: object = Any,  # noqa: A002 - nothing else says as well what is asked for
    *,
    what: str,
    limit_bytes: int = PAYLOAD_BYTES_MAX,
    coerce: bool = False,
) -> bytes:
    """JSON bytes from which `decode(…, type)` makes an equal value.

    `type` is the annotation that the value will be read with; without one, or with Any, only what JSON has is
    accepted (a tuple comes back as a list). `what` begins each message: "the result of step load". `coerce` also
    accepts plain JSON data in the place of a richer type, as it comes from a command line: "2024-05-01" for a date,
    an object that has no more than the required fields for a dataclass. It is recorded as what it became, defaults
    and all.

    Raises NotEncodable, with the path to the culprit, for what would not come back or not be whole, and
    PayloadTooLarge.
    """
    return _round_trip(value, type, what=what, limit_bytes=limit_bytes, coerce=coerce)[0]


def round_trip(
    value: object,
    type: object = Any,  # noqa: A002 - nothing else says as well what is asked for
    *,
    what: str,
    limit_bytes: int = PAYLOAD_BYTES_MAX,
    coerce: bool = False,
) -> tuple[bytes, Any]:
    """As `encode`, and beside the bytes the decoded copy: what every later read of them will give."""
    return _round_trip(value, type, what=what, limit_bytes=limit_bytes, coerce=coerce)


def _round_trip(
    value: object,
    type: object,  # noqa: A002 - as for encode
    *,
    what: str,
    limit_bytes: int,
    coerce: bool,
    again: bool = False,
) -> tuple[bytes, Any]:
    # The parts of users' classes that run here (properties, validators, __eq__) may raise anything at all.
    try:
        body = write(value)
    except Exception as error:
        raise NotEncodable(f"{what} cannot be recorded: {locate(value, error, write)}") from error
    _check_size(body, what, limit_bytes)
    reader = JSON_READER if type is Any else reader_of(type, what, NotEncodable)
    try:
        back = reader.decode(body)
    except Exception as error:
        flaw = not_finite(value)
        text = sentence(flaw) if flaw else f"it does not fit its annotation {type_name(type)}: {reason(error)}"
        raise NotEncodable(f"{what} cannot be recorded: {text}") from error
    became_richer = False
    # Equality at the speed of C settles nearly all values; the walk finds out what differs, and whether it matters.
    if not (reader.equality_tells and equal(back, value)):
        try:
            flaw = loss(value, back, coerce=False)
            if flaw and coerce:
                flaw = loss(value, back, coerce=True)
                became_richer = not flaw
        except RecursionError:
            raise NotEncodable(f"{what} cannot be recorded: {TOO_DEEP}") from None
        if flaw:
            raise NotEncodable(f"{what} cannot be recorded: {sentence(not_finite(value) or flaw)}")
    if len(body) >= 2 * DEPTH_MAX and too_deep(body):
        raise NotEncodable(f"{what} cannot be recorded: {TOO_DEEP}")
    if not again and (became_richer or (reader.lacks is not None and reader.lacks(back))):
        # What is recorded is the copy, with all that the value lacked, after the same examination.
        fill_in(back)
        return _round_trip(back, type, what=what, limit_bytes=limit_bytes, coerce=False, again=True)
    return body, back


def _check_size(body: bytes, what: str, limit_bytes: int) -> None:
    if len(body) > limit_bytes:
        raise PayloadTooLarge(
            f"{what} is {len(body):,} bytes long as JSON, the cap is {limit_bytes:,} bytes: "
            f"record where it is kept, a file or a row, in its place"
        )


def decode(body: bytes, type: object = Any, *, what: str) -> Any:  # noqa: A002 - as for encode
    """The value that `body` holds, as `type`. Raises NotDecodable if the bytes are no JSON or do not fit the type."""
    reader = JSON_READER if type is Any else reader_of(type, what, NotDecodable)
    try:
        return reader.decode(body)
    except Exception as error:  # validators of users' classes may raise anything
        raise NotDecodable(f"{what} cannot be read as {type_name(type)}: {reason(error)}") from error


# ---------------------------------------------------------------- arguments
def encode_arguments(
    signature: inspect.Signature,
    hints: Mapping[str, object],
    args: Iterable[object],
    kwargs: Mapping[str, object],
    *,
    what: str,
    limit_bytes: int = PAYLOAD_BYTES_MAX,
) -> bytes:
    """Bind arguments to a signature and record them, defaults applied, as one JSON object by parameter name.

    `*args` become a list and `**kwargs` an object under their own names. A positional-only parameter may be given by
    name too, since a command line knows nothing but names. Plain JSON data is accepted in the place of richer types.

    Raises ConfigurationError for arguments that are missing, unknown or given twice, NotEncodable, with the
    parameter's name, for one that does not fit its hint, and PayloadTooLarge.
    """
    positional, named = list(args), dict(kwargs)
    for parameter in list(signature.parameters.values())[len(positional) :]:
        if parameter.kind is not parameter.POSITIONAL_ONLY or not (
            parameter.name in named or parameter.default is not parameter.empty
        ):
            break
        positional.append(named.pop(parameter.name, parameter.default))
    try:
        bound = signature.bind(*positional, **named)
    except TypeError as error:
        raise ConfigurationError(f"{what}: {error}; its parameters are {signature}") from None
    bound.apply_defaults()
    parts: list[bytes] = []
    for name, value in bound.arguments.items():
        hint, value_what = _hint(signature.parameters[name], hints), f"{what}, argument {name},"
        body = encode(value, hint, what=value_what, limit_bytes=limit_bytes, coerce=True)
        parts.append(write(name) + b":" + body)
    whole = b"{" + b",".join(parts) + b"}"
    _check_size(whole, what, limit_bytes)
    return whole


def decode_arguments(
    body: bytes, signature: inspect.Signature, hints: Mapping[str, object], *, what: str
) -> tuple[list[Any], dict[str, Any]]:
    """What `encode_arguments` recorded, ready for `function(*args, **kwargs)`.

    Whoever starts a run by name alone records just what was given: a parameter that is not there takes its default.
    Raises NotDecodable, with the parameter's name, for one that is missing without a default, unknown or ill-typed.
    """
    recorded = cast("dict[str, msgspec.Raw]", decode(body, dict[str, msgspec.Raw], what=what))
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if (raw := recorded.pop(name, None)) is not None:
            value = decode(bytes(raw), _hint(parameter, hints), what=f"{what}, argument {name},")
        elif parameter.default is not parameter.empty:
            value = parameter.default
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        else:
            unknown = ", ".join(other for other in recorded if other not in signature.parameters)
            beside = f", and there is no parameter {unknown}" if unknown else ""
            raise NotDecodable(f"{what}: argument {name} is missing{beside}; its parameters are {signature}")
        if parameter.kind is parameter.VAR_POSITIONAL:
            args.extend(value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            kwargs.update(value)
        elif parameter.kind is parameter.KEYWORD_ONLY:
            kwargs[name] = value
        else:
            args.append(value)
    if recorded:
        raise NotDecodable(f"{what}: there is no parameter {', '.join(recorded)}; its parameters are {signature}")
    return args, kwargs


def _hint(parameter: inspect.Parameter, hints: Mapping[str, object]) -> object:
    hint = hints.get(parameter.name, Any)
    if parameter.kind is parameter.VAR_POSITIONAL:
        return GenericAlias(list, (hint,))
    if parameter.kind is parameter.VAR_KEYWORD:
        return GenericAlias(dict, (str, hint))
    return hint


# ---------------------------------------------------------------- errors
@dataclass(frozen=True, slots=True)
class _RecordedError:
    """How an error is recorded. `args` is there if the error is declared and can be rebuilt."""

    type: str
    message: str
    traceback: str
    args: list[Any] | None = None


def encode_error(error: BaseException) -> bytes:
    """Record an exception, whatever it holds: type name, bounded message, bounded traceback from the user's frames."""
    return write(_RecordedError(_class_name(type(error)), _message(error), _traceback(error)))


def encode_cancelled(reason: str) -> bytes:
    """Record that a run was cancelled, as the error its parent meets: of type `cancelled`, its message the reason."""
    return write(_RecordedError("cancelled", clean_text(reason), ""))


def decode_error(body: bytes) -> ErrorInfo:
    """What `encode_error`, `encode_business_error` or `encode_cancelled` recorded."""
    recorded = cast("_RecordedError", decode(body, _RecordedError, what="a recorded error"))
    return ErrorInfo(recorded.type, recorded.message, recorded.traceback)


def encode_business_error(error: Exception, types: tuple[type[Exception], ...]) -> bytes:
    """Record an error that its step declares: as `encode_error`, and with its `args` if it can be rebuilt from them.

    An error of a subclass is recorded as the nearest declared class. Ask `rebuild_error` on the live path too: it
    tells whether the error can be rebuilt, and what replays will raise.
    """
    recorded = _RecordedError(_class_name(type(error)), _message(error), _traceback(error))
    declared = next((base for base in type(error).__mro__ if base in types), None)
    if declared is not None:
        try:
            args = round_trip(list(error.args), what="args")[1]
        except CodecError:
            args = None
        body = write(dataclasses.replace(recorded, type=_class_name(declared), args=args))
        if rebuild_error(body, types) is not None:
            return body
        note = f"({declared.__qualname__} is declared in raises=, but cannot be made again from its args)\n"
        recorded = dataclasses.replace(recorded, traceback=recorded.traceback + note)
    return write(recorded)


def rebuild_error(body: bytes, types: tuple[type[Exception], ...]) -> Exception | None:
    """The declared error that was recorded, as `cls(*args)`; None if it is not among `types` or cannot be rebuilt.

    A class whose constructor makes other `args` of those it is given counts as one that cannot be rebuilt: its
    message would be wrong. No class is ever looked up by a recorded name but among `types`.
    """
    recorded = cast("_RecordedError", decode(body, _RecordedError, what="a recorded error"))
    if recorded.args is None:
        return None
    # A file that is run as a program calls its module __main__, a worker that imports it does not.
    matching = [each for each in types if _class_name(each) == recorded.type] or [
        each for each in types if each.__qualname__ == recorded.type.rpartition(".")[2]
    ]
    if len(matching) != 1:
        return None
    try:
        rebuilt = matching[0](*recorded.args)
        return rebuilt if equal(list(rebuilt.args), recorded.args) else None
    except Exception:  # a user's constructor may raise anything
        return None


def _class_name(kind: type[BaseException]) -> str:
    """As Python's tracebacks name it: with its module, unless that is builtins or the program itself."""
    module = kind.__module__
    return clean_text(kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}", 500)


def _message(error: BaseException) -> str:
    try:
        return clean_text(str(error), MESSAGE_CHARACTERS_MAX)
    except BaseException as failure:  # a __str__ may raise anything, and the error must be recorded all the same
        return f"(its __str__ raised {_class_name(type(failure))})"


def _traceback(error: BaseException) -> str:
    try:
        frames = _users_frames(error.__traceback__)
        lines = traceback.TracebackException(type(error), error, frames, compact=True).format()
        text = "".join(clean_text(line, 2_000) for line in lines)
    except Exception as failure:  # a hostile exception, or a source file that cannot be read
        return f"(its traceback cannot be shown: {_class_name(type(failure))})"
    if len(text) > TRACEBACK_CHARACTERS_MAX:  # the end tells most: the innermost frames, and the error
        cut = f"… ({len(text):,} characters, their end:)\n"
        text = cut + text[len(cut) - TRACEBACK_CHARACTERS_MAX :]
    return text


_HOME = str(Path(__file__).parent)


def _users_frames(frames: TracebackType | None) -> TracebackType | None:
    """The frames without the engine's own at the front; all of them if there are no others."""
    first = frames
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_HOME):
        first = first.tb_next
    return first or frames


# ---------------------------------------------------------------- text and digests
def clean_text(text: str, limit: int = MESSAGE_CHARACTERS_MAX) -> str:
    r"""Text that every database stores: NUL and lone surrogates become a visible \x00 and \udc80.

    At most `limit` characters (100 or more); one that is longer is cut, and ends with how long it was.
    """
    text = str.__str__(text)  # a subclass may do anything in its methods
    clean = text[:limit]
    if "\0" in clean:
        clean = clean.replace("\0", "\\x00")
    try:
        clean.encode()
    except UnicodeEncodeError:
        clean = clean.encode(errors="backslashreplace").decode()
    if len(text) > limit or len(clean) > limit:
        ending = f"… ({len(text):,} characters in all)"
        clean = clean[: limit - len(ending)] + ending
    return clean


def place_digest(branch: str, ordinal: int, result: bytes | None, error: bytes | None) -> int:
    """Eight bytes, as a signed integer, over the place of a durable call and its outcome."""
    kind = b"result" if result is not None else b"error" if error is not None else b"nothing"
    body = b"%s\0%d\0%s\0%s" % (branch.encode(), ordinal, kind, result or error or b"")
    return int.from_bytes(blake2b(body, digest_size=8).digest(), "big", signed=True)
