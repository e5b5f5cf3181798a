"""Arguments as they are compared: one text in every process, which reads back as what is stored would."""

import dataclasses
from collections.abc import Iterator
from datetime import date
from enum import Enum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from stepwell.errors import PayloadTooLarge, SerializationError
from stepwell.values.codec import decode, encode, encode_ordered, payload_hash, value_hash
from tests.ground.seeds import printed_by_each


class Right(Enum):
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    SHARE = "share"


class Tag(pydantic.BaseModel, frozen=True):
    words: frozenset[str]


class Tags(pydantic.RootModel[set[str]]):
    pass


class ByName(pydantic.RootModel[dict[str, set[str]]]):
    pass


class Upload(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    data: bytes
    url: pydantic.HttpUrl
    path: Path
    address: IPv4Address
    owner: str = pydantic.Field(alias="theOwner")
    rights: set[Right]
    named: dict[str, set[str]]
    tags: frozenset[Tag]
    root: Tags
    by: ByName
    numbers: tuple[set[int], ...]
    anything: Any = None


@attrs.frozen
class User:
    rights: frozenset[Right]
    words: frozenset[str]


class Shape(msgspec.Struct, frozen=True, rename="camel", tag="shape"):
    all_rights: frozenset[Right]
    groups: frozenset[frozenset[str]] = frozenset()


class Row(msgspec.Struct, frozen=True, array_like=True, tag="row"):
    name: str
    rights: frozenset[Right]


@dataclasses.dataclass(frozen=True)
class Rank:
    level: int
    words: frozenset[str]


WORDS = frozenset(("delta", "alpha", "charlie", "bravo", "echo"))
GROUPS = frozenset(frozenset((word, "zulu")) for word in WORDS)


def upload(**loose: Any) -> Upload:
    return Upload(
        data=b"hello",
        url=pydantic.HttpUrl("https://example.org/hook"),
        path=Path("/tmp/x"),
        address=IPv4Address("10.0.0.1"),
        theOwner="ada",
        rights=set(Right),
        named={word: set(WORDS) for word in WORDS},
        tags=frozenset((Tag(words=WORDS), Tag(words=frozenset(("x", "y", "z"))))),
        root=Tags(set(WORDS)),
        by=ByName({"root": set(WORDS), "b": set(WORDS)}),
        numbers=({8, 0}, {0, 8}),
        **loose,
    )


VALUES: dict[str, tuple[Any, Any]] = {
    "model": (upload(), Upload),
    "models": ([upload()], list[Upload]),
    "loose": ([upload(anything={"words": WORDS, "groups": [set(GROUPS)]}, more=set(WORDS))], None),
    "set of models": (frozenset((Tag(words=WORDS), Tag(words=frozenset()))), frozenset[Tag]),
    "root": (Tags(set(WORDS)), Tags),
    "attrs": (User(frozenset(Right), WORDS), User),
    "struct": (Shape(frozenset(Right), GROUPS), Shape),
    "structs": ({"a": [Shape(frozenset(Right))]}, dict[str, list[Shape]]),
    "row": ([Row("a", frozenset(Right))], list[Row]),
    "groups": (GROUPS, frozenset[frozenset[str]]),
    "pairs": ({(word, date(2026, 1, 1)) for word in WORDS}, set[tuple[str, date]]),
    "ranks": ({Rank(1, WORDS), Rank(1, frozenset("a"))}, set[Rank]),
    "keys": ({Right.READ: WORDS, Right.ADMIN: frozenset()}, dict[Right, frozenset[str]]),
}


@pytest.mark.proves("S-18", "CO-06")
@pytest.mark.parametrize("name", VALUES)
def test_what_is_compared_reads_back_as_what_is_stored(name: str) -> None:
    value, type_ = VALUES[name]
    if type_ is not None:  # no type says that these lists are sets
        assert decode(encode_ordered(value), type_) == value == decode(encode(value), type_)
    assert len(encode_ordered(value)) == len(encode(value))


@pytest.mark.proves("S-18", "protocol-21")
def test_what_has_no_order_gets_one_in_processes_that_hash_differently() -> None:
    printing = (
        "from tests.unit.test_ordering import VALUES, encode_ordered, value_hash\n"
        "for name, (value, _) in VALUES.items(): print(name, encode_ordered(value), value_hash(value))"
    )
    first, *others = (text.splitlines() for text in printed_by_each(printing))
    assert len(first) == len(VALUES)
    for other in others:
        assert other == first


@pytest.mark.proves("S-18")
def test_a_list_of_a_models_own_serializer_is_kept_unless_it_stands_for_a_set() -> None:
    class Odd(pydantic.BaseModel):
        pair: tuple[str, str]
        words: set[str]
        first: set[str]

        @pydantic.field_serializer("pair")
        def turned(self, pair: tuple[str, str]) -> list[str]:
            return ["z", *reversed(pair)]

        @pydantic.field_serializer("first")
        def joined(self, words: set[str]) -> str:
            return ",".join(sorted(words))

    text = encode_ordered(Odd(pair=("b", "a"), words={"y", "x"}, first={"d", "c"}))
    assert decode(text) == {"pair": ["z", "a", "b"], "words": ["x", "y"], "first": "c,d"}


@pytest.mark.proves("S-18")
@pytest.mark.parametrize("beside", [{Right.READ, Right.ADMIN}, GROUPS, [[1]]], ids=["unsorted", "odd", "plain"])
def test_what_cannot_be_stored_is_refused_in_any_order(beside: Any) -> None:
    for bad in (float("nan"), "a\0b", object(), {1: 1, "1": 2}):
        with pytest.raises(SerializationError) as caught:
            encode_ordered({"a": [bad], "b": beside}, what="argument")
        assert (caught.value.what, caught.value.path[:3]) == ("argument", "$.a")
    with pytest.raises(PayloadTooLarge):
        encode_ordered([beside, "x" * 100], limit=50)


@pytest.mark.proves("PR-08")
def test_hashes_of_equal_values_are_equal_whatever_the_order_of_their_sets() -> None:
    class Mail(pydantic.BaseModel):
        to: set[int]

    def turned() -> Iterator[Any]:
        for numbers in ([0, 8], [8, 0]):
            yield [Mail(to=set(numbers)), {"a": set(numbers), 1: frozenset(map(str, numbers))}, [{None, *numbers}]]

    one, two = turned()
    assert encode(one) != encode(two), "the order of these sets is that of their making"
    assert value_hash(one) == value_hash(two) == payload_hash(encode_ordered(two))
    assert value_hash(one) != value_hash([*two, 1])
