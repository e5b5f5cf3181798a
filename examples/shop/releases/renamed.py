"""A deploy that renames a step without a word: a run that has recorded `charge` is held before it pays again."""

from sqlalchemy.ext.asyncio import AsyncSession

from shop.steps import database, release, reserve, ship
from shop.tables import Payment
from stepwell import Cancelled, current, shield, step, wait, workflow


@step
async def charge_card(number: str, cents: int) -> str:
    """Ask the bank. If a worker dies before this is recorded it is asked again, with the same key."""
    async with AsyncSession(database) as session, session.begin():
        await session.merge(Payment(key=current().key, number=number, cents=cents))
    return f"{cents} cents"


@workflow(name="shop.fulfil", cleanup="60s")
async def fulfil(number: str, cents: int) -> str:
    await reserve(number)
    try:
        paid = await charge_card(number, cents)
        packer = await wait("packed", str)
    except Cancelled:
        async with shield():  # in here the run goes on, to undo what it did
            await release(number)
        raise
    await ship(number)
    return f"{paid} paid, packed by {packer}"
