"""Every exception can be recorded, whatever it is made of."""
# ruff: noqa: N818, TRY301 - exceptions as users write them

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import SerializationError, TransientError
from stepwell.values.codec import check_type, decode, encode
from stepwell.values.exceptions import ERROR_LIMIT, error_of, one_line

E = TypeVar("E", bound=BaseException)


class Declined(Exception):
    def __init__(self, message: str, code: object = None) -> None:
        super().__init__(message)
        self.code = code


def raised(error: E) -> E:
    try:
        raise error
    except BaseException:  # noqa: BLE001 - any kind, on purpose
        return error


@pytest.mark.proves("E-10")
def test_an_error_is_json_with_type_message_code_and_retry_after() -> None:
    declined = error_of(raised(Declined("card declined", "card_declined")))
    assert {key: declined[key] for key in ("type", "message", "code")} == {
        "type": "Declined",
        "message": "card declined",
        "code": "card_declined",
    }
    assert "retry_after" not in declined
    assert "test_codec_errors.py" in declined["traceback"]
    assert decode(encode(declined)) == declined
    assert error_of(TransientError("slow", retry_after="1m"))["retry_after"] == 60.0
    assert "code" not in error_of(ValueError("x"))


@pytest.mark.proves("E-10")
def test_a_group_of_errors_tells_what_is_in_it() -> None:
    inner = ExceptionGroup("inside", [raised(TimeoutError("slow")), ExceptionGroup("deeper", [ValueError("x")])])
    told = error_of(raised(ExceptionGroup("outside", [raised(Declined("no certificate")), inner])))
    assert told["message"] == (
        "outside (2 sub-exceptions): Declined: no certificate; ExceptionGroup: inside (2 sub-exceptions): "
        "TimeoutError: slow; ExceptionGroup: deeper (1 sub-exception): ValueError: x"
    )
    assert [one in told["traceback"] for one in ("in it\nDeclined: no cert", "in it\nTimeoutError: slow")] == [True] * 2
    many = error_of(ExceptionGroup("many", [ValueError(str(number)) for number in range(1000)]))
    assert ("ValueError: 4" in many["message"], "ValueError: 5" in many["message"]) == (True, False)
    deep: Exception = ValueError("bottom")
    for _ in range(500):
        deep = ExceptionGroup("down", [deep])
    assert "bottom" not in error_of(deep)["message"]


@pytest.mark.proves("E-10")
def test_the_last_error_is_one_line_of_it() -> None:
    assert one_line(error_of(Declined("card\n  declined\x1b[0m\t!"))) == "Declined: card declined [0m !"
    assert one_line(error_of(ValueError())) == "ValueError"
    assert len(one_line(error_of(ValueError("x" * 10_000)))) == 500
    assert one_line({}) == "error"


@given(st.text(st.characters(), max_size=200), st.one_of(st.none(), st.integers(), st.text(st.characters())))
def test_any_text_can_be_recorded(message: str, code: object) -> None:
    told = error_of(raised(Declined(message, code)))
    assert decode(encode(told)) == told
    line = one_line(told)
    assert len(line) <= 500
    assert line.isprintable()


@pytest.mark.proves("security-09")
@pytest.mark.parametrize("letter", ["x", "é", "\0", "\ud800", "😀"])
def test_a_huge_message_is_cut_with_a_mark(letter: str) -> None:
    told = error_of(raised(ValueError(letter * 10_000_000)))
    assert len(told["message"].encode()) <= ERROR_LIMIT
    assert "characters in all)" in told["message"]
    assert len(encode(told)) < 200_000


class Mute(Exception):
    @property
    def code(self) -> str:
        raise RuntimeError("no code")

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


@pytest.mark.parametrize(
    "error",
    [
        Mute(),
        KeyboardInterrupt(),
        SystemExit(3),
        ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
        Declined("x", True),
        Declined("x", object()),
        Declined("x", 10**30),
    ],
    ids=lambda error: type(error).__name__,
)
def test_odd_exceptions_are_recorded_too(error: BaseException) -> None:
    told = error_of(raised(error))
    assert told["type"] == type(error).__name__
    assert encode(told)


def test_an_error_that_recursed_to_the_end_is_recorded() -> None:
    def forever() -> None:
        forever()

    with pytest.raises(RecursionError) as caught:
        forever()
    assert len(encode(error_of(caught.value))) < 20_000


def test_odd_retry_after_is_left_out() -> None:
    error = ValueError("x")
    for odd in (-1, float("nan"), "soon", None, object()):
        error.retry_after = odd  # type: ignore[attr-defined]
        assert "retry_after" not in error_of(error)


def test_the_traceback_tells_what_led_to_it() -> None:
    def charge() -> None:
        try:
            raise KeyError("card")
        except KeyError as missing:
            raise Declined("no card") from missing

    with pytest.raises(Declined) as caught:
        charge()
    text = error_of(caught.value)["traceback"]
    assert text.index("Declined: no card") < text.index("because of\nKeyError: 'card'")


@dataclass
class _Paid:
    cents: int


@dataclass
class _Owed:
    cents: int


def test_a_union_of_two_classes_is_refused_with_what_to_do() -> None:
    with pytest.raises(SerializationError, match="which class it was: make them msgspec structs with"):
        check_type(_Paid | _Owed)
