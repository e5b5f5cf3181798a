"""The password of a URL appears nowhere: not in errors, their causes, logs, reprs or rows."""

import asyncio
import logging
import traceback
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from stepwell import StepwellError, StoreUnavailable, UnknownStore, Worker, connect, connect_with, handler
from stepwell.base.telemetry import Telemetry
from stepwell.connect import Config
from tests.ground.ports import free_port

SECRET = "h0rse-b4ttery"


def told(error: BaseException, depth: int = 6) -> str:
    """Everything that a person could see of an exception."""
    parts = [str(error), repr(error), str(error.args), str(vars(error)), "".join(traceback.format_exception(error))]
    causes = [cause for cause in (error.__cause__, error.__context__) if cause is not None and depth]
    parts.extend(told(cause, depth - 1) for cause in causes)
    return "\n".join(parts)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:{secret}@127.0.0.1:{port}/db",
        "postgresql://ann:{secret}@127.0.0.1:{port}/db?timeout=1&lease=3",
        "postgresql://127.0.0.1:{port}/db?user=ann&password={secret}",
        "postgresql://ann:{secret}@no-such-host.invalid/db",
    ],
)
async def test_a_wrong_address_is_a_typed_error_without_the_password(
    url: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    events: list[Any] = []
    told_by = Telemetry()
    told_by.subscribe(events.append)
    url = url.format(secret=SECRET, port=free_port())
    config = Config(url, timeout=1, telemetry=told_by)
    opening = connect_with(config)
    with pytest.raises(StoreUnavailable) as caught:
        await opening
    out, err = capfd.readouterr()
    seen = "\n".join([told(caught.value), repr(config), repr(opening), repr(events), caplog.text, out, err])
    assert SECRET not in seen


async def test_a_refused_password_is_not_told(
    postgres_url: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    parts = urlsplit(postgres_url)
    host = parts.netloc.rpartition("@")[2]
    url = urlunsplit(parts._replace(netloc=f"nobody-at-all:{SECRET}@{host}"))
    with pytest.raises(StepwellError) as caught:
        await connect(url, timeout=2)
    out, err = capfd.readouterr()
    assert SECRET not in "\n".join([told(caught.value), caplog.text, out, err])


@pytest.mark.parametrize(
    "url", ["oracle://ann:{}@host/db", "postgresq://ann:{}@host/db", "postgresql+asyncpg://ann:{}@host", "ann:{}@host"]
)
async def test_a_url_of_no_store_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(UnknownStore) as caught:
        await connect(url.format(SECRET))
    if "//" in url:  # without a scheme nobody can tell a password from a path
        assert SECRET not in told(caught.value)


@pytest.mark.parametrize("host", ["[::1", "ho\u2100st"])
async def test_a_url_that_cannot_be_read_is_refused_without_the_password(host: str) -> None:
    with pytest.raises(UnknownStore) as caught:
        await connect(f"postgresql://ann:{SECRET}@{host}/db")
    assert SECRET not in told(caught.value)


async def test_an_open_store_shows_no_password(
    postgres_url: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The server trusts everybody here, so any password opens it."""
    caplog.set_level(logging.DEBUG)
    parts = urlsplit(postgres_url)
    user, host = parts.username, parts.netloc.rpartition("@")[2]
    url = urlunsplit(parts._replace(netloc=f"{user}:{SECRET}@{host}"))

    @handler("mail")
    async def send(number: int) -> None:
        raise ValueError

    async with connect(url) as store:
        await store.enqueue(send, 1)
        worker = Worker(store, [send])
        await asyncio.wait_for(worker.drain(), 10)
        seen = [
            repr(each)
            for each in (store, worker, send, store.database.driver, store.database.options, *await store.workers())
        ]
    out, err = capfd.readouterr()
    assert SECRET not in "\n".join([*seen, caplog.text, out, err])


async def test_a_bulk_that_the_database_refuses_tells_its_payloads_to_nobody(postgres_url: str) -> None:
    """Postgres quotes the line of a COPY at which something went wrong, in its log too."""
    body = "begin raise 'not today' using errcode = 'check_violation'; end"
    refuse = (
        f"create function public.refuse() returns trigger language plpgsql as $$ {body} $$",
        "create trigger refuse before insert on stepwell.task for each row execute function public.refuse()",
    )
    async with connect(postgres_url) as store:
        await store.create_queue("q")
        async with store.transaction() as tx:
            for statement in refuse:
                await tx.execute(statement)
        with pytest.raises(StepwellError, match="not today") as caught:
            await store.enqueue_many("q", [{SECRET: SECRET}] * 3)
    cause = caught.value.__cause__
    assert "COPY task, line 1" in getattr(cause, "context", ""), "it is written in another way: void"
    assert SECRET not in told(caught.value) + str(cause.__dict__)
