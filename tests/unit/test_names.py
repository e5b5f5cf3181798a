"""Names, keys, tags and small numbers are plain data or refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from stepwell.base.names import check_key, check_max_attempts, check_name, check_priority, check_schema, check_tags
from stepwell.errors import InvalidName, InvalidOption

NOT_ASCII = ["größe", "заказ.v2", "注文", "क्रम", "é" * 255, "\uff21"]
HOSTILE = [
    "a b",
    "a'b",
    'a"b',
    "a;--",
    "%s",
    "$1",
    "{}",
    "a\\b",
    "a\nb",
    "a\n",
    "../x",
    "a/b",
    "e\u0301",
    "😀",
    "a\u202eb",
]


@pytest.mark.parametrize(
    "name", ["a", "zip_files", "order.v1", "tenant:mail-out", "7", "_", "x" * 255, "pg_", "select", *NOT_ASCII]
)
def test_ordinary_names_pass(name: str) -> None:
    assert check_name("queue", name) == name


@pytest.mark.parametrize("name", [*HOSTILE, "", "x" * 256, "a\0b", "\ud800", None, 5, b"a"])
def test_other_names_are_refused_with_their_kind(name: Any) -> None:
    with pytest.raises(InvalidName, match="cannot name a workflow") as caught:
        check_name("workflow", name)
    assert (caught.value.kind, caught.value.name) == ("workflow", name)


@pytest.mark.parametrize("key", [*HOSTILE, "x" * 255, " "])
def test_a_key_is_any_text(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize("key", ["", "x" * 256, "a\0b", "\ud800", "a\udfff", None, 5, b"a"])
def test_what_no_database_stores_is_no_key(key: Any) -> None:
    with pytest.raises(InvalidName):
        check_key(key)


@pytest.mark.parametrize("name", ["stepwell", "_x", "a" * 48, "tenant_7"])
def test_schema_names(name: str) -> None:
    assert check_schema(name) == name


@pytest.mark.parametrize("name", ["", "A", "7a", "a" * 49, "a-b", "a;drop", "a\n", "é", None])
def test_refused_schema_names(name: Any) -> None:
    with pytest.raises(InvalidName, match="schema"):
        check_schema(name)


@pytest.mark.parametrize("priority", [0, -32_768, 32_767])
def test_priorities(priority: int) -> None:
    assert check_priority(priority) == priority


@pytest.mark.parametrize("priority", [-32_769, 32_768, 10**30, 1.0, True, "1", None])
def test_refused_priorities(priority: Any) -> None:
    with pytest.raises(InvalidOption, match="priority"):
        check_priority(priority)


@pytest.mark.parametrize("attempts", [0, -1, 1_001, True, 2.0, None])
def test_refused_attempts(attempts: Any) -> None:
    with pytest.raises(InvalidOption, match="max_attempts"):
        check_max_attempts(attempts)


def test_attempts_from_one_to_a_thousand() -> None:
    assert [check_max_attempts(attempts) for attempts in (1, 1_000)] == [1, 1_000]


def test_tags_keep_their_order_and_are_kept_once() -> None:
    assert check_tags(["b", "a", "b"]) == ("b", "a")
    assert check_tags(()) == ()
    assert len(check_tags(str(number) for number in range(20))) == 20


@pytest.mark.parametrize("tags", ["paid", 5, None, [str(number) for number in range(21)]])
def test_refused_tags(tags: Any) -> None:
    with pytest.raises(InvalidOption, match="tags"):
        check_tags(tags)


def test_a_bad_tag_is_refused_as_a_tag() -> None:
    with pytest.raises(InvalidName, match="tag"):
        check_tags(["ok", ""])
