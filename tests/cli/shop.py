"""The APP of these tests: what `stepwell worker tests.cli.shop` serves."""

import asyncio

from stepwell import PermanentError, Retry, Store, Workflow, current, handler, sleep, step, workflow
from tests.cli import flaws


@step(retry=Retry(3, base=0.01))
async def charge(cents: int) -> str:
    if current().attempt == 1:
        raise ConnectionError("the bank is busy")
    return f"receipt over {cents}"


@step
async def ship(parcel: str) -> str:
    await asyncio.sleep(0.01)  # so that two that are asked for together overlap
    if parcel in flaws.SOLD_OUT:
        raise PermanentError(f"no {parcel} is left")
    return parcel


@workflow
async def fulfil(cents: int, parcels: list[str]) -> list[str]:
    receipt = await charge(cents)
    await sleep("20ms")
    return [receipt, *await asyncio.gather(*(ship(parcel) for parcel in parcels))]


@workflow
async def welcome(address: str) -> str:
    return await ship(address)


@workflow
async def wait_long(span: str) -> None:
    await sleep(span)


@handler("emails", retry=1)
async def send(address: str) -> None:
    if "@" not in address:
        raise PermanentError(f"no mailbox {address}")


pair = [welcome, send]


def chosen(store: Store) -> list[Workflow[..., object]]:
    """A function of the store."""
    assert isinstance(store, Store)
    return [welcome]


async def chosen_later(store: Store) -> Workflow[..., object]:
    """An async one."""
    return welcome


nothing = 7
