"""Bad input is refused with a typed error before anything is written, with the same words on every backend."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stepwell import (
    InvalidName,
    InvalidOption,
    PayloadTooLarge,
    QueueNotFound,
    SerializationError,
    StepwellError,
    Store,
    UnknownStore,
    Worker,
    connect,
    handler,
)
from tests.queue.raw import everything_written

NAMES = [
    "",
    " ",
    "a b",
    "a/b",
    "a\nb",
    "a\0b",
    "\x1f",
    "a" * 256,
    "é?",
    "\u212b",
    "e\u0301",
    "a;b",
    'a"b',
    "a'b",
    "a\ud800",
    "😀",
    "a\\b",
]
SCHEMAS = ["", "A", "1a", "a-b", "a.b", "a b", 'a"b', "a" * 49, "é", "public;--", "a\0"]
KEYS: list[Any] = ["", "a" * 256, "a\0b", "\ud800", 7, b"k", ("k",)]


@dataclass
class Loop:
    inner: Any = None
    n: int = field(default=0)


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def _itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


PAYLOADS: list[tuple[Any, type[StepwellError], str]] = [
    (
        "x" * (1 << 20),
        PayloadTooLarge,
        "payload refused at `$`: 1048578 bytes, the limit is 1048576; store it elsewhere",
    ),
    ({"a": [1.0, float("nan")]}, SerializationError, "payload refused at `$.a[1]`: nan is no JSON number"),
    (float("inf"), SerializationError, "payload refused at `$`: inf is no JSON number"),
    ({"a": -float("inf")}, SerializationError, "payload refused at `$.a`: -inf is no JSON number"),
    ("a\0b", SerializationError, "payload refused at `$`: text with a NUL character"),
    ({"a\0": 1}, SerializationError, "payload refused at `$`: a key with a NUL character"),
    ({"a": ["\ud800"]}, SerializationError, "payload refused at `$.a[0]`: text with a lone surrogate"),
    ({"\udfff": 1}, SerializationError, "payload refused at"),
    (object(), SerializationError, "payload refused at `$`: builtins.object is not a type that JSON can hold"),
    ({"a": {"b": {1j}}}, SerializationError, "payload refused at `$.a.b[0]`"),
    (lambda: 1, SerializationError, "payload refused at `$`"),
    (int, SerializationError, "payload refused at `$`"),
    (Loop(inner=Loop(inner=object())), SerializationError, "payload refused at `$.inner.inner`"),
    (_nested(200), SerializationError, "nested deeper than 200"),
    (_nested(100_000), SerializationError, "nested deeper than 200"),
    (_itself(), SerializationError, "nested deeper than 200, or it contains itself"),
    ({1: "a", "1": "b"}, SerializationError, "two keys that are the same text in JSON"),
]

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
OPTIONS: list[tuple[dict[str, Any], type[StepwellError], str]] = [
    ({"delay": -1}, InvalidOption, "delay cannot be -1: a duration is between 0 and 100 years"),
    ({"delay": timedelta(days=-1)}, InvalidOption, "delay cannot be"),
    ({"delay": float("nan")}, InvalidOption, "delay cannot be nan"),
    ({"delay": float("inf")}, InvalidOption, "delay cannot be inf"),
    ({"delay": 10**30}, InvalidOption, "delay cannot be"),
    ({"delay": "soon"}, InvalidOption, "delay cannot be 'soon': write it like"),
    ({"delay": "-5s"}, InvalidOption, "delay cannot be '-5s'"),
    ({"delay": True}, InvalidOption, "delay cannot be True"),
    ({"delay": [1]}, InvalidOption, "delay cannot be [1]"),
    ({"run_at": datetime(2026, 1, 1)}, InvalidOption, "a moment needs a time zone"),  # noqa: DTZ001
    ({"run_at": 1_700_000_000}, InvalidOption, "run_at cannot be 1700000000: a moment is an aware datetime"),
    ({"run_at": "2026-01-01"}, InvalidOption, "run_at cannot be '2026-01-01'"),
    ({"run_at": WHEN, "delay": 1}, InvalidOption, "delay cannot be 1: give `delay` or `run_at`, not both"),
    ({"run_at": WHEN, "delay": 0}, InvalidOption, "give `delay` or `run_at`, not both"),
    ({"priority": 32_768}, InvalidOption, "priority cannot be 32768: it is between -32768 and 32767"),
    ({"priority": -32_769}, InvalidOption, "priority cannot be -32769"),
    ({"priority": 2**70}, InvalidOption, "priority cannot be"),
    ({"priority": 1.5}, InvalidOption, "priority cannot be 1.5: it is a whole number, not float"),
    ({"priority": "high"}, InvalidOption, "priority cannot be 'high'"),
    ({"priority": None}, InvalidOption, "priority cannot be None"),
    ({"priority": True}, InvalidOption, "priority cannot be True"),
    ({"max_attempts": 0}, InvalidOption, "max_attempts cannot be 0: it is between 1 and 1000"),
    ({"max_attempts": -1}, InvalidOption, "max_attempts cannot be -1"),
    ({"max_attempts": 1001}, InvalidOption, "max_attempts cannot be 1001"),
    ({"max_attempts": "3"}, InvalidOption, "max_attempts cannot be '3'"),
    ({"unique": "always"}, InvalidOption, "unique cannot be 'always': it is 'ever', 'unfinished' or 'waiting'"),
    ({"tags": "abc"}, InvalidOption, "tags cannot be 'abc'"),
    ({"tags": [str(n) for n in range(21)]}, InvalidOption, "at most 20 tags, not 21"),
    ({"tags": [""]}, InvalidName, "'' cannot name a tag"),
    ({"tags": ["a\0"]}, InvalidName, "cannot name a tag"),
    ({"tags": [1]}, InvalidName, "1 cannot name a tag: it is text, not int"),
    *[({"key": key}, InvalidName, "cannot name a key: it ") for key in KEYS],
]


def no_file_in(folder: Path) -> bool:
    return not list(folder.iterdir())


@handler("fresh")
async def fresh(payload: Any) -> None: ...


Case = tuple[str, Callable[[], Any], type[StepwellError], str]


def cases(store: Store) -> Iterator[Case]:
    enqueue: Any = store.enqueue
    many: Any = store.enqueue_many
    create: Any = store.create_queue
    for payload, error, words in PAYLOADS:
        yield f"payload {words}", partial(enqueue, "mail", payload), error, words
        yield f"handler {words}", partial(enqueue, fresh, payload), error, words
        yield f"batch {words}", partial(many, "mail", [1, payload]), error, words
    for options, error, words in OPTIONS:
        yield f"{options}", partial(enqueue, "mail", 1, **options), error, words
        yield f"handler {options}", partial(enqueue, fresh, 1, **options), error, words
    for key in KEYS:
        yield f"batch {key!r}", partial(many, fresh, [1, 2], keys=["good", key]), InvalidName, "cannot name a key"
    wrong = "cannot name a queue: a name is"
    for name in [*NAMES, None, 7, b"mail", ["mail"]]:
        yield f"create {name!r}", partial(create, name), InvalidName, wrong
    for name in NAMES:
        yield f"counts {name!r}", partial(store.counts, name), InvalidName, wrong
        yield f"enqueue {name!r}", partial(enqueue, name, 1), InvalidName, wrong
        yield f"batch {name!r}", partial(many, name, [1]), InvalidName, wrong
    unknown = "no queue is named 'unknown'; create it with `store.create_queue(name)`"
    yield "unknown", partial(enqueue, "unknown", 1), QueueNotFound, unknown
    yield "unknown many", partial(many, "unknown", [1]), QueueNotFound, unknown
    for keys in (["a"], ["a", "b", "c"], []):
        words = f"that is {len(keys)} for 2 payloads; give each its key"
        yield f"keys {keys}", partial(many, "mail", [1, 2], keys=keys), InvalidOption, words
    yield "many delay", partial(many, "mail", [1], delay=-1), InvalidOption, "delay cannot be -1"
    yield "many priority", partial(many, "mail", [1], priority=10**9), InvalidOption, "priority cannot be"


@pytest.mark.proves("V-08", "D-09", "security-09")
async def test_nothing_bad_is_written(store: Store) -> None:
    await store.create_queue("mail")
    before = await everything_written(store)
    wrong: list[str] = []
    for name, attempt, error, words in cases(store):
        try:
            answer: object = await attempt()
        except Exception as raised:  # noqa: BLE001 - whatever it is, it is compared
            if type(raised) is not error or words not in str(raised) or str(raised).isprintable() is False:
                wrong.append(f"{name!a}: {raised!r}, not {error.__name__}: {words}")
        else:
            wrong.append(f"{name!a}: accepted, {answer!r}")
    assert wrong == []
    assert await everything_written(store) == before
    assert [queue.name for queue in await store.queues()] == ["mail"]


async def test_an_option_that_there_is_not_is_refused_with_those_there_are(store: Store) -> None:
    await store.create_queue("mail")
    misspelt: Any = {"prority": 1}
    for call in (store.enqueue("mail", 1, **misspelt), store.enqueue_many("mail", [1], **misspelt)):
        with pytest.raises(TypeError, match=r"no option 'prority'; it takes .*priority, delay, run_at"):
            await call
    assert await store.counts("mail") == {}


async def test_the_payload_limit_is_the_stores_and_counts_bytes(store_url: str) -> None:
    async with connect(store_url, payload_limit=100) as store:
        await store.create_queue("mail")
        await store.enqueue("mail", "x" * 98)
        await store.enqueue("mail", "é" * 49)
        for payload in ("x" * 99, "é" * 50):
            with pytest.raises(PayloadTooLarge, match="the limit is 100") as caught:
                await store.enqueue("mail", payload)
            assert caught.value.limit == 100
        assert await store.counts("mail") == {"PENDING": 2}


@pytest.mark.proves("CF-08")
async def test_schema_names_are_chosen_and_checked(store_url: str, backend: str, tmp_path: Path) -> None:
    for name in SCHEMAS:
        with pytest.raises(InvalidName, match="cannot name a schema: it matches"):
            await connect(store_url, schema=name)
    assert backend == "postgres" or no_file_in(tmp_path)  # refused before the file was made
    async with connect(store_url, schema="a" * 48) as one, connect(store_url, schema="_b2") as two:
        await one.create_queue("mail")
        await one.enqueue("mail", 1)
        assert await two.queues() == []
        assert await one.counts("mail") == {"PENDING": 1}


BAD_QUERIES = [
    ("lease=soon", "lease cannot be 'soon': write it like"),
    ("lease=0", "lease cannot be '0': it is at least 0.1 s"),
    ("lease=-1", "lease cannot be '-1'"),
    ("timeout=", "timeout cannot be ''"),
    ("timeout=0.01", "timeout cannot be '0.01': it is at least 0.1 s"),
    ("pool=3", "pool cannot be '3': it is at least 4"),
    ("pool=many", "pool cannot be 'many': it is a whole number"),
    ("payload_limit=0", "payload_limit cannot be '0': it is at least 1"),
    ("install=perhaps", "install cannot be 'perhaps': it is true or false"),
    ("tenant=a%00b", "cannot name a tenant"),
    ("schema=a-b", "'a-b' cannot name a schema"),
]


async def test_bad_options_in_the_url_are_refused(store_url: str, backend: str, tmp_path: Path) -> None:
    for query, words in BAD_QUERIES:
        with pytest.raises((InvalidOption, InvalidName)) as caught:
            await connect(f"{store_url}{'&' if '?' in store_url else '?'}{query}")
        assert words in str(caught.value)
    assert backend == "postgres" or no_file_in(tmp_path)


@pytest.mark.parametrize(
    "url",
    ["oracle://db", "app.db", "/tmp/app.db", "sqlite://app.db", "sqlite:///", "sqlite:", "turso://", "://", "mysql:"],
)
async def test_a_url_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(UnknownStore, match=r"no store opens .*; use postgresql://"):
        await connect(url)


async def test_ids_that_are_none_find_nothing_or_are_refused(store: Store) -> None:
    for task_id in (0, -1, 2**62):
        assert await store.get(task_id) is None
        assert await store.requeue(task_id) == 0
        assert await store.drop(task_id) == 0


async def test_a_worker_that_is_refused_leaves_no_session(store: Store) -> None:
    with pytest.raises(InvalidOption):
        Worker(store, [fresh], concurrency=0)
    assert await everything_written(store) == (0, 0, 0)
