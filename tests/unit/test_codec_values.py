"""Values to bytes and back: equal, or refused by name and path."""

import collections
import contextlib
import dataclasses
import enum
import json
import math
import subprocess
import sys
import threading
import typing
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, NewType, NotRequired, Optional, TypedDict
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtrue import codec
from runtrue.codec import DEPTH_MAX, decode, encode, round_trip
from runtrue.errors import CodecError, NotDecodable, NotEncodable, PayloadTooLarge

WHAT = "the result of step load"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Word(enum.StrEnum):
    YES = "yes"


class Level(enum.IntEnum):
    LOW = 1


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Ratio(float):
    pass


class Blob(bytes):
    pass


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Movie(TypedDict):
    title: str
    year: NotRequired[int]


@dataclass(frozen=True, slots=True)
class Item:
    name: str
    price: Decimal
    bought: datetime | None = None
    tags: frozenset[str] = frozenset()


@dataclass
class Order:
    id: uuid.UUID
    items: list[Item]
    by_colour: dict[Colour, int] = field(default_factory=dict[Colour, int])
    parent: Optional["Order"] = None
    loose: Any = None
    ratio: float | None = None


@dataclass
class Base:
    n: int


@dataclass
class Derived(Base):
    extra: int = 0


@dataclass(eq=False)
class Unequal:
    n: float | None
    loose: Any = None


@dataclass
class OnlyIdCounts:
    id: int
    loose: Any = field(default=None, compare=False)


@dataclass
class AlwaysEqual:
    loose: Any

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None


@dataclass
class Counting:
    n: int

    def __post_init__(self) -> None:
        self.n += 1


class Leaf(msgspec.Struct):
    n: int
    at: date | None = None


class Tagged(msgspec.Struct, tag="tagged", rename="camel"):
    first_name: str


class OtherTagged(msgspec.Struct, tag="other"):
    n: int


class LooseStruct(msgspec.Struct, eq=False):
    loose: Any


class AlwaysEqualStruct(msgspec.Struct):
    loose: Any

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None


class AlwaysEqualModel(pydantic.BaseModel):
    loose: Any

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None


class Around(pydantic.BaseModel):
    inner: AlwaysEqualModel


class Model(pydantic.BaseModel):
    n: int
    at: datetime | None = None
    ratio: float | None = None
    nested: "list[Model]" = []
    url: pydantic.AnyUrl | None = None


class Aliased(pydantic.BaseModel):
    first_name: str = pydantic.Field(alias="firstName")


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    n: int


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: datetime
    raw: bytes


class Cached(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    n: int
    _lock: Any = pydantic.PrivateAttr(default_factory=threading.Lock)

    @pydantic.computed_field
    @property
    def twice(self) -> int:
        return 2 * self.n


class Listing(pydantic.RootModel[list[int]]):
    pass


UserId = NewType("UserId", int)
BERLIN = ZoneInfo("Europe/Berlin")
KEY = uuid.UUID("12345678-1234-5678-1234-567812345678")
NOON = datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


COMES_BACK: list[tuple[Any, Any]] = [
    (None, Any),
    (None, None),
    (True, bool),
    (0, Any),
    (-(2**63) - 1, Any),
    (2**64, int),
    (10**400, Any),
    ({"n": -(10**30)}, dict[str, int]),
    (0.1, float),
    (-0.0, Any),
    (1e308, Any),
    (5e-324, Any),
    ("", Any),
    ("a\0b", str),
    ('\u2028 🦉 \x7f \\ " /', Any),
    ({"": {"\0": [[], {}, None]}}, Any),
    ([1, "a", None, 1.5, True, {"k": [2**70]}], list[Any]),
    ({1: "a", -2: "b"}, dict[int, str]),
    ({1.5: "a"}, dict[float, str]),
    ({KEY: 1}, dict[uuid.UUID, int]),
    ({date(2024, 5, 1): 1}, dict[date, int]),
    ({Colour.RED: 1}, dict[Colour, int]),
    ({Level.LOW: [1]}, dict[Level, list[int]]),
    (b"", bytes),
    (bytes(range(256)), bytes),
    (bytearray(b"\xff\0"), bytearray),
    ([b"\xff"], list[bytes]),
    (NOON, datetime),
    (datetime(2024, 5, 1, 12), datetime),
    (datetime.max, datetime),
    (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=-12))), datetime),
    (datetime(2024, 5, 1, 2, 30, tzinfo=BERLIN), datetime),
    (date(2024, 2, 29), date),
    (time(23, 59, 59, 999999), time),
    (time(1, tzinfo=UTC), time),
    (timedelta(days=-1, microseconds=1), timedelta),
    (timedelta.max, timedelta),
    (timedelta.min, timedelta),
    (Decimal("1.50"), Decimal),
    (Decimal("1E+500"), Decimal),
    (Decimal("-Infinity"), Decimal),
    (KEY, uuid.UUID),
    (Colour.BLUE, Colour),
    (Word.YES, Word),
    (Level.LOW, Level),
    (Right.READ | Right.WRITE, Right),
    (Path("/tmp/ä b"), Path),
    (PurePosixPath("a/b"), PurePosixPath),
    ([Path("x")], list[Path]),
    (Text("x"), Text),
    (Number(2**70), Number),
    (Ratio(1.5), Ratio),
    (Ratio(2), Ratio),
    (Blob(b"\xff"), Blob),
    (UserId(3), UserId),
    ((1, "a"), tuple[int, str]),
    ((1, 2, 3), tuple[int, ...]),
    ((), tuple[int, ...]),
    ({3, 1, 2}, set[int]),
    (frozenset({"a"}), frozenset[str]),
    ({(1, 2)}, set[tuple[int, int]]),
    (Point(1), Point),
    ([Point(1, 2.5)], list[Point]),
    ({"title": "M"}, Movie),
    ({"title": "M", "year": 1931}, Movie),
    ("a", Literal["a", 1]),
    (None, int | None),
    (3, int | str),
    ([1], Sequence[int]),
    ({"a": 1}, Mapping[str, int]),
    (7, Annotated[int, msgspec.Meta(ge=1)]),
    (7, Annotated[int, {"no": "hash"}]),
    (Item("a", Decimal("9.90"), NOON, frozenset({"x"})), Item),
    (Order(KEY, [Item("a", Decimal(1))], {Colour.RED: 2}, Order(KEY, []), {"a": [1]}, 0.5), Order),
    ([Order(KEY, [])], list[Order]),
    (Derived(1, 2), Derived),
    (Leaf(1, date(2024, 5, 1)), Leaf),
    (Tagged("a"), Tagged | OtherTagged),
    ([OtherTagged(1), Tagged("b")], list[Tagged | OtherTagged]),
    (Model(n=2**70, at=NOON, nested=[Model(n=1)], url=pydantic.AnyUrl("https://a.example/")), Model),
    ([Model(n=1)], list[Model]),
    (None, Model | None),
    ({"a": Model(n=1)}, dict[str, Model]),
    (Aliased(firstName="A"), Aliased),
    (Open.model_validate({"n": 1, "more": [1]}), Open),
    (Strict(at=NOON, raw=b"abc"), Strict),
    (Listing([1, 2]), Listing),
    (nested(DEPTH_MAX), Any),
]


@pytest.mark.parametrize(("value", "kind"), COMES_BACK, ids=[f"{value!a:.60}" for value, _ in COMES_BACK])
def test_a_value_comes_back_equal_and_of_its_type(value: Any, kind: Any):
    body = encode(value, kind, what=WHAT)
    json.loads(body)  # it is JSON, and UTF-8
    back = decode(body, kind, what=WHAT)
    assert back == value
    assert type(back) is type(value)


LOCK = threading.Lock()
CYCLE: list[Any] = []
CYCLE.append({"again": CYCLE})

REFUSED: list[tuple[Any, Any, str]] = [
    (math.nan, Any, "at $, nan is no number that JSON has"),
    (math.inf, float, "at $, inf is no number that JSON has"),
    ({"items": [0, {"price": -math.inf}]}, Any, "at $.items[1].price, -inf"),
    ([math.nan], list[float | None], "at $[0], nan"),
    ({math.nan: 1}, dict[float, int], "at $, the key nan"),
    (Ratio(math.nan), Any, "at $, nan"),
    (Order(KEY, [], ratio=math.nan), Order, "at $.ratio, nan"),
    (Unequal(math.nan), Unequal, "at $.n, nan"),
    (Order(KEY, [], loose={"deep": (1, math.nan)}), Order, "at $.loose.deep[1], nan"),
    (Model(n=1, nested=[Model(n=2, ratio=math.inf)]), Model, "at $.nested[0].ratio, inf"),
    ("\ud800", Any, "at $, text holds a lone surrogate"),
    ({"a": ["ok", "\udcff"]}, Any, "at $.a[1], text holds a lone surrogate"),
    ({"a": {"\ud800": 1}}, Any, "at $.a, a key holds a lone surrogate"),
    (Path("\udcff"), Path, "lone surrogate"),
    (10**5000, Any, "at $, an integer has more digits"),
    ({"n": [10**5000]}, Any, "at $.n[0], an integer has more digits"),
    (LOCK, Any, "at $, an object of type lock has no form in JSON"),
    ({"a b": [LOCK]}, Any, "at $['a b'][0], an object of type lock"),
    (Order(KEY, [], loose=LOCK), Order, "at $.loose, an object of type lock"),
    (lambda: 0, Any, "type function has no form"),
    ((n for n in [1]), Any, "type generator has no form"),
    (1j, Any, "type complex has no form"),
    (range(3), Any, "type range has no form"),
    (collections.deque([1]), Any, "type deque has no form"),
    (int, Any, "type type has no form"),
    (ValueError("x"), Any, "type ValueError has no form"),
    (CYCLE, Any, "refers to itself"),
    (nested(DEPTH_MAX + 1), Any, "nested more than 200 levels"),
    (nested(100_000), Any, "nested more than 200 levels"),
    ({"[": nested(DEPTH_MAX + 1), "]\\": '"[]\\"'}, Any, "nested more than 200 levels"),
    (b"x", Any, "at $, a bytes would come back as a str: annotate it"),
    ({"a": NOON}, Any, "at $.a, a datetime would come back as a str: annotate it"),
    ([Decimal(1)], list, "at $[0], a Decimal would come back as a str"),
    (KEY, Any, "at $, a UUID would come back as a str"),
    (Colour.RED, Any, "at $, a Colour would come back as a str"),
    ({1, 2}, Any, "at $, a set would come back as a list"),
    (Path("x"), Any, "would come back as a str"),
    (Point(1), Any, "at $, a Point would come back as a list"),
    (Base(1), Any, "at $, a Base would come back as a dict"),
    (Leaf(1), dict[str, Any], "at $, a Leaf would come back as a dict"),
    (Model(n=1), Any, "at $, a Model would come back as a dict"),
    (Order(KEY, [], loose=date(2024, 5, 1)), Order, "at $.loose, a date would come back as a str"),
    (Unequal(1, NOON), Unequal, "at $.loose, a datetime"),
    (OnlyIdCounts(1, NOON), OnlyIdCounts, "at $.loose, a datetime"),
    (AlwaysEqual({1}), AlwaysEqual, "at $.loose, a set"),
    (LooseStruct(b"x"), LooseStruct, "at $.loose, a bytes"),
    (AlwaysEqualStruct({1}), AlwaysEqualStruct, "at $.loose, a set"),
    (Around(inner=AlwaysEqualModel(loose={1})), Around, "at $.inner.loose, a set"),
    ({1: 2}, Any, "at $, a key of type int comes back as text"),
    ({"a": {1.5: 2}}, Any, "at $.a, a key of type float comes back as text"),
    ({True: 2}, Any, "at $, "),
    ({(1, 2): 3}, Any, "at $, "),
    ({1: "a", "1": "b"}, Any, "two keys are the same"),
    (Derived(1, 2), Base, "at $, a Derived would come back as a Base"),
    ([Base(1), Derived(1, 2)], list[Base], "at $[1], a Derived would come back as a Base"),
    ({"n": 1}, Base, "at $, a dict would come back as a Base"),
    ("2024-05-01", date, "at $, a str would come back as a date"),
    (Counting(1), Counting, "at $.n, a int would not come back as it is"),
    (2**53 + 1, float, "would come back as a float"),
    ("1", int, "does not fit its annotation int: Expected `int`, got `str`"),
    (True, int, "does not fit its annotation int"),
    (5, None, "does not fit its annotation None"),
    ({"n": "x"}, dict[str, int], "does not fit its annotation dict[str, int]"),
    (Base("x"), Base, "Expected `int`, got `str` - at `$.n`"),  # pyright: ignore[reportArgumentType]
    (datetime(1900, 1, 1, tzinfo=timezone(timedelta(seconds=3208))), datetime, "would not come back as it is"),
    (1, datetime | str, "is annotated datetime.datetime | str, which cannot be recorded"),
    (1, Model | int, "which cannot be recorded"),
    (1, typing.NoReturn, "is annotated NoReturn, which cannot be recorded"),
    ([1], collections.deque, "deque cannot be made of a recorded list"),
]


@pytest.mark.parametrize(("value", "kind", "message"), REFUSED, ids=[f"{message:.60}" for _, _, message in REFUSED])
def test_a_value_that_would_not_come_back_is_refused_by_name_and_path(value: Any, kind: Any, message: str):
    with pytest.raises(NotEncodable) as refused:
        encode(value, kind, what=WHAT)
    assert str(refused.value).startswith(WHAT)
    assert message in str(refused.value)


def test_a_model_whose_class_raises_is_refused_with_what_it_raised():
    class Hostile(pydantic.BaseModel):
        n: int

        @pydantic.field_serializer("n")
        def broken(self, _: int) -> int:
            raise RuntimeError("no such luck")

    with pytest.raises(NotEncodable, match="no such luck"):
        encode([Hostile(n=1)], list[Hostile], what=WHAT)


def test_a_model_that_cannot_read_itself_is_refused_while_it_is_written():
    class OneWay(pydantic.BaseModel):
        a: int = pydantic.Field(validation_alias="in", serialization_alias="out")

    with pytest.raises(NotEncodable, match="OneWay: in: Field required"):
        encode(OneWay.model_validate({"in": 1}), OneWay, what=WHAT)


def test_what_a_model_keeps_beside_its_fields_is_no_part_of_it():
    back = decode(encode(Cached(n=2), Cached, what=WHAT), Cached, what=WHAT)
    assert back.n == 2
    assert back.twice == 4


def test_tuples_lists_and_subclasses_of_containers_may_stand_for_each_other():
    assert decode(encode((1, (2,)), what=WHAT), what=WHAT) == [1, [2]]
    assert decode(encode([1, 2], tuple[int, ...], what=WHAT), tuple[int, ...], what=WHAT) == (1, 2)
    assert decode(encode(collections.OrderedDict(a=1), what=WHAT), what=WHAT) == {"a": 1}
    assert decode(encode({"n": collections.Counter("aab")}, what=WHAT), what=WHAT) == {"n": {"a": 2, "b": 1}}
    assert decode(encode([Word.YES, Level.LOW, Text("x"), Number(3)], what=WHAT), what=WHAT) == ["yes", 1, "x", 3]


def test_a_decimal_that_is_no_number_comes_back_as_the_same():
    for text in ("NaN", "-NaN12", "sNaN"):
        assert str(decode(encode(Decimal(text), Decimal, what=WHAT), Decimal, what=WHAT)) == text


def test_the_hour_that_comes_twice_keeps_its_offset():
    for fold in (0, 1):
        given = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=fold)
        back = decode(encode(given, datetime, what=WHAT), datetime, what=WHAT)
        assert back.utcoffset() == timedelta(hours=2 - fold)
        assert back.replace(tzinfo=None) == datetime(2024, 10, 27, 2, 30)


def test_the_copy_that_comes_with_the_bytes_is_what_replays_will_read():
    value = {"pair": (1, 2)}
    body, back = round_trip(value, what=WHAT)
    assert back == {"pair": [1, 2]} == decode(body, what=WHAT)
    assert back is not value


def test_a_value_over_the_cap_is_refused_with_its_size_and_the_cap():
    assert len(encode("x" * 98, what=WHAT, limit_bytes=100)) == 100
    with pytest.raises(
        PayloadTooLarge, match="the result of step load is 101 bytes long as JSON, the cap is 100 bytes"
    ):
        encode("x" * 99, what=WHAT, limit_bytes=100)
    with pytest.raises(PayloadTooLarge, match="33,554,434 bytes long as JSON, the cap is 33,554,432"):
        encode("x" * 32 * 1024 * 1024, what=WHAT)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b"", Any, "truncated"),
        (b"{", Any, "truncated"),
        (b'"\xff"', Any, "nvalid"),
        (b"1 2", Any, "malformed"),
        (b"NaN", Any, "malformed"),
        (b'"a"', int, "as int: Expected `int`, got `str`"),
        (b'{"id":"x"}', Order, "Invalid UUID - at `$.id`"),
        (b'[{"n":"x"}]', list[Model], "Model: n: Input should be a valid integer"),
        (b'{"n":1}', datetime | str, "which cannot be recorded"),
        (b"[" * 100_000, Any, "nested"),
        (b"[1]", collections.deque, "deque cannot be made of a recorded list"),
    ],
)
def test_bytes_that_do_not_fit_are_refused_with_what_they_are_and_why(body: bytes, kind: Any, message: str):
    with pytest.raises(NotDecodable) as refused:
        decode(body, kind, what="the recorded value")
    assert str(refused.value).startswith("the recorded value")
    assert message in str(refused.value)


def test_plain_data_becomes_richer_only_where_that_is_asked_for():
    order = {"id": str(KEY), "items": [{"name": "a", "price": 0.1}]}
    with pytest.raises(NotEncodable):
        encode(order, Order, what=WHAT)
    body = encode(order, Order, what=WHAT, coerce=True)
    assert decode(body, Order, what=WHAT) == Order(KEY, [Item("a", Decimal("0.1"))])
    assert decode(encode(["a", "a"], set[str], what=WHAT, coerce=True), set[str], what=WHAT) == {"a"}
    for lossy, kind in ((2**53 + 1, float), ([math.nan], list[float | None]), ({"n": 1, "x": NOON}, Base), ({1}, Any)):
        with pytest.raises(NotEncodable):
            encode(lossy, kind, what=WHAT, coerce=True)


def test_nesting_is_counted_by_brackets_alone_not_by_those_within_text():
    flat = [{"[": ']}"{["', "\\": "[\\"}] * 300
    assert decode(encode(flat, what=WHAT), what=WHAT) == flat
    deep = {'"]': nested(DEPTH_MAX - 1)}
    assert decode(encode(deep, what=WHAT), what=WHAT) == deep


def test_importing_and_using_the_codec_leaves_pydantic_alone():
    program = (
        "import sys; from runtrue.codec import encode, decode; import dataclasses, typing\n"
        "P = dataclasses.make_dataclass('P', [('n', int)])\n"
        "decode(encode(P(1), P, what='w'), P, what='w'); encode({'a': [1]}, what='w')\n"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# ---------------------------------------------------------------- by chance
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
ZONES = st.one_of(st.none(), st.just(UTC), st.sampled_from([BERLIN, timezone(timedelta(hours=-3, minutes=-30))]))
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers() | st.integers(-(2**70), 2**70)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (str, TEXTS),
    (bool, st.booleans()),
    (bytes, st.binary(max_size=8)),
    (date, st.dates()),
    (datetime, st.datetimes(min_value=datetime(1950, 1, 1), timezones=ZONES)),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (uuid.UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Path, st.builds(Path, TEXTS.filter(lambda text: "\0" not in text))),
]
KEYS = [leaf for leaf in LEAVES if leaf[0] in (int, str, uuid.UUID, date, Colour)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
Typed = tuple[Any, Any]


@st.composite
def typed_values(draw: st.DrawFn, depth: int = 3) -> Typed:
    """A type and a value of it, nested."""
    shape = draw(st.integers(0, 8)) if depth else 0
    if shape <= 1:
        kind, values = draw(st.sampled_from([*LEAVES, (Any, JSON)]))
        return kind, draw(values)
    kind, value = draw(typed_values(depth - 1))
    if shape == 2:
        return list[kind], [value] * draw(st.integers(0, 3))
    if shape == 3:
        key_kind, keys = draw(st.sampled_from(KEYS))
        return dict[key_kind, kind], dict.fromkeys(draw(st.lists(keys, max_size=3)), value)
    if shape == 4:
        return kind | None if kind is not Any else Any, draw(st.sampled_from([value, None]))
    other_kind, other = draw(typed_values(depth - 1))
    if shape == 5:
        return tuple[kind, other_kind], (value, other)
    fields = [("first", kind), ("second", other_kind)]
    if shape == 6:
        made = dataclasses.make_dataclass("Made", fields, frozen=True, eq=draw(st.booleans()))
    elif shape == 7:
        made = msgspec.defstruct("Made", fields)
    else:
        try:
            made = pydantic.create_model("Made", first=(kind, ...), second=(other_kind, ...))
        except pydantic.errors.PydanticSchemaGenerationError:  # Pydantic knows no structs
            made = msgspec.defstruct("Made", fields)
    return made, made(first=value, second=other)


def alike(left: Any, right: Any) -> bool:
    """Equality for the tests: by the printed form where classes have none, and blind to how a zone is kept."""
    if dataclasses.is_dataclass(left) or isinstance(left, (msgspec.Struct, pydantic.BaseModel)):
        return type(left) is type(right) and all(
            alike(getattr(left, n), getattr(right, n)) for n in ("first", "second")
        )
    if isinstance(left, datetime):
        return left.replace(tzinfo=None, fold=0) == right.replace(tzinfo=None) and left.utcoffset() == right.utcoffset()
    if isinstance(left, dict):
        return list(left) == list(right) and all(map(alike, left.values(), right.values()))
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(alike, left, right))
    return type(left) is type(right) and left == right


def comes_back(typed: Typed) -> None:
    kind, value = typed
    try:
        body = encode(value, kind, what=WHAT)
    except NotEncodable as refused:
        if "utf-8" in str(refused):  # Pydantic writes bytes as text unless told otherwise
            return
        raise
    back = decode(body, kind, what=WHAT)
    assert alike(value, back), (kind, value, back)


HOSTILE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=3)
    | st.binary(max_size=3)
    | st.datetimes()
    | st.decimals()
    | st.sampled_from([Colour.RED, Word.YES, Text("t"), Base(1), Point(1), 1j, LOCK, Ellipsis, Model(n=1)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2) | st.integers() | st.none() | st.floats(), inner, max_size=3)
        | st.frozensets(st.integers() | st.text(max_size=2), max_size=2)
        | st.builds(Unequal, inner, inner)
    ),
    max_leaves=8,
)


def is_json_or_refused(value: Any) -> None:
    try:
        body = encode(value, what=WHAT)
    except NotEncodable:
        return
    # The standard library is the other opinion about what JSON can hold of it.
    assert decode(body, what=WHAT) == json.loads(json.dumps(value, allow_nan=False)) == json.loads(body)


@given(typed_values())
def test_a_value_of_any_type_is_accepted_and_comes_back(typed: Typed):
    comes_back(typed)


@given(HOSTILE)
def test_without_an_annotation_a_value_is_plain_json_or_refused(value: Any):
    is_json_or_refused(value)


@given(HOSTILE, st.sampled_from([kind for _, kind in COMES_BACK if kind is not Any]))
def test_a_value_of_another_type_is_refused_or_equal(value: Any, kind: Any):
    try:
        body = encode(value, kind, what=WHAT)
    except CodecError:
        return
    back = decode(body, kind, what=WHAT)
    assert back == value or list(back) == list(value) or str(back) == str(value)


@given(st.binary(max_size=40), st.sampled_from([kind for _, kind in COMES_BACK]))
def test_reading_any_bytes_gives_a_value_or_not_decodable(body: bytes, kind: Any):
    with contextlib.suppress(NotDecodable):
        decode(body, kind, what=WHAT)


@pytest.mark.prove
@given(typed_values(depth=4))
def test_a_value_of_any_type_comes_back_many_times(typed: Typed):
    comes_back(typed)


@pytest.mark.prove
@given(HOSTILE)
def test_without_an_annotation_a_value_is_plain_json_or_refused_many_times(value: Any):
    is_json_or_refused(value)


def test_the_cap_is_what_the_documentation_says():
    assert codec.PAYLOAD_BYTES_MAX == 32 * 1024 * 1024
