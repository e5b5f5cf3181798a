"""A call that is cancelled or refused inside a transaction is undone, and the transaction goes on."""

import asyncio

import asyncpg
import pytest

from stepwell import Engine, Store, connect
from tests.deciders.workbench import Bench, Do, count, post
from tests.ground.databases import run_sql
from tests.ground.waiting import until
from tests.queue.joining import drivers, own
from tests.queue.joining.users import User
from tests.store.seam import waiting_for_locks


@pytest.mark.proves("Q-25", "protocol-22", "M-04")
@pytest.mark.backends("postgres", reason="elsewhere a call waits for no lock of another's")
@pytest.mark.parametrize("library", [drivers.Asyncpg, drivers.AsyncPsycopg, own.StoreTransaction])
def test_a_call_that_is_cancelled_is_undone_alone(library: type[User], store_url: str) -> None:
    async def story(user: User) -> None:
        async with user, connect(store_url) as other:
            engine = Engine(user.store).register(Bench())
            await user.do("enqueue", post, "before")
            holder = await asyncpg.connect(store_url)
            await holder.execute("begin; select 1 from stepwell.queue where name = 'posts' for update")
            await user.begin()
            await user.ask("insert into orders values (1)")
            call = asyncio.ensure_future(engine.execute(Do("a", ask="mail", message="late"), tx=user.tx))
            await until(lambda: waiting_for_locks(other))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await holder.close()
            assert (await engine.execute(Do("b", message="after"), tx=user.tx)).outcome == "applied"
            await user.commit()
            assert [one.id for one in await engine.instances()] == ["b"]
            assert await user.do("counts", "posts") == {"PENDING": 2}
            assert run_sql(store_url, "select count(*) from orders") == [1]

    run_sql(store_url, "create table orders (id int)")
    user = library(store_url)
    user.run(story(user))


@pytest.mark.proves("M-04", "M-05")
async def test_a_decision_that_raises_in_a_transaction_leaves_nothing_of_its_own(store: Store) -> None:
    engine = Engine(store).register(Bench())
    async with store.transaction() as tx:
        with pytest.raises(ValueError, match="never"):
            await engine.execute(Do("a", fail="never"), key="k", tx=tx)
        await store.enqueue(post, "kept", tx=tx)
    assert list(await engine.instances()) == []
    assert [await count(store, table) for table in ("task", "event", "receipt")] == [1, 0, 0]
