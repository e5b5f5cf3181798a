"""Rows by their columns, and the text that COPY reads."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.records import TaskKind
from stepwell.store.draft import Alike, examples, inputs
from stepwell.store.driver import Columns, Same, Value
from stepwell.store.postgres import compose
from stepwell.store.postgres.compose import copied
from stepwell.store.rows import NewTask

ESCAPED = {r"\\": "\\", r"\t": "\t", r"\n": "\n", r"\r": "\r"}
CELL = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.sampled_from("\\Ntnr%s\t\n\r .1é"))


def test_a_column_with_one_value_has_it_in_every_row() -> None:
    rows = Columns([[1, 2, 3], Same("x"), ["a", "b", "c"], Same(None)])
    assert list(rows) == [(1, "x", "a", None), (2, "x", "b", None), (3, "x", "c", None)]
    assert (len(rows), rows[1], rows[1:]) == (3, (2, "x", "b", None), [(2, "x", "b", None), (3, "x", "c", None)])


@given(st.lists(st.tuples(st.integers(), CELL, CELL), min_size=1, max_size=7), CELL)
async def test_what_copy_reads_is_what_was_given(given: list[tuple[int, Value, Value]], same: Value) -> None:
    ids, first, second = (list(column) for column in zip(*given, strict=True))
    text = b"".join([piece async for piece in copied(Columns([ids, first, Same(same), second]))]).decode()
    assert text.endswith("\n")
    read = [[_read(cell) for cell in line.lstrip(" ").split("\t")] for line in text.removesuffix("\n").split("\n")]
    assert read == [[_said(cell) for cell in (one, two, same, three)] for one, two, three in given]


async def test_rows_are_sent_in_pieces_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compose, "PIECE", 1000)
    texts = ["x"] * 10 + ["y" * 900] * 3 + ["z" * 5000]
    pieces = [piece async for piece in copied(Columns([list(range(14)), Same("same"), texts]))]
    assert b"".join(pieces).decode().split() == [
        word for number, text in enumerate(texts) for word in (str(number), "same", text)
    ]
    assert all(len(piece) <= 1000 + 1100 for piece in pieces[:-2])
    assert [piece async for piece in copied(Columns([[], Same("x"), []]))] == [b""]


@pytest.mark.parametrize("same", ["", "%", "x" * 30, "x" * 300])
async def test_the_last_cell_is_not_among_the_bytes_that_are_quoted(same: str) -> None:
    [piece] = [piece async for piece in copied(Columns([[1, 2**62], Same(same), ["secret", "secret"]]))]
    assert all(b"secret" not in line[: compose.QUOTED] for line in piece.splitlines())


def test_tasks_that_are_alike_are_those_tasks() -> None:
    like = NewTask(TaskKind.MESSAGE, 0, "q", "", priority=7)
    several = Alike(like, ["1", "2", "3"])
    expected = [msgspec.structs.replace(like, input=text) for text in ("1", "2", "3")]
    assert (list(several), list(several[1:]), several[-1]) == (expected, expected[1:], expected[-1])
    assert isinstance(several[:2], Alike)
    assert (examples(several), inputs(several)) == ([like], ["1", "2", "3"])
    assert (examples(expected), inputs(expected)) == (expected, ["1", "2", "3"])


def _read(cell: str) -> str | None:
    """A cell as Postgres reads it: a backslash and what follows it are one character."""
    if cell == r"\N":
        return None
    characters, read = iter(cell), ""
    for character in characters:
        read += character if character != "\\" else ESCAPED[character + next(characters)]
    return read


def _said(cell: Value) -> str | None:
    return None if cell is None else str(cell)
