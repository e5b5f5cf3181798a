"""The grants that docs/postgres.md gives to each role are enough for its work, and for no more."""

import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg
import pytest

from stepwell import Context, Engine, RunStatus, Worker, connect, handler, workflow
from stepwell.errors import StoreUnusable
from tests.deciders.shop import Orders

PAGE: Final = Path(__file__).parents[2] / "docs" / "postgres.md"
REFUSED: Final = "permission denied for"
pytestmark = [
    pytest.mark.backends("postgres", reason="only Postgres has roles"),
    pytest.mark.usefixtures("backend"),
    pytest.mark.proves("security-10"),
]


@handler("mail")
async def mail(number: int) -> None:
    assert number > 0


@workflow
async def ship(ctx: Context) -> str:
    return await ctx.step("pack", lambda: "packed", returns=str)


@dataclass(frozen=True)
class Roles:
    """A database whose owner has executed the grants of the page, under names of roles that nothing else here has."""

    url: str
    suffix: str

    def url_of(self, role: str) -> str:
        """The address as this role connects to it."""
        return self.url.replace("//postgres@", f"//{role}{self.suffix}@")


@pytest.fixture
async def roles(store_url: str) -> AsyncIterator[Roles]:
    """The grants of the page, executed once the tables are there; the roles are those of the whole server."""
    async with connect(store_url) as store:
        await store.create_queue("mail")
    suffix = f"_{secrets.token_hex(4)}"
    [grants] = re.findall(r"```sql\n(create role .*?)```", PAGE.read_text(), re.DOTALL)
    names = sorted(set(re.findall(r"shop_\w+", grants)))
    assert names == ["shop_producer", "shop_reader", "shop_worker"]
    owner = await asyncpg.connect(store_url)
    try:
        await owner.execute(re.sub(r"(shop_\w+)", rf"\1{suffix}", grants))
        yield Roles(store_url, suffix)
    finally:
        for name in names:
            await owner.execute(f"drop owned by {name}{suffix}; drop role {name}{suffix}")
        await owner.close()


async def test_a_producer_enqueues_triggers_and_emits_and_can_take_or_steer_nothing(roles: Roles) -> None:
    async with connect(roles.url_of("shop_producer"), audit="all") as store:
        await store.enqueue(mail, 1)
        assert await store.enqueue(mail, 2, key="once") == await store.enqueue(mail, 2, key="once")
        await store.enqueue_many(mail, range(3, 300))
        run_id = await ship.trigger().options(key="7").execute(store)
        await store.emit("shop.order.v1", {"cents": 1}, subject="7", ordered=True)
        assert (await store.get_run(run_id)).status is RunStatus.PENDING
    async with connect(roles.url_of("shop_producer")) as store:
        for call in (store.dequeue("mail"), store.cancel(run_id), store.signal(run_id, "paid", 1)):
            with pytest.raises(StoreUnusable, match=REFUSED):
                await call


async def test_a_worker_does_all_work_and_changes_no_table(roles: Roles) -> None:
    async with connect(roles.url_of("shop_worker"), audit="all") as store:
        engine = Engine(store).register(Orders())
        await store.enqueue(mail, 1)
        run_id = await ship.trigger().execute(store)
        await Worker(store, [mail, ship, engine]).drain()
        assert await store.result(run_id, str) == "packed"
        await store.cancel(await ship.trigger().execute(store))
        await store.prune("0s")
    direct = await asyncpg.connect(roles.url_of("shop_worker"))
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await direct.execute("alter table stepwell.task add column other text")
    await direct.close()


async def test_a_reader_sees_everything_and_writes_nothing(roles: Roles, store_url: str) -> None:
    async with connect(store_url) as store:
        run_id = await ship.trigger().execute(store)
    async with connect(roles.url_of("shop_reader")) as store:
        assert (await store.get_run(run_id)).status is RunStatus.PENDING
        assert [run.id for run in await store.runs()] == [run_id]
        assert [queue.name for queue in await store.queues()] == ["mail", "ship"]
        for call in (store.enqueue(mail, 1), store.cancel(run_id), ship.trigger().execute(store)):
            with pytest.raises(StoreUnusable, match=REFUSED):
                await call
