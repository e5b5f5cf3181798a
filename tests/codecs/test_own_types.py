"""Values of classes that JSON cannot hold, with the user's own way to write and read them."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

import msgspec
import pytest

from stepwell import Context, InvalidOption, SerializationError, Store, Type, Worker, connect, handler, step, workflow
from stepwell.values import own_types

HOME, AWAY = IPv4Address("127.0.0.1"), IPv4Address("10.0.0.1")


@dataclass
class Host:
    name: str
    addresses: list[IPv4Address]


class Link(msgspec.Struct):
    ends: dict[str, IPv4Address]
    via: IPv4Address | None = None


class Angle:
    """Two are equal if they point in the same direction."""

    def __init__(self, degrees: int) -> None:
        self.degrees = degrees

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Angle) and self.degrees == other.degrees

    def __hash__(self) -> int:
        return hash(self.degrees)


@pytest.fixture(autouse=True)
def address() -> Iterator[Type[IPv4Address]]:
    known = dict(own_types.KNOWN)
    yield Type(IPv4Address, encode=str, decode=IPv4Address)
    own_types.KNOWN.clear()
    own_types.KNOWN.update(known)


@pytest.mark.proves("types-01")
async def test_they_come_back_as_themselves_wherever_a_type_names_them(store: Store) -> None:
    handled: list[Any] = []

    @handler("ping")
    async def ping(address: IPv4Address) -> None:
        handled.append(address)

    @step
    async def found(host: Host) -> Link:
        return Link({"from": host.addresses[0]}, host.addresses[1])

    @workflow
    async def trace(ctx: Context, host: Host, hops: int) -> dict[str, IPv4Address]:
        link = await found(host)
        assert isinstance(link.via, IPv4Address)
        return {**link.ends, "told": await ctx.wait("next", IPv4Address)}

    await store.enqueue(ping, HOME)
    await store.enqueue(ping, AWAY, key="one")
    assert not (await store.enqueue(ping, AWAY, key="one")).created
    run = await trace.trigger(Host("a", [HOME, AWAY]), hops=2).options(require_worker="ignore").execute(store)
    worker = Worker(store, [ping, trace])
    await worker.drain()
    await store.signal(run, "next", str(AWAY))
    await worker.drain()
    assert await store.result(run) == {"from": HOME, "told": AWAY}
    assert sorted(handled) == [AWAY, HOME]
    [recorded, *_] = await store.steps(run)
    assert recorded.output == {"ends": {"from": "127.0.0.1"}, "via": "10.0.0.1"}


@pytest.mark.proves("types-02")
async def test_what_would_not_come_back_as_it_was_is_refused_before_it_is_written(store: Store) -> None:
    await store.create_queue("ping")
    for unnamed in (HOME, {"to": [HOME]}):
        with pytest.raises(SerializationError, match="nothing says that this is a"):
            await store.enqueue("ping", unnamed)

    @handler("turn")
    async def turn(angle: Angle) -> None: ...

    with pytest.raises(SerializationError, match="not a type that JSON can hold"):
        await store.enqueue(turn, Angle(1))
    Type(Angle, encode=lambda angle: angle.degrees % 360, decode=Angle)
    assert await store.enqueue(turn, Angle(359))
    with pytest.raises(SerializationError, match="made another value"):
        await store.enqueue(turn, Angle(361))
    assert await store.counts("ping") == {}
    assert await store.counts("turn") == {"PENDING": 1}


@pytest.mark.proves("types-02")
async def test_a_type_of_what_is_stored_already_is_refused_where_it_is_made(store_url: str) -> None:
    for cls in (str, int, dict, Host, Link, "IPv4Address"):
        with pytest.raises(InvalidOption):
            Type(cls, encode=str, decode=str)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption):
        Type(Angle, encode=str, decode=None)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption):
        await connect(store_url, types=[IPv4Address])  # type: ignore[list-item]
