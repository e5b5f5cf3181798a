"""Webhooks: what is posted is read and verified by other people's code, and an answer decides what becomes of it."""

from __future__ import annotations

import base64
import json
import logging
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
import standardwebhooks
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import HTTPMessage, from_binary_event, from_http_event

from stepwell import InvalidOption, Outbox, PermanentError, Store, TransientError, Webhook, Worker
from stepwell.base.clock import TestClock
from stepwell.base.events import InternalTaskFailed
from stepwell.sinks.guard import is_public
from stepwell.sinks.webhook import pause_of, posting_of, verdict
from tests.outbox.kit import drained, statuses
from tests.outbox.receiver import Request, answering, receiving

OLD, NEW = (f"whsec_{base64.b64encode(bytes([one]) * 32).decode()}" for one in (1, 2))
PRIVATE = """
127.0.0.1 10.1.2.3 192.168.0.1 172.16.0.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1
255.255.255.255 240.0.0.1 ::1 :: fe80::1 fe80::1%eth0 fc00::1 ff02::1 ::ffff:127.0.0.1
64:ff9b::7f00:1 64:ff9b:1::1 2002:7f00:1:: 2001:db8::1 what
"""
NAMES = 'Zoë "50%"'


def crm(url: str, **options: Any) -> Outbox:
    webhook = Webhook(url, **options)
    if options.get("mode") == "batched":
        return Outbox("crm", webhook, batch=100, retry=3, concurrency=1)
    return Outbox("crm", webhook, retry=3)


def sdk_reads(request: Request) -> list[BaseCloudEvent]:
    """The events of a request, as the official SDK reads them; it knows no batches, so it gets each of one."""
    kind = request.headers["content-type"]
    if not kind.startswith("application/cloudevents-batch+json"):
        return [from_http_event(HTTPMessage(request.headers, request.body))]
    single = {"content-type": "application/cloudevents+json"}
    bodies = [json.dumps(one).encode() for one in json.loads(request.body)]
    return [from_http_event(HTTPMessage(single, one)) for one in bodies]


@pytest.mark.proves("O-06", "O-11")
@pytest.mark.parametrize("mode", ["structured", "binary", "batched"])
async def test_the_official_sdk_reads_what_is_posted(store: Store, mode: Any) -> None:
    async with receiving() as receiver:
        outbox = crm(receiver.url, mode=mode, secret=NEW)
        await drained(store, outbox)
        data = {"name": NAMES, "list": [1, None, True]}
        said: dict[str, Any] = {"subject": f"order/{NAMES}", "ordered": True, "extensions": {"traceparent": NAMES}}
        first = await store.emit("order.placed.v1", data, **said)
        second = await store.emit("order.paid.v1", None)
        await drained(store, outbox)
    events = {one.get_id(): one for request in receiver.requests for one in sdk_reads(request)}
    assert events.keys() == {first, second}
    placed = events[first]
    assert (placed.get_type(), placed.get_source(), placed.get_specversion()) == ("order.placed.v1", "/stepwell", "1.0")
    assert placed.get_subject() == f"order/{NAMES}"
    assert placed.get_extension("traceparent") == NAMES
    assert placed.get_extension("partitionkey") == f"order/{NAMES}"
    assert placed.get_datacontenttype() == "application/json"
    assert placed.get_data() == data
    assert events[second].get_data() is None
    assert len(receiver.requests) == (1 if mode == "batched" else 2)


async def test_the_sdk_reads_a_binary_message_by_its_headers() -> None:
    async with receiving() as receiver:
        webhook = Webhook(receiver.url, mode="binary")
        await webhook(event := _event("one"))
        await webhook.aclose()
    [request] = receiver.requests
    assert request.body == b'"one"'
    read = from_binary_event(HTTPMessage(request.headers, request.body))
    assert (read.get_id(), read.get_time()) == (event.id, event.time)


@pytest.mark.proves("O-11")
@pytest.mark.parametrize("mode", ["structured", "binary", "batched"])
async def test_a_signature_is_verified_by_either_secret_while_one_is_rotated(store: Store, mode: Any) -> None:
    async with receiving() as receiver:
        outbox = crm(receiver.url, mode=mode, secret=(NEW, OLD))
        await drained(store, outbox)
        event_id = await store.emit("order.placed.v1", {"name": NAMES})
        await drained(store, outbox)
    [request] = receiver.requests
    for secret in (NEW, OLD):
        standardwebhooks.Webhook(secret).verify(request.body, request.headers)
    strange = base64.b64encode(b"x" * 32).decode()
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(strange).verify(request.body, request.headers)
    assert request.headers["webhook-id"] == event_id
    assert request.headers["webhook-signature"].count("v1,") == 2


@pytest.mark.proves("O-11", "O-05")
def test_a_batch_has_one_id_in_any_order_and_no_other_batch_has_it() -> None:
    one, two, three = (replace(_event(1), id=id_) for id_ in ("1", "2", "3"))
    assert posting_of([one, two], "batched").id == posting_of([two, one], "batched").id
    batches = [[one], [one, two], [one, two, three], [two, three]]
    assert len({posting_of(each, "batched").id for each in batches}) == len(batches)
    assert posting_of([one], "batched").id == "1"


@pytest.mark.proves("O-03", "O-11")
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(answering(500), id="fails"),
        pytest.param(answering(408), id="is too slow"),
        pytest.param(answering(425), id="is too early"),
        pytest.param(answering(429), id="is busy"),
        pytest.param(b"", id="hangs"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", id="lies: 200, then a reset"),
        pytest.param(b"HTTP/1.1 200", id="breaks off"),
        pytest.param(b"what?\r\n\r\n", id="speaks no HTTP"),
    ],
)
async def test_what_may_come_right_is_posted_again_with_the_same_id(
    store: Store, clock: TestClock, answer: bytes
) -> None:
    async with receiving(answer, resets=bool(answer)) as receiver:
        outbox = crm(receiver.url, secret=NEW, timeout=0.5 if not answer else 10)
        await drained(store, outbox)
        event_id = await store.emit("a", 1)
        await drained(store, outbox)
        assert await statuses(store) == {"PENDING": 1}
        clock.advance(10)
        await drained(store, outbox)
    assert await statuses(store) == {"SUCCESS": 1}
    assert [one.headers["webhook-id"] for one in receiver.requests] == [event_id] * 2
    assert receiver.requests[0].body == receiver.requests[1].body


@pytest.mark.proves("O-03", "O-12")
@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 410, 422])
async def test_what_cannot_come_right_is_a_dead_letter_at_once(store: Store, status: int) -> None:
    async with receiving(answering(status, "location: http://127.0.0.1:1/elsewhere")) as receiver:
        outbox = crm(receiver.url)
        await drained(store, outbox)
        await store.emit("a", 1)
        await store.emit("a", 2)
        await drained(store, outbox)
    assert await statuses(store) == {"ERROR": 1, "SUCCESS": 1}
    [letter] = await store.dead_letters()
    assert (letter.attempt, str(status) in (letter.last_error or "")) == (1, True)


@pytest.mark.proves("O-12")
async def test_a_batch_that_is_refused_is_posted_one_by_one(store: Store) -> None:
    async with receiving(answering(400), answering(400)) as receiver:
        outbox = crm(receiver.url, mode="batched")
        await drained(store, outbox)
        for number in range(3):
            await store.emit("a", number)
        await drained(store, outbox)
    assert [len(json.loads(one.body)) for one in receiver.requests] == [3, 1, 1, 1]
    assert await statuses(store) == {"ERROR": 1, "SUCCESS": 2}


@pytest.mark.proves("O-03")
async def test_a_receiver_says_when_to_try_again(store: Store, clock: TestClock) -> None:
    async with receiving(answering(503, "retry-after: 500")) as receiver:
        outbox = crm(receiver.url)
        await drained(store, outbox)
        await store.emit("a", 1)
        await drained(store, outbox)
        clock.advance(499)
        assert await drained(store, outbox) == 0
        clock.advance(2)
        assert await drained(store, outbox) == 1
    assert len(receiver.requests) == 2


NOW = datetime(2026, 11, 19, tzinfo=UTC)


@pytest.mark.proves("O-03")
@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("999999999999999999", 3600.0),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(days=1), usegmt=True), 0.0),
        (format_datetime(NOW + timedelta(days=1), usegmt=True), 3600.0),
        (None, None),
        ("", None),
        ("-3", None),
        ("soon", None),
        ("1.5", None),
        ("٣", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(said: str | None, seconds: float | None) -> None:
    assert pause_of(said, NOW) == seconds


@pytest.mark.parametrize("status", range(200, 300))
def test_each_2xx_has_taken_the_event(status: int) -> None:
    assert verdict(status, None, NOW, "h") is None


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599, 999, 408, 425, 429])
def test_these_are_tried_again(status: int) -> None:
    error = verdict(status, "9", NOW, "h")
    assert isinstance(error, TransientError)
    assert error.retry_after == 9


@pytest.mark.parametrize("status", [100, 199, 300, 304, 400, 403, 410, 451, 499])
def test_these_are_not(status: int) -> None:
    assert isinstance(verdict(status, "9", NOW, "h"), PermanentError)


async def test_one_session_serves_a_worker_and_is_closed_with_it(store: Store) -> None:
    async with receiving() as receiver:
        webhook = Webhook(receiver.url)
        outbox = Outbox("crm", webhook, concurrency=1)
        for _ in range(2):
            await store.emit("a", 1)
            await store.emit("a", 2)
            await drained(store, outbox)
            assert not webhook._clients
    assert receiver.connections == 2  # one for each life of the worker


async def test_two_workers_share_a_session_until_both_have_stopped(store: Store) -> None:
    async with receiving() as receiver:
        webhook = Webhook(receiver.url)
        outbox = Outbox("crm", webhook, concurrency=1)
        async with Worker(store, [outbox]):
            await store.emit("a", 1)
            await receiver.heard.wait()
            await drained(store, outbox)
            [client] = webhook._clients.values()
            assert not client._session.closed
        assert client._session.closed


async def test_a_sink_that_cannot_be_closed_keeps_no_worker_from_stopping(
    store: Store,
) -> None:
    class Stuck:
        async def __call__(self, event: object) -> None: ...

        async def aclose(self) -> None:
            raise OSError("stuck")

    told: list[str] = []
    store.database.telemetry.subscribe(
        lambda event: told.append(event.error) if isinstance(event, InternalTaskFailed) else None
    )
    async with Worker(store, [Outbox("crm", Stuck())]) as worker:
        assert worker.id
    assert [one.alive for one in await store.workers()] in ([], [False])
    assert told == ["OSError('stuck')"]


async def test_cookies_and_redirects_are_not_followed() -> None:
    async with receiving(answering(200, "set-cookie: a=b; Path=/"), answering(200)) as receiver:
        webhook = Webhook(receiver.url, headers={"Authorization": "Bearer of-news"})
        await webhook(_event(1))
        await webhook(_event(2))
        await webhook.aclose()
    assert receiver.connections == 1
    assert [one.headers.get("cookie") for one in receiver.requests] == [None, None]
    assert receiver.requests[0].headers["authorization"] == "Bearer of-news"
    assert receiver.requests[0].line == "POST /hooks?token=sesame HTTP/1.1"


async def test_an_endless_answer_is_read_no_further_than_needed() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with receiving(head + b"2000\r\n" + b"x" * 8192) as receiver:
        webhook = Webhook(receiver.url)
        await webhook(_event(1))
        await webhook.aclose()
    assert len(receiver.requests) == 1


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with receiving() as receiver:
        webhook = Webhook(receiver.url)
        await webhook(_event(1))
        await webhook.aclose()
    assert len(receiver.requests) == 1


@pytest.mark.parametrize(
    "address",
    PRIVATE.split(),
)
def test_addresses_of_this_network_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254"]
)
def test_a_private_address_is_refused_where_it_is_given(host: str) -> None:
    with pytest.raises(InvalidOption, match="not a public address"):
        Webhook(f"http://{host}/hooks", public_only=True)


async def test_a_name_that_leads_to_a_private_address_is_refused_when_it_is_connected_to(store: Store) -> None:
    async with receiving() as receiver:
        outbox = crm(f"http://localhost:{receiver.port}/", public_only=True)
        await drained(store, outbox)
        await store.emit("a", 1)
        await drained(store, outbox)
    assert receiver.connections == 0
    [letter] = await store.dead_letters()
    assert letter.last_error == "PermanentError: localhost is not a public address, and this webhook is `public_only`"


@pytest.mark.parametrize("answer", [answering(500), answering(400, body=b"sesame"), b"", b"nonsense\r\n\r\n"])
async def test_secrets_are_in_no_text(
    store: Store, answer: bytes, caplog: pytest.LogCaptureFixture, clock: TestClock
) -> None:
    caplog.set_level(logging.DEBUG)
    key = NEW.removeprefix("whsec_")
    async with receiving(answer, resets=bool(answer)) as receiver:
        url = receiver.url.replace("//", "//ann:pa55word@")
        webhook = Webhook(url, secret=NEW, headers={"x-key": "open"}, timeout=0.5)
        outbox = Outbox("crm", webhook, retry=1)
        await drained(store, outbox)
        await store.emit("a", 1)
        await drained(store, outbox)
    [letter] = await store.dead_letters()
    texts = [repr(webhook), repr(outbox), repr(webhook._secrets), repr(letter), caplog.text]
    assert not [one for one in texts for secret in (key, "sesame", "pa55word", "open") if secret in one]
    assert repr(webhook) == f"<webhook http://127.0.0.1:{receiver.port}>"


@pytest.mark.parametrize(
    "given",
    ["", "whsec_", "whsec_%%%", "short", b"short", b"x" * 65, 7, [], (NEW, OLD, NEW), [NEW, b"short"]],
)
def test_a_secret_that_is_none_is_refused_and_not_shown(given: Any) -> None:
    with pytest.raises(InvalidOption) as refused:
        Webhook("https://crm.example", secret=given)
    assert "***" in str(refused.value)
    assert "short" not in str(refused.value)


@pytest.mark.parametrize("url", ["", "crm.example", "ftp://crm.example", "http://", "https://h:99999/", 7, None])
def test_an_address_that_is_none_is_refused(url: Any) -> None:
    with pytest.raises(InvalidOption, match="it is an address"):
        Webhook(url)


@pytest.mark.parametrize(
    "headers", [{"ce-id": "1"}, {"Webhook-Id": "1"}, {"content-type": "x"}, {"a b": "1"}, {"a": "1\r\nb: 2"}, {"a": 1}]
)
def test_a_header_of_the_message_itself_is_refused(headers: Any) -> None:
    with pytest.raises(InvalidOption, match="headers"):
        Webhook("https://crm.example", headers=headers)


def test_the_mode_fits_the_outbox() -> None:
    with pytest.raises(InvalidOption, match="batch"):
        Outbox("crm", Webhook("https://crm.example", mode="batched"))
    with pytest.raises(InvalidOption, match="batch"):
        Outbox("crm", Webhook("https://crm.example"), batch=10)
    with pytest.raises(InvalidOption, match="mode"):
        Webhook("https://crm.example", mode="other")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="timeout"):
        Webhook("https://crm.example", timeout=0)


async def test_the_moment_of_a_signature_is_that_of_the_attempt() -> None:
    async with receiving() as receiver:
        webhook = Webhook(receiver.url, secret=NEW)
        before = int(time.time())
        await webhook(_event(1))
        await webhook.aclose()
    assert before <= int(receiver.requests[0].headers["webhook-timestamp"]) <= int(time.time())


def _event(data: Any) -> Any:
    from stepwell import CloudEvent  # noqa: PLC0415

    content = json.dumps(data).encode()
    return CloudEvent(id="e1", source="/shop", type="a.b.v1", time=NOW, content=content, subject="s")
