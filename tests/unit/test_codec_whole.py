"""What is recorded is whole: no default of later code takes the place of a field that was left out."""

import enum
import inspect
import json
import typing
from dataclasses import dataclass, field, make_dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtrue.codec import decode, encode, encode_arguments, round_trip
from runtrue.errors import NotEncodable

WHAT = "the result of step book"
T = TypeVar("T")


@dataclass
class Trip:
    to: str
    nights: int = 2


@dataclass(frozen=True)
class Seat:
    row: int
    side: str = "window"


@dataclass(slots=True)
class SlottedTrip:
    to: str
    nights: int = 2


@dataclass
class InSlotsAndBeside(SlottedTrip):
    rooms: int = 1


@dataclass
class LongTrip(Trip):
    by: str = "train"
    stops: list[str] = field(default_factory=list[str])
    _note: str | None = None
    seats: int = field(default=1, kw_only=True)
    paid: bool = field(default=False, init=False)


@dataclass
class Tour:
    trips: list[Trip]
    home: Trip | None = None
    seat: Seat = Seat(1)
    by_day: dict[int, Trip] = field(default_factory=dict[int, Trip])
    then: "Tour | None" = None


@dataclass
class Box(Generic[T]):
    content: T


@dataclass
class WithExtra:
    to: str
    nights: int = 2

    def __post_init__(self) -> None:
        self.extra = 1


@pydantic.dataclasses.dataclass
class CheckedTrip:
    to: str
    nights: int = 2


class Ticket(msgspec.Struct):
    trip: Trip
    price: int = 10


class Leg(NamedTuple):
    trip: Trip
    hours: float = 0.5


class Plan(TypedDict):
    trip: Trip
    note: NotRequired[str]


class Booking(pydantic.BaseModel):
    trip: Trip
    guests: int = 1


class Side(enum.Enum):
    LEFT = "left"


TRIP = '{"to":"Oslo"}'
WHOLE_TRIP = '{"to":"Oslo","nights":2}'
WHOLE_SEAT = '{"row":1,"side":"window"}'
WHOLE_END = f'{{"trips":[],"home":null,"seat":{WHOLE_SEAT},"by_day":{{}},"then":null}}'
LACKING: list[tuple[Any, str, str]] = [
    (Trip, TRIP, WHOLE_TRIP),
    (Trip | None, TRIP, WHOLE_TRIP),
    (list[Trip], f"[{TRIP},{WHOLE_TRIP}]", f"[{WHOLE_TRIP},{WHOLE_TRIP}]"),
    (list[Trip | int], f"[1,{TRIP}]", f"[1,{WHOLE_TRIP}]"),
    (tuple[int, Trip], f"[1,{TRIP}]", f"[1,{WHOLE_TRIP}]"),
    (frozenset[Seat], '[{"row":1}]', f"[{WHOLE_SEAT}]"),
    (dict[str, list[Trip]], f'{{"a":[{TRIP}]}}', f'{{"a":[{WHOLE_TRIP}]}}'),
    (Box[Trip], f'{{"content":{TRIP}}}', f'{{"content":{WHOLE_TRIP}}}'),
    (Ticket, f'{{"trip":{TRIP}}}', f'{{"trip":{WHOLE_TRIP},"price":10}}'),
    (Leg, f"[{TRIP}]", f"[{WHOLE_TRIP},0.5]"),
    (Plan, f'{{"trip":{TRIP}}}', f'{{"trip":{WHOLE_TRIP}}}'),
    (Booking, f'{{"trip":{TRIP}}}', f'{{"trip":{WHOLE_TRIP},"guests":1}}'),
    (CheckedTrip, TRIP, WHOLE_TRIP),
    (SlottedTrip, TRIP, WHOLE_TRIP),
    (InSlotsAndBeside, TRIP, '{"to":"Oslo","nights":2,"rooms":1}'),
    (WithExtra, TRIP, WHOLE_TRIP),
    (
        LongTrip,
        '{"to":"Oslo","by":"boat"}',
        '{"to":"Oslo","nights":2,"by":"boat","stops":[],"_note":null,"seats":1,"paid":false}',
    ),
    (
        Tour,
        f'{{"trips":[{TRIP}],"by_day":{{"1":{TRIP}}},"then":{{"trips":[],"seat":{{"row":1}}}}}}',
        f'{{"trips":[{WHOLE_TRIP}],"home":null,"seat":{WHOLE_SEAT},"by_day":{{"1":{WHOLE_TRIP}}},"then":{WHOLE_END}}}',
    ),
]
by_kind = pytest.mark.parametrize(("kind", "lacking", "whole"), LACKING, ids=[str(kind) for kind, _, _ in LACKING])


@by_kind
def test_a_decoded_value_is_recorded_with_the_defaults_that_it_was_given(kind: Any, lacking: str, whole: str):
    value = decode(lacking.encode(), kind, what=WHAT)
    body, back = round_trip(value, kind, what=WHAT)
    assert body == whole.encode()
    assert back == value
    assert encode(back, kind, what=WHAT) == body


@by_kind
def test_plain_data_in_the_place_of_a_richer_type_is_recorded_as_what_it_becomes(kind: Any, lacking: str, whole: str):
    assert encode(json.loads(lacking), kind, what=WHAT, coerce=True) == whole.encode()


def booked(nights: int) -> Any:
    """The class as the code has it before and after its default was changed."""
    return make_dataclass("Booked", [("to", str), ("nights", int, nights), ("inner", Trip | None, None)])


def test_a_default_that_changes_between_recording_and_reading_changes_nothing():
    before, after = booked(2), booked(7)
    recorded = encode(decode(TRIP.encode(), before, what=WHAT), before, what=WHAT)
    assert decode(recorded, after, what=WHAT) == after("Oslo", 2)
    several = encode([decode(TRIP.encode(), before, what=WHAT)], list[before], what=WHAT)
    assert decode(several, list[after], what=WHAT) == [after("Oslo", 2)]


def test_an_input_holds_the_defaults_of_its_dataclasses_and_of_its_parameters():
    def book(trip: Trip, *more: Trip, seat: Seat = Seat(4), side: Side = Side.LEFT, **named: Trip) -> None:
        """Nothing is called: only the signature is looked at."""

    record = partial(encode_arguments, inspect.signature(book), typing.get_type_hints(book), what=WHAT)
    decoded = decode(TRIP.encode(), Trip, what=WHAT)
    given = (
        record((Trip("Oslo"), Trip("Oslo")), {"x": Trip("Oslo")}),
        record((decoded, decoded), {"x": decoded}),
        record(({"to": "Oslo"}, {"to": "Oslo"}), {"x": {"to": "Oslo"}}),
        record((), {"trip": {"to": "Oslo"}, "x": decoded, "side": "left", "seat": {"row": 4}}),
    )
    whole = json.loads(WHOLE_TRIP)
    assert json.loads(given[0]) == {
        "trip": whole,
        "more": [whole],
        "seat": {"row": 4, "side": "window"},
        "side": "left",
        "named": {"x": whole},
    }
    assert given[0] == given[1] == given[2]
    assert json.loads(given[3]) == json.loads(given[0]) | {"more": []}


def test_a_field_that_was_deleted_is_recorded_with_its_default_and_the_value_is_left_alone():
    trip = Trip("Oslo", 5)
    del trip.nights
    assert encode(trip, Trip, what=WHAT) == WHOLE_TRIP.encode()
    assert vars(trip) == {"to": "Oslo"}


def test_a_default_that_does_not_fit_its_annotation_is_refused_when_it_is_filled_in():
    @dataclass
    class Odd:
        to: str
        nights: int = None  # pyright: ignore[reportAssignmentType]

    with pytest.raises(NotEncodable, match=r"Expected `int`, got `null` - at `\$.nights`"):
        encode(decode(TRIP.encode(), Odd, what=WHAT), Odd, what=WHAT)


def test_a_field_that_is_unset_stays_absent():
    @dataclass
    class Patch:
        to: str
        nights: int | msgspec.UnsetType = msgspec.UNSET

    assert encode(Patch("Oslo"), Patch, what=WHAT) == TRIP.encode()
    assert encode(decode(TRIP.encode(), Patch, what=WHAT), Patch, what=WHAT) == TRIP.encode()


class Terse(msgspec.Struct, omit_defaults=True):
    to: str
    nights: int = 2


class TerseRow(msgspec.Struct, omit_defaults=True, array_like=True):
    to: str
    nights: int = 2


class Hiding(pydantic.BaseModel):
    to: str
    nights: int = pydantic.Field(default=2, exclude=True)


class Dropping(pydantic.BaseModel):
    to: str
    nights: int | None = None

    @pydantic.model_serializer(mode="wrap")
    def short(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: part for name, part in handler(self).items() if part is not None}


class Around(pydantic.BaseModel):
    inner: list[Dropping | Hiding]


def with_a_field_deleted() -> Booking:
    booking = Booking(trip=Trip("Oslo"))
    del booking.guests
    return booking


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (Terse("Oslo"), Terse, "at $.nights, Terse leaves this field out"),
        (Terse("Oslo", 5), Terse, "at $.nights, Terse leaves this field out"),
        ([{"a": Terse("Oslo")}], list[dict[str, Terse]], "at $[0].a.nights, Terse leaves"),
        (Hiding(to="Oslo"), Hiding, "at $.nights, Hiding leaves"),
        (Dropping(to="Oslo"), Dropping, "at $.nights, Dropping leaves"),
        (Around(inner=[Dropping(to="Oslo")]), Around, "at $.inner[0].nights, Dropping leaves"),
        (with_a_field_deleted(), Booking, "at $.guests, Booking leaves"),
    ],
    ids=lambda each: f"{each!r:.40}",
)
def test_a_class_that_leaves_fields_out_of_what_it_writes_is_refused(value: Any, kind: Any, message: str):
    with pytest.raises(NotEncodable) as refused:
        encode(value, kind, what=WHAT)
    assert message in str(refused.value)


def test_a_struct_that_is_written_as_an_array_leaves_nothing_out():
    assert encode(TerseRow("Oslo"), TerseRow, what=WHAT) == b'["Oslo",2]'


def test_a_list_shorter_than_the_named_tuple_in_whose_place_it_stands_is_refused():
    with pytest.raises(NotEncodable, match="a list would come back as a Leg"):
        encode([Trip("Oslo")], Leg, what=WHAT)


# ---------------------------------------------------------------- by chance
Sparse = tuple[Any, Any, Any]


@st.composite
def sparse_values(draw: st.DrawFn, depth: int = 3) -> Sparse:
    """A type, a value of it, and plain data that gives the value, without some of what has a default."""
    shape = draw(st.integers(0, 6)) if depth else 0
    if shape == 0:
        kind, values = draw(st.sampled_from([(int, st.integers()), (str, st.text("ab")), (bool, st.booleans())]))
        value = draw(values)
        return kind, value, value
    kind, value, plain = draw(sparse_values(depth - 1))
    if shape == 1:
        count = draw(st.integers(0, 3))
        return list[kind], [value] * count, [plain] * count
    if shape == 2:
        return dict[str, kind], {"k": value}, {"k": plain}
    if shape == 3:
        return kind | None, value, plain
    default = draw(st.none() | st.integers() | st.builds(Seat, st.integers()))
    given = draw(st.booleans())
    fields: list[Any] = [("first", kind), ("second", int | Seat | None, default), ("third", str, "c")]
    options: dict[str, Any] = {"frozen": draw(st.booleans()), "slots": draw(st.booleans()), "eq": draw(st.booleans())}
    made = msgspec.defstruct("Made", fields) if shape == 4 else make_dataclass("Made", fields, **options)
    whole = made(value, Seat(3), "d") if given else made(value)
    return made, whole, {"first": plain} | ({"second": {"row": 3}, "third": "d"} if given else {})


@given(sparse_values())
def test_reading_and_recording_again_gives_the_same_bytes_with_every_field(sparse: Sparse):
    kind, value, plain = sparse
    whole = encode(value, kind, what=WHAT)
    lacking = decode(json.dumps(plain).encode(), kind, what=WHAT)
    assert encode(lacking, kind, what=WHAT) == whole
    assert encode(plain, kind, what=WHAT, coerce=True) == whole
    assert encode(decode(whole, kind, what=WHAT), kind, what=WHAT) == whole
