"""What an exception costs, as a pure function, and how it is written."""
# ruff: noqa: N818 - a user's own exceptions have names of their own

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.base.backoff import Retry
from stepwell.errors import PayloadTooLarge, PermanentError, SerializationError, TransientError
from stepwell.records import RunStatus
from stepwell.store.rows import Settlement
from stepwell.values.codec import decode
from stepwell.work.outcome import Again, Alone, Done, Failed, Outcome, Released, is_permanent, judge, settlement_of


class Soft(PermanentError): ...


class Hard(OSError): ...


POLICY = Retry(5, base=2, cap=60, jitter=0.5, permanent=(Hard, LookupError), transient=(Soft, IndexError))


@pytest.mark.parametrize(
    ("error", "permanent"),
    [
        (ValueError(), False),
        (OSError(), False),
        (TransientError(), False),
        (PermanentError(), True),
        (SerializationError("x"), True),
        (PayloadTooLarge(2, 1), True),
        (Hard(), True),
        (KeyError(), True),
        (IndexError(), False),
        (Soft(), False),
        (SystemExit(1), False),
    ],
)
def test_what_the_user_mapped_goes_before_what_the_library_knows(error: BaseException, permanent: bool) -> None:
    assert is_permanent(error, POLICY) is permanent
    outcome = judge(error, 1, 5, POLICY, 0.0)
    assert type(outcome) is (Failed if permanent else Again)


@pytest.mark.parametrize(("attempt", "delay"), [(1, 2.0), (2, 4.0), (3, 8.0), (4, 16.0)])
def test_the_delay_grows_with_the_attempt(attempt: int, delay: float) -> None:
    first, last = judge(ValueError("no"), attempt, 9, POLICY, 0.0), judge(ValueError("no"), attempt, 9, POLICY, 1.0)
    assert isinstance(first, Again)
    assert isinstance(last, Again)
    assert (first.delay, last.delay) == (delay, 1.5 * delay)
    assert first.error["message"] == "no"


@given(attempt=st.integers(1, 1000), most=st.integers(1, 1000), randomness=st.floats(0, 1))
def test_the_tasks_own_attempts_decide_not_the_policys(attempt: int, most: int, randomness: float) -> None:
    outcome = judge(ValueError(), attempt, most, POLICY, randomness)
    assert type(outcome) is (Failed if attempt >= most else Again)
    assert not isinstance(outcome, Again) or 2 <= outcome.delay <= 60


def test_a_transient_error_says_when_but_not_how_often() -> None:
    assert judge(TransientError("x", retry_after="1h"), 1, 2, POLICY, 0.5) == Again(
        3600.0, {"type": "TransientError", "message": "x", "retry_after": 3600.0, "traceback": "TransientError: x\n"}
    )
    assert isinstance(judge(TransientError("x", retry_after=0), 1, 2, POLICY, 0.5), Again)
    assert isinstance(judge(TransientError("x", retry_after=5), 2, 2, POLICY, 0.5), Failed)
    mapped = Retry(3, permanent=(TransientError,))
    assert isinstance(judge(TransientError("x", retry_after=5), 1, 3, mapped, 0.5), Failed)


@pytest.mark.parametrize("spoiled", [-1, "soon", float("nan"), object(), [], True])
def test_a_spoiled_delay_falls_back_to_the_policy(spoiled: Any) -> None:
    error = TransientError("x")
    error.retry_after = spoiled
    assert judge(error, 1, 3, POLICY, 0.0) == Again(2.0, judge(error, 3, 3, POLICY, 0.0).error)  # type: ignore[union-attr]


def test_each_outcome_is_written_in_its_own_way() -> None:
    error = {"type": "ValueError", "message": "a\nb", "traceback": ""}
    text = json.dumps(error, separators=(",", ":"))
    written: list[tuple[Outcome, Settlement]] = [
        (Done(), Settlement(RunStatus.SUCCESS)),
        (Done("[1]"), Settlement(RunStatus.SUCCESS, output="[1]")),
        (Again(1.5, error), Settlement(RunStatus.PENDING, delay=1_500_000, error=text, last_error="ValueError: a b")),
        (Failed(error), Settlement(RunStatus.ERROR, error=text, last_error="ValueError: a b")),
        (
            Alone(2.0, error),
            Settlement(
                RunStatus.PENDING,
                delay=2_000_000,
                attempt_back=True,
                alone=True,
                error=text,
                last_error="ValueError: a b",
            ),
        ),
        (Failed(error, "why"), Settlement(RunStatus.ERROR, error=text, last_error="why")),
        (Released(), Settlement(RunStatus.PENDING, attempt_back=True)),
    ]
    for outcome, settlement in written:
        assert settlement_of(outcome) == settlement


@given(st.text(alphabet=st.characters(codec=None), max_size=300), st.integers(1, 400))
def test_any_message_can_be_written(message: str, times: int) -> None:
    settlement = settlement_of(judge(ValueError(message * times), 1, 3, POLICY, 0.0))
    assert settlement.error is not None
    assert settlement.last_error is not None
    assert decode(settlement.error)["type"] == "ValueError"
    assert len(settlement.last_error) <= 500
    for text in (settlement.error, settlement.last_error):
        assert "\0" not in text
        text.encode()
