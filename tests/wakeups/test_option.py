"""The option `listen`: as an argument, in the URL's query, and never shown with its password."""

from typing import Any
from urllib.parse import quote

import pytest

from stepwell import Config, InvalidOption, UnknownStore, Worker, connect, connect_with, handler
from stepwell.base.events import ListenerLost
from stepwell.base.telemetry import Telemetry
from tests.ground.ports import free_port
from tests.ground.waiting import until
from tests.queue.test_secrets import SECRET, told

DIRECT = f"postgresql://ann:{SECRET}@db:5432/app"


@pytest.mark.proves("CF-06")
@pytest.mark.parametrize(
    ("url", "options", "listens", "where"),
    [
        ("memory:", {}, True, None),
        ("sqlite:///a.db?listen=false", {}, False, None),
        ("sqlite:///a.db?listen=no", {"listen": True}, False, None),
        ("sqlite:///a.db", {"listen": False}, False, None),
        ("postgresql://h/db", {"listen": DIRECT}, True, DIRECT),
        (f"postgresql://h/db?listen={quote(DIRECT, safe='')}&lease=5", {}, True, DIRECT),
        ("postgresql://h/db?listen=off", {"listen": DIRECT}, False, None),
    ],
)
def test_where_to_listen(url: str, options: dict[str, Any], listens: bool, where: str | None) -> None:
    config = Config(url, **options)
    assert (config.options.listen, config.listen_url) == (listens, where)
    assert "listen" not in config.url


@pytest.mark.parametrize(
    ("url", "listen"),
    [
        ("sqlite:///a.db", DIRECT), ("memory:", DIRECT), ("postgresql://h/db", "sqlite:///a.db"),
        ("postgresql://h/db", f"mysql://ann:{SECRET}@h"), ("memory:", "perhaps"), ("memory:", None), ("memory:", 2),
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_listened_to_is_refused(url: str, listen: Any) -> None:
    with pytest.raises(InvalidOption, match=r"^listen cannot be .*: it is true") as caught:
        Config(url, listen=listen)
    assert SECRET not in told(caught.value)


def test_the_password_of_a_direct_address_is_not_shown() -> None:
    query = quote(DIRECT, safe="")
    config = Config(f"postgresql://h/db?listen={query}")
    assert SECRET not in f"{config!r} {connect_with(config)!r} {config.options!r}"
    with pytest.raises(UnknownStore) as caught:
        Config(f"postgresql://[::1/db?listen={query}")
    assert SECRET not in told(caught.value)


@pytest.mark.backends("postgres", reason="the others have no address to listen at")
@pytest.mark.usefixtures("backend")
@pytest.mark.proves("rule-17")
async def test_a_direct_address_that_does_not_answer_is_told_once_without_the_password(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[Any] = []
    done: list[int] = []
    telemetry = Telemetry()
    telemetry.subscribe(events.append)

    @handler("mail")
    async def send(number: int) -> None:
        done.append(number)

    listen = f"postgresql://ann:{SECRET}@127.0.0.1:{free_port()}/app"
    async with connect(store_url, listen=listen, telemetry=telemetry) as store, Worker(store, [send]):
        shown = repr(store) + repr(store.database.driver) + repr(store.database.options)
        await until(lambda: any(isinstance(event, ListenerLost) for event in events))
        await store.enqueue(send, 1)
        await until(lambda: done == [1])
    assert sum(isinstance(event, ListenerLost) for event in events) == 1
    assert SECRET not in shown + repr(events) + caplog.text
