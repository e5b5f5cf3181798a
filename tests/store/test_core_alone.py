"""With its optional parts switched off the core does its work, and asks the database for nothing on their behalf."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Never

import pytest

from stepwell import (
    CancelAnswer,
    Decider,
    Decision,
    Engine,
    PermanentError,
    Retry,
    Store,
    Worker,
    connect,
    current,
    handler,
    step,
    wait,
    workflow,
)
from stepwell.store.driver import Call
from stepwell.store.embedded.render import Rendered
from tests.ground.waiting import until

OFF: Mapping[str, Any] = {"audit": "off", "listen": False}  # outbox, projections, observation: nobody has asked for any
PARTS = {  # what a statement for an optional part looks like; what removes old rows of one is upkeep, and no such
    "audit": r"insert into \S*audit\b",
    "notifications": r"\bpg_notify\b|\blisten\b",
    "outbox": r"\boutbox\b",
    "projections": r"\bprojection\b",
    "observation": r"\bobservation\b",
}
NOW = Retry(2, base="1ms")

CORE = [f"tests/{folder}" for folder in ("deciders", "queue", "results", "runs", "waiting", "workflows")]
ROOT = Path(__file__).parents[2]

tried: set[str] = set()


@handler("mails", retry=NOW)
async def mail(address: str) -> None:
    if "@" not in address:
        raise PermanentError(f"{address} is no address")
    if address not in tried:
        tried.add(address)
        raise ConnectionError("the server is busy")


@step(retry=NOW)
async def charge(cents: int) -> int:
    if current().attempt == 1:
        raise ConnectionError("the bank is busy")
    return cents


@workflow
async def pack(parcel: str) -> str:
    return f"{parcel} is packed"


@workflow
async def sell(cents: int) -> str:
    await charge(cents)
    packed: str = await pack(await wait("parcel", str))
    return packed


@dataclass(frozen=True)
class Push:
    door: str


@dataclass(frozen=True)
class Opened:
    pass


class Doors(Decider[bool, Push, Opened, Never]):
    type, route = "door", "door"

    def initial(self) -> bool:
        return False

    def evolve(self, state: bool, event: Opened) -> bool:
        return True

    def decide(self, state: bool, input: Push, now: datetime) -> Decision[Opened, Never, Never]:
        return Decision.event(Opened())


Said = Callable[[], list[str]]


@pytest.fixture
def said(backend: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Said:
    """The text of every statement that the database was asked to run: on the wire, or where it is handed over."""
    if backend == "postgres":
        proxy = request.getfixturevalue("proxy")
        return lambda: list(proxy.statements)
    texts: list[str] = []
    each = Rendered.each

    def overheard(self: Rendered, call: Call, rows: Any) -> Any:
        said = each(self, call, rows)
        texts.extend(text for text, _ in said)
        return said

    monkeypatch.setattr(Rendered, "each", overheard)
    return lambda: list(texts)


@pytest.fixture
def url(backend: str, store_url: str, request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue("proxied_url") if backend == "postgres" else store_url


async def whole_life(store: Store) -> None:
    """Messages that succeed, are tried again and die; a run that fails, waits, has a child; one that is cancelled."""
    tried.clear()
    engine = Engine(store).register(Doors())
    right, wrong = await store.enqueue_many(mail, ["ada@example.org", "nobody"])
    async with Worker(store, [mail, sell, pack, engine]):
        sold, given_up = [await sell.trigger(1900).options(require_worker="ignore").execute(store) for _ in range(2)]
        assert await store.signal(sold, "parcel", "lamp")
        assert await store.result(sold, timeout=20) == "lamp is packed"
        await until(lambda: _has(store, given_up, "PAUSED"))
        assert await store.cancel(given_up) == CancelAnswer.CANCELLED
        assert (await engine.execute(Push("front"))).outcome == "applied"
        await until(lambda: _has(store, right, "SUCCESS"))
        await until(lambda: _has(store, wrong, "ERROR"))


async def _has(store: Store, task_id: int, status: str) -> bool:
    task = await store.get(task_id)
    return task is not None and task.status == status


def asked_for(texts: list[str]) -> set[str]:
    return {part for part, sign in PARTS.items() if any(re.search(sign, text, re.IGNORECASE) for text in texts)}


@pytest.mark.proves("G-06")
async def test_the_core_asks_for_nothing_that_is_switched_off(url: str, said: Said) -> None:
    async with connect(url, install=True):
        pass  # the tables of all parts are made: they are one schema
    before = len(said())
    async with connect(url, **OFF) as store:
        await whole_life(store)
        assert await store.history(1) == [], "nothing was noted"
    texts = said()[before:]
    assert len(texts) > 20
    assert asked_for(texts) == set()


async def test_what_is_switched_on_is_seen(url: str, said: Said, backend: str) -> None:
    """The signs are those that the statements have, or the test above would say nothing."""
    async with connect(url) as store:
        await whole_life(store)
    expected = {"audit", "notifications"} if backend == "postgres" else {"audit"}
    assert expected <= asked_for(said())


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.proves("G-06")
def test_the_suite_of_the_core_passes_without_them(backend: str) -> None:
    """The conformance suite, in a process whose stores have all of it switched off."""
    tests = [sys.executable, "-m", "pytest", "-q", "-n", "2", *CORE, "-m", "not soak", "-k", backend]
    ran = subprocess.run(
        tests, cwd=ROOT, env=os.environ | {"STEPWELL_TEST_BARE": "1"}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None
    assert int(passed[1]) > 500, "void: most of the suite was left out"
