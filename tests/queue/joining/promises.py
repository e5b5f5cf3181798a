"""What holds for a call that takes part in the user's own transaction, whatever library the transaction is of."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import stepwell
from stepwell import IdempotencyConflict, InvalidOption, KeyInUse, QueueNotFound, connect, handler
from stepwell.store.driver import Call
from tests.queue.joining.users import User

AWKWARD = {"text": "ü %s $1 :name \\ ' \" {}", "list": [None, 1.5, True], "deep": {"a": {"b": []}}}
KEY = "k %s $1 {\"a\", 'b'} \\ ü"


@handler("mails")
def mails(address: str) -> None:
    """Send nothing."""


@handler("letters")
def letters(address: str) -> None:
    """Send nothing."""


async def commit_shows_it_and_rollback_leaves_nothing(user: User) -> None:
    async with user:
        await user.do("create_queue", "shown")
        await user.begin()
        await user.ask("insert into orders values (1)")
        lost = await user.add("shown", 1, key="k")
        assert await user.do("get", lost) is None, "seen before the commit"
        await user.rollback()
        assert await user.do("counts", "shown") == {}
        await user.begin()
        await user.ask("insert into orders values (1)")
        kept = await user.add("shown", 1, key="k")
        again = await user.add("shown", 1, key="k")
        many = await user.do("enqueue_many", "shown", range(1_100), tx=user.tx)
        await user.commit()
        assert (kept.created, again.created, kept == again) == (True, False, True)
        own = await user.do("enqueue_many", "shown", range(1_100))
        assert len({kept, *many, *own}) == 2_201, "an id was given twice"
        assert await user.do("counts", "shown") == {"PENDING": 2_201}
        await user.begin()
        assert await user.ask("select count(*) from orders") == 1, "the user's own part is not there"
        await user.rollback()


async def the_first_call_joins_a_transaction_that_has_written(user: User) -> None:
    """A store that knows no queue and has no ids gets them through the user's connection, which holds the locks."""
    async with user:
        await user.do("create_queue", "first")
    async with user:
        await user.begin()
        await user.ask("insert into orders values (1)")
        with nothing_of_its_own(user):
            await user.add("first", 1)
            await user.add(mails, "ada@example.org")
            await user.do("enqueue_many", "first", [2, 3], keys=["two", "three"], tx=user.tx)
            await user.add("first", 2, key="two")
        await user.commit()
        assert await user.do("counts", "first") == {"PENDING": 3}
        assert await user.do("counts", "mails") == {"PENDING": 1}


async def a_queue_made_in_a_rolled_back_transaction_is_not_remembered(user: User) -> None:
    """Unless it was made before, in a transaction of its own, so that others need not wait for the user's."""
    async with user:
        await user.begin()
        stays = await sees_what_others_commit(user)
        await user.add(letters, "ada@example.org")
        await user.rollback()
        if not stays:
            with pytest.raises(QueueNotFound):
                await user.do("enqueue", "letters", "ada@example.org")
        await user.do("enqueue", letters, "ada@example.org")
        assert await user.do("counts", "letters") == {"PENDING": 1}


async def sees_what_others_commit(user: User) -> bool:
    """True if a queue made apart can be used in the user's transaction: not in a file, nor in one with a snapshot."""
    if not user.url.startswith("postgresql"):
        return False
    return bool(await user.ask("select current_setting('transaction_isolation')") == "read committed")


async def every_value_arrives_and_every_setting_stays(user: User) -> None:
    async with user:
        await user.do("create_queue", "values")
        await user.begin()
        await user.ask("insert into orders values (1)")
        before = user.settings()
        options = {"key": KEY, "priority": -7, "delay": "1h", "max_attempts": 9, "tags": ["a", "b %"]}
        task_id = await user.add("values", AWKWARD, unique="unfinished", **options)
        plain = await user.add("values", None)
        keyed = await user.do("enqueue_many", "values", [1, AWKWARD], keys=["x", KEY + "2"], tx=user.tx)
        assert user.settings() == before
        await user.commit()
        task = await user.do("get", task_id)
        assert (task.input, task.key, task.priority, task.max_attempts) == (AWKWARD, KEY, -7, 9)
        assert task.run_at > task.created_at
        assert (await user.do("get", plain)).input is None
        assert [(await user.do("get", one)).key for one in keyed] == ["x", KEY + "2"]


async def a_refused_call_leaves_the_transaction_as_it_was(user: User) -> None:
    async with user:
        await user.do("create_queue", "refused")
        await user.begin()
        await user.ask("insert into orders values (1)")
        await user.add("refused", 1, key="k")
        with pytest.raises(IdempotencyConflict, match="another payload"):
            await user.add("refused", 2, key="k")
        with pytest.raises(QueueNotFound):
            await user.add("nobody-made-it", 1)
        await user.ask("insert into orders values (1)")
        await user.add("refused", 3)
        await user.commit()
        assert await user.do("counts", "refused") == {"PENDING": 2}
        with pytest.raises(InvalidOption, match="autocommit mode; begin a transaction"):
            await user.do("enqueue", "refused", 1, tx=await user.in_autocommit())
        with pytest.raises(InvalidOption, match="pass the connection"):
            await user.do("enqueue", "refused", 1, tx=object())
        assert await user.do("counts", "refused") == {"PENDING": 2}


async def the_other_face_refuses_it(user: User) -> None:
    def through_the_sync_face(tx: object) -> None:
        with stepwell.sync.connect(user.url) as store, pytest.raises(InvalidOption, match="belongs to an event loop"):
            store.enqueue("other", 1, tx=tx)

    async def through_the_async_face(tx: object) -> None:
        async with connect(user.url) as store:
            with pytest.raises(InvalidOption, match=r"through `stepwell\.sync\.connect"):
                await store.enqueue("other", 1, tx=tx)

    async with user:
        await user.begin()
        await user.ask("select 1")
        if user.is_async:
            await asyncio.to_thread(through_the_sync_face, user.tx)
        else:
            asyncio.run(through_the_async_face(user.tx))
        await user.rollback()


async def an_event_is_emitted_if_the_transaction_commits(user: User) -> None:
    async with user:
        await user.do("emit", "order.placed", 0)
        await user.begin()
        await user.ask("insert into orders values (1)")
        await user.do("emit", "order.placed", 1, subject="order/1", ordered=True, tx=user.tx)
        assert await user.do("counts", "outbox:order.placed") == {"PENDING": 1}, "seen before the commit"
        await user.rollback()
        await user.begin()
        await user.ask("insert into orders values (1)")
        await user.do("emit", "order.placed", 2, subject="order/1", ordered=True, tx=user.tx)
        await user.commit()
        assert await user.do("counts", "outbox:order.placed") == {"PENDING": 2}


async def what_a_key_means_holds_in_it(user: User) -> None:
    async with user:
        await user.do("create_queue", "keyed")
        replaced = await user.do("enqueue", "keyed", "old", key="r", unique="waiting")
        ended = await user.do("enqueue", "keyed", "old", key="n", newest=True)
        for finish in (user.rollback, user.commit):
            await user.begin()
            await user.ask("insert into orders values (1)")
            with nothing_of_its_own(user):
                again = await user.add("keyed", AWKWARD, key="r", debounce="1h", expires="2h")
                newest = await user.add("keyed", AWKWARD, key="n", newest=True, result=True)
                hourly = await user.add("keyed", 1, key="p", once_per="1h")
                with pytest.raises(KeyInUse):
                    await user.add("keyed", AWKWARD, key="n", on_conflict="error")
            await finish()
            assert again == replaced
            found = [await user.do("get", one) for one in (replaced, ended, newest, hourly)]
            is_there = finish == user.commit
            assert found[0].input == (AWKWARD if is_there else "old")
            assert found[1].status == ("CANCELLED" if is_there else "PENDING")
            assert [one is not None for one in found[2:]] == [is_there, is_there]


PROMISES = (
    commit_shows_it_and_rollback_leaves_nothing,
    the_first_call_joins_a_transaction_that_has_written,
    a_queue_made_in_a_rolled_back_transaction_is_not_remembered,
    every_value_arrives_and_every_setting_stays,
    an_event_is_emitted_if_the_transaction_commits,
    a_refused_call_leaves_the_transaction_as_it_was,
    the_other_face_refuses_it,
    what_a_key_means_holds_in_it,
)


@contextmanager
def nothing_of_its_own(user: User) -> Iterator[None]:
    """Fail if the store uses a connection of its own, except to find or make a queue or a workflow that all share."""
    driver = (user.store if user.is_async else user.store.async_store).database.driver

    def refusing(verb: str) -> Callable[..., Any]:
        real = getattr(driver, verb)

        def call(work: Any, *args: Any, **options: Any) -> Any:
            of = work.statement if isinstance(work, Call) else getattr(work, "__qualname__", "")
            if of in ("find_queue", "find_workflow") or of.partition(".<")[0] in ("Queues.create", "Workflows.create"):
                return real(work, *args, **options)
            raise AssertionError(f"{of} went through a connection of the store's own")

        return call

    with pytest.MonkeyPatch.context() as patch:
        for verb in ("run", "transact", "read"):
            patch.setattr(driver, verb, refusing(verb))
        yield
