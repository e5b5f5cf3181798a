"""What is stored reads back as what was given, or is refused with its path."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import PayloadTooLarge, SerializationError
from stepwell.values.codec import check_type, decode, encode, encode_many, payload_hash, value_hash
from stepwell.values.exceptions import error_of


class Colour(Enum):
    RED = "red"


class Odd(Enum):
    NOT_A_NUMBER = float("nan")


class Level(IntEnum):
    LOW = 1


class Mode(StrEnum):
    FAST = "fast"


class Point(NamedTuple):
    x: int
    y: int


class Extra(TypedDict):
    note: str


class Email(str):
    __slots__ = ()


class Struct(msgspec.Struct):
    tags: frozenset[str]
    level: Level


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    number: int = pydantic.Field(alias="theNumber")
    at: datetime
    blob: bytes = b"plain"

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.number * 2


class StrictModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, ser_json_bytes="base64", val_json_bytes="base64")

    at: datetime
    blob: bytes


NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@dataclasses.dataclass(frozen=True)
class Everything:
    id: UUID
    at: datetime
    day: date
    clock: time
    span: timedelta
    price: Decimal
    blob: bytes
    colour: Colour
    level: Level
    mode: Mode
    point: Point
    pair: tuple[int, str]
    tags: set[str]
    counts: dict[int, str]
    extra: Extra
    kind: Literal["a", "b"]
    email: Email
    struct: Struct
    model: Model
    models: list[StrictModel]
    nothing: int | None = None


EVERYTHING = Everything(
    id=UUID(int=7),
    at=NOW,
    day=date(2026, 1, 2),
    clock=time(3, 4, 5),
    span=timedelta(days=3, microseconds=1),
    price=Decimal("1.50"),
    blob=b"\xff\x00",
    colour=Colour.RED,
    level=Level.LOW,
    mode=Mode.FAST,
    point=Point(1, 2),
    pair=(1, "x"),
    tags={"a", "b"},
    counts={1: "one", -2: "two"},
    extra={"note": "n"},
    kind="a",
    email=Email("a@b"),
    struct=Struct(frozenset({"s"}), Level.LOW),
    model=Model(theNumber=3, at=NOW),
    models=[StrictModel(at=NOW, blob=b"\xff")],
)


@pytest.mark.proves("CO-06")
def test_every_supported_type_comes_back_equal() -> None:
    back = decode(encode(EVERYTHING), Everything)
    assert back == EVERYTHING
    assert type(back.email) is Email


@pytest.mark.proves("CO-06")
@pytest.mark.parametrize("offset", [timedelta(0), timedelta(hours=5, minutes=45), timedelta(hours=-3, minutes=-30)])
def test_a_moment_keeps_its_place(offset: timedelta) -> None:
    there = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(offset))
    model = Model(theNumber=3, at=there)
    for back in (
        decode(encode(there), datetime),
        decode(encode(model), Model).at,
        decode(encode([model]), list[Model])[0].at,
    ):
        assert (back, back.utcoffset()) == (there, offset)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (Model(theNumber=3, at=NOW), Model),
        (StrictModel(at=NOW, blob=b"\xff"), StrictModel),
        ([Model(theNumber=3, at=NOW)], list[Model]),
        ({"a": Model(theNumber=3, at=NOW)}, dict[str, Model]),
        (None, type(None)),
        (None, Model | None),
        ({3, 1, 2}, set[int]),
        (-0.0, float),
        (2**53 + 1, int),
        (2**200, int),
        (-(2**64), Any),
        (OrderedDict(b=1, a=2), dict[str, int]),
        (defaultdict(int, a=1), dict[str, int]),
        ("\\u0000 \\ud800 null NaN", str),
        ({"line1": None, "0": 1, "\\u0000": "e\u0301é\u2028"}, Any),
        (1, object),
    ],
)
def test_values_come_back_as_the_type_asked_for(value: Any, type_: Any) -> None:
    back = decode(encode(value), type_)
    assert back == value
    assert math.copysign(1, back) == math.copysign(1, value) if isinstance(value, float) else True


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner)
    ),
    max_leaves=30,
)


@given(JSON)
def test_json_comes_back_equal(value: Any) -> None:
    assert decode(encode(value)) == value


@given(JSON)
def test_both_hashes_agree_and_ignore_the_order_of_keys(value: Any) -> None:
    turned = dict.fromkeys(("b", "a"), value)
    straight = dict.fromkeys(("a", "b"), value)
    assert payload_hash(encode(turned)) == payload_hash(encode(straight)) == value_hash(turned) == value_hash(straight)


BAD_LEAVES: list[tuple[Any, str]] = [
    (float("nan"), "no JSON number"),
    (float("inf"), "no JSON number"),
    (float("-inf"), "no JSON number"),
    (Odd.NOT_A_NUMBER, "no JSON number"),
    ("a\0b", "NUL"),
    ("a\ud800", "surrogate"),
    (Path("x"), "Path"),
    (object(), "object"),
    (1j, "complex"),
    (int, "type"),
    (ValueError("x"), "ValueError"),
    (10**5000, "digits"),
]


@given(
    leaf=st.sampled_from(BAD_LEAVES),
    places=st.lists(st.sampled_from(["a", "é", 0, 2]), max_size=6),
    beside=st.sampled_from([None, 1.5, 2**80, "x", [], b"\xcb\x7f"]),
)
def test_what_cannot_be_stored_is_refused_wherever_it_is(leaf: tuple[Any, str], places: list[Any], beside: Any) -> None:
    value, why = leaf
    path = ""
    for place in places:
        value = {"beside": beside, place: value} if isinstance(place, str) else [*[beside] * place, value]
        path = (f".{ascii(place)[1:-1]}" if isinstance(place, str) else f"[{place}]") + path
    with pytest.raises(SerializationError, match=why) as caught:
        encode(value, what="result")
    assert caught.value.path == f"${path}"
    assert str(caught.value).startswith("result refused at `$")


@dataclasses.dataclass
class Holder:
    inner: Any


@pytest.mark.parametrize("leaf", [leaf for leaf, _ in BAD_LEAVES], ids=lambda leaf: type(leaf).__name__)
def test_the_path_leads_through_classes(leaf: Any) -> None:
    with pytest.raises(SerializationError) as caught:
        encode([Holder(Holder({"k": leaf}))])
    assert caught.value.path == "$[0].inner.inner.k"


@pytest.mark.parametrize(
    "value",
    [
        {"a\0": 1},
        {"\ud800": 1},
        {(1, 2): 3},
        {None: 1},
        {1: "a", "1": "b"},
        [{"x": {2.5: "a", "2.5": "b"}}],
        {Level.LOW: "a", "1": "b"},
    ],
)
def test_keys_that_would_be_lost_are_refused(value: Any) -> None:
    with pytest.raises(SerializationError):
        encode(value)


def test_a_model_that_holds_nan_is_refused() -> None:
    class Measured(pydantic.BaseModel):
        value: float

    with pytest.raises(SerializationError, match="no JSON number") as caught:
        encode([Measured(value=float("nan"))])
    assert caught.value.path == "$[0].value"


def test_a_model_that_cannot_be_dumped_is_refused() -> None:
    with pytest.raises(SerializationError):
        encode(Model(theNumber=1, at=NOW, blob=b"\xff"))


def nested(depth: int) -> Any:
    value: Any = {}
    for level in range(depth - 1):
        value = [value] if level % 2 else {"k": value}
    return value


def test_nesting_up_to_two_hundred() -> None:
    assert decode(encode(nested(200))) == nested(200)
    assert encode(["[" * 500, *[[] for _ in range(300)]])
    for depth in (201, 500, sys.getrecursionlimit() * 20):
        with pytest.raises(SerializationError, match="nested deeper"):
            encode(nested(depth))


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(SerializationError, match="contains itself"):
        encode(loop)


def test_the_limit_is_in_bytes_of_text() -> None:
    assert encode("é", limit=4) == '"é"'
    with pytest.raises(PayloadTooLarge) as caught:
        encode("é", limit=3)
    assert (caught.value.size, caught.value.limit) == (4, 3)
    assert isinstance(caught.value, SerializationError)
    with pytest.raises(PayloadTooLarge):
        encode("x" * 1_048_576)


@pytest.mark.parametrize(
    ("text", "type_", "path"),
    [
        ('{"x": "1"}', dict[str, int], "$[...]"),
        ("[1, 2.5]", list[int], "$[1]"),
        ("{", Any, "$"),
        ("", Any, "$"),
        ("NaN", Any, "$"),
        ("1e400", float, "$"),
        ("[" * 100_000, Any, "$"),
        ('"\ud800"', str, "$"),
        ('{"theNumber": 1}', Model, "$"),
        ('[{"theNumber": 1}]', list[Model], "$[0]"),
        ('"a"', Path, "$"),
        ("5", Email, "$"),
    ],
)
def test_what_does_not_fit_is_a_serialization_error(text: str, type_: Any, path: str) -> None:
    with pytest.raises(SerializationError) as caught:
        decode(text, type_, what="input")
    assert caught.value.path == path
    assert caught.value.what == "input"


def test_a_models_complaint_does_not_repeat_the_value() -> None:
    for type_, text in ((Model, '{"theNumber": "hunter2"}'), (list[Model], '[{"theNumber": "hunter2"}]')):
        with pytest.raises(SerializationError, match="theNumber") as caught:
            decode(text, type_)
        assert "hunter2" not in str(caught.value)


def test_a_type_nobody_can_read_is_refused_when_declared() -> None:
    check_type(Everything)
    check_type(Model)
    with pytest.raises(SerializationError):
        check_type(Model | Everything)
    with pytest.raises(SerializationError, match="Odd"):
        check_type(list[Odd])


def test_hashes_tell_values_apart() -> None:
    values = [None, 0, 0.0, "0", [], {}, [1, 2], [2, 1], {"a": 1}, {"a": "1"}, {"b": 1}]
    assert len({value_hash(value) for value in values}) == len(values)
    assert len(value_hash(None)) == 32


def test_a_set_hashes_alike_whatever_its_order() -> None:
    words = [f"word-{number}" for number in range(50)]
    assert value_hash(set(words)) == value_hash(frozenset(words)) == value_hash(sorted(words))
    assert value_hash({1, "a"})


class Once(pydantic.BaseModel):
    items: Iterable[int]


@pytest.mark.parametrize("beside", [None, {"a": None}, {"1": 2}, "x" * 5_000], ids=["nothing", "null", "digit", "long"])
def test_what_a_payload_reads_from_an_iterator_is_read_once(beside: Any) -> None:
    values = [Once(items=range(3)), beside, Once(items=range(2_000))]
    texts = encode_many(values)
    assert [decode(texts[index], dict[str, list[int]]) for index in (0, 2)] == [
        {"items": [0, 1, 2]},
        {"items": list(range(2_000))},
    ]
    assert decode(texts[1]) == beside


@pytest.mark.parametrize(
    ("code", "kept"), [(2**63 - 1, True), (2**63, False), (-(10**5000), False)], ids=["most", "more", "much"]
)
def test_a_code_too_big_for_a_number_is_left_out_of_an_error(code: int, kept: bool) -> None:
    error = ValueError("no")
    error.code = code  # type: ignore[attr-defined]
    assert ("code" in error_of(error)) is kept
    assert encode(error_of(error))
