"""The only home of randomness, and the rules for ids."""

import hashlib
import os
import random
import uuid

from runtrue.errors import ConfigurationError

ID_LENGTH_MAX = 200


def new_run_id(now: int) -> str:
    """A UUID of version 7 for wall time `now` in microseconds: ids sort by the time they were made."""
    milliseconds = now // 1_000
    tail = int.from_bytes(os.urandom(10), "big")
    value = (milliseconds & 0xFFFF_FFFF_FFFF) << 80 | tail
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def new_worker_id() -> str:
    """Random for every opened worker: a restarted process is never taken for the one before it."""
    return f"w-{os.urandom(6).hex()}"


def new_request_id() -> str:
    """The identity of a command whose sender gave none."""
    return f"q-{os.urandom(8).hex()}"


def new_hold_id() -> str:
    """The identity of a hold."""
    return f"h-{os.urandom(6).hex()}"


def new_pause_id() -> str:
    """The identity of a pause."""
    return f"p-{os.urandom(6).hex()}"


def fit_id(text: str) -> str:
    """`text` as an id that is always the same: whole, or if it is too long its beginning and a digest of all of it."""
    if len(text) <= ID_LENGTH_MAX:
        return text
    return f"{text[:120]}~{hashlib.sha256(text.encode()).hexdigest()[:40]}"


def random_uuid() -> uuid.UUID:
    """A UUID of version 4."""
    return uuid.uuid4()


def random_seed() -> int:
    """64 random bits."""
    return int.from_bytes(os.urandom(8), "big")


def jitter() -> float:
    """A random factor from 0.5 up to 1.5, for delays that must not fall together."""
    return 0.5 + random.random()


def check_id(what: str, value: object) -> str:
    """Return `value` if it can be an id: 1 to 200 characters, none of them a control character or lone surrogate.

    Raises ConfigurationError with `what` in the message otherwise.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} must be text, not {type(value).__name__}")
    if not value or len(value) > ID_LENGTH_MAX:
        raise ConfigurationError(f"{what} must have 1 to {ID_LENGTH_MAX} characters, this one has {len(value)}")
    for character in value:
        if ord(character) < 32 or 0x7F <= ord(character) < 0xA0 or 0xD800 <= ord(character) < 0xE000:
            raise ConfigurationError(f"{what} {value!a} holds the character {character!a}, which no id may hold")
    return value
