"""Errors carry facts, say what to do next, and never show a password."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest

import stepwell
from stepwell import errors
from stepwell.base.redaction import redact, redact_url
from stepwell.errors import (
    DriverMissing,
    ExecutionFailed,
    IdempotencyConflict,
    InvalidName,
    InvalidOption,
    LeaseLost,
    Paused,
    PayloadTooLarge,
    PermanentError,
    Refused,
    SerializationError,
    StepwellError,
    StoreClosed,
    StoreUnavailable,
    Timeout,
    TransientError,
    UnknownStore,
    WorkflowNotFound,
)

CLASSES = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, StepwellError)]

EXAMPLES: list[StepwellError] = [
    PermanentError("no such card"),
    TransientError("slow down", retry_after="30s"),
    Paused("waiting for legal", resume_condition="approved"),
    WorkflowNotFound("zip"),
    InvalidOption("lease", -1, "it is positive"),
    SerializationError("a set", path="$.a", what="result"),
    PayloadTooLarge(5, 4),
    IdempotencyConflict("mail", "order-7", 12),
    LeaseLost(3, 9),
    StoreUnavailable("connection reset"),
    Timeout("run 5 is not finished after 30 s", seconds=30),
    ExecutionFailed(5, {"type": "ValueError", "message": "no"}),
    StoreClosed(),
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_is_documented(cls: type[StepwellError]) -> None:
    assert cls.__doc__


def test_the_public_exceptions_carry_their_facts() -> None:
    assert WorkflowNotFound("zip").name == "zip"
    failed = ExecutionFailed(5, {"type": "ValueError", "message": "no"})
    assert (failed.run_id, failed.error) == (5, {"type": "ValueError", "message": "no"})
    assert SerializationError("a set").source == "a set"
    assert isinstance(Timeout(), TimeoutError)
    assert str(PermanentError("gone")) == "gone"
    transient = TransientError("slow down", retry_after=30)
    assert (str(transient), transient.retry_after) == ("slow down", 30.0)
    assert TransientError().retry_after is None
    paused = Paused("legal", resume_condition="approved")
    assert (str(paused), paused.resume_condition) == ("legal", "approved")


def test_transient_errors_take_any_duration() -> None:
    error = TransientError.with_backoff("1m", "later")
    assert (error.retry_after, str(error)) == (60.0, "later")
    with pytest.raises(InvalidOption, match="retry_after"):
        TransientError(retry_after=-1)


def test_a_subclass_of_a_transient_error_keeps_its_class() -> None:
    class RateLimitError(TransientError):
        pass

    assert isinstance(RateLimitError.with_backoff(3), RateLimitError)


def test_an_error_without_a_message_speaks_with_its_docstring() -> None:
    assert "stepwell.connect" in str(StoreClosed())
    assert str(PermanentError()) == "This can never succeed: do not try again."

    class DeclinedError(PermanentError):
        pass

    assert str(DeclinedError()) == "This can never succeed: do not try again."
    assert DeclinedError("a", 2).args == ("a", 2)


def test_messages_name_the_id_and_the_next_step() -> None:
    assert "task 12" in str(IdempotencyConflict("mail", "order-7", 12))
    assert "pip install asyncpg" in str(DriverMissing("postgres"))
    assert "session 3 no longer holds task 9" in str(LeaseLost(3, 9))
    assert "its tasks" in str(LeaseLost(3))
    assert "look first at what has none" in str(StoreUnavailable("reset"))
    assert "store.retry(5)" in str(ExecutionFailed(5))


def test_a_refused_value_cannot_break_a_log_line() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError

    text = str(InvalidName("queue", "a\nb\x1b[31m" + "x" * 1000, "no"))
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) < 200
    assert "<Rude>" in str(InvalidOption("lease", Rude(), "no"))


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_copying_and_other_processes(error: StepwellError) -> None:
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert twin.__dict__ == error.__dict__


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_is_named_as_it_is_imported(name: str) -> None:
    assert getattr(errors, name).__module__ == "stepwell.errors"


SECRET = "hunter2"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@db/shop",
        "postgresql://:hunter2@db/shop",
        "postgresql://ann:hunter2@x@db/shop",
        "postgresql://ann:a hunter2@db/shop",
        "postgresql://ann:a/hunter2@db/shop",
        "postgresql://db/shop?user=ann&password=hunter2&lease=2",
        "postgresql://db/shop?sslpassword=hunter2",
        "libsql://db?authToken=hunter2",
        "libsql://db?auth=hunter2&lease=2",
        "postgresql://db/shop?hunter2",
        "postgresql://db/shop?lease=2;key=hunter2",
        "postgresql://db/shop?listen=postgresql%3A%2F%2Fann%3Ahunter2%40db",
        "postgresql+psycopg://ann:hunter2@db/shop",
        "postgres//ann:hunter2@db/shop",
        "postgresql:/ann:hunter2@db/shop",
        "postgresql: //ann:hunter2@db/shop",
        "postgresql;//ann:a:hunter2@db/shop",
        "postgresql://ann:hunter2%40db/shop",
        "postgresql://ann:a?hunter2@db/shop",
        "postgresql://ann:a#hunter2@db/shop",
        "ann:a:hunter2@db/shop",
        "postgresql:ann:hunter2@db",
        "host=db password = hunter2",
    ],
)
def test_passwords_never_appear(url: str) -> None:
    assert SECRET not in redact_url(url)
    assert SECRET not in str(UnknownStore(url))
    assert SECRET not in UnknownStore(url).url


@pytest.mark.parametrize(
    "text",
    [
        "cannot reach postgresql://ann:hunter2@db/shop (refused)",
        "connection to host=db user=ann password=hunter2 failed",
        "connection to host=db password='a hunter2' failed",
        "cannot read postgresql:/ann:hunter2@db/shop",
        "pwd=hunter2;",
    ],
)
def test_a_driver_cannot_leak_a_password_through_our_errors(text: str) -> None:
    assert SECRET not in redact(text)
    assert SECRET not in str(StoreUnavailable(text))
    assert SECRET not in Refused(RuntimeError(text)).why


def test_what_is_no_secret_stays_readable() -> None:
    assert redact_url("postgresql://ann:x@db:5432/shop?lease=2") == "postgresql://ann:***@db:5432/shop?lease=2"
    for url in (
        "sqlite:///my files/app.db?lease=2",
        "sqlite:////var/c@d/app.db",
        "sqlite:///c:/app.db",
        "memory:?lease=2&keep=",
        "postgresql://ann@db:5432,other:5433/shop?sslmode=require&application_name=a+b",
        "postgresql://[::1]:5432/shop",
        "postgresql://db:5432",
    ):
        assert redact_url(url) == url
    assert redact_url("postgresql://ann:x@db/shop?a=1&pool=5") == "postgresql://ann:***@db/shop?a=***&pool=5"


@pytest.mark.proves("E-09")
def test_the_exceptions_that_users_meet_are_public_and_carry_what_they_tell() -> None:
    assert stepwell.WorkflowNotFound("zip_files").name == "zip_files"
    failed = stepwell.ExecutionFailed(7, {"type": "ValueError", "message": "no"})
    assert (failed.run_id, failed.error) == (7, {"type": "ValueError", "message": "no"})
    assert isinstance(stepwell.SerializationError("a date"), stepwell.StepwellError)
    assert isinstance(stepwell.Timeout("late"), TimeoutError)
    assert stepwell.TransientError("busy", retry_after=30).retry_after == 30
    assert str(stepwell.PermanentError("gone")) == "gone"
    paused = stepwell.Paused("ask the boss", resume_condition="approved")
    assert (str(paused), paused.resume_condition) == ("ask the boss", "approved")
    assert stepwell.PauseError is stepwell.Paused
