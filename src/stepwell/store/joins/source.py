"""What a step may name as the source of its transactions: each is begun, committed and closed here.

Each library is spoken to in its own words, through its own objects; none is imported for it.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from stepwell.errors import InvalidOption
from stepwell.store.joins.connection import is_a

HOW: Final = "name an engine, a pool, Django's `connection`, or a function that opens a connection or session"


@contextlib.asynccontextmanager
async def begun(source: object) -> AsyncIterator[Any]:
    """A transaction of the user's on this loop: committed at the end of the block, and what was opened is closed."""
    async with contextlib.AsyncExitStack() as stack:
        tx = _opened(source)
        if inspect.isawaitable(tx) and not hasattr(tx, "__aenter__"):
            tx = await tx
        if hasattr(tx, "__aenter__"):
            tx = await stack.enter_async_context(tx)
        elif inspect.iscoroutinefunction(getattr(tx, "close", None)):
            stack.push_async_callback(tx.close)
        else:
            raise InvalidOption("tx", source, f"what it opens is not for an `async def`: {HOW}")
        async with _transaction(tx):
            yield tx


@contextlib.contextmanager
def begun_here(source: object) -> Iterator[Any]:
    """The same in the calling thread, for libraries without a loop."""
    with contextlib.ExitStack() as stack:
        if is_django(source):
            from stepwell.store.joins import django  # noqa: PLC0415 - only for those who have it

            yield stack.enter_context(django.begun(source))
            return
        tx = _opened(source)
        if inspect.isawaitable(tx) or not hasattr(tx, "__enter__"):
            if inspect.iscoroutine(tx):
                tx.close()
            raise InvalidOption("tx", source, f"what it opens is only for an `async def`: {HOW}")
        if is_a(tx, "sqlite3", "Connection"):  # its own block closes nothing
            stack.callback(tx.close)
        else:
            tx = stack.enter_context(tx)
        with _transaction_here(tx):
            yield tx


def check_source(source: object) -> None:
    """Refuse what cannot open anything, when the step is declared."""
    if not (callable(source) or is_django(source) or _OPENS.keys() & _methods_of(source)):
        raise InvalidOption("tx", source, f"{HOW}; `tx=True` is the store's own transaction")


def is_django(source: object) -> bool:
    """Whether it is `django.db.connection`, or `connections[alias]`, which is opened by its thread."""
    wrapped = is_a(source, "django.db.backends.base.base", "BaseDatabaseWrapper")
    return wrapped or is_a(source, "django.utils.connection", "ConnectionProxy")


async def flush(tx: Any) -> None:
    """Have a session write what it still keeps."""
    if is_a(tx, "sqlalchemy.ext.asyncio", "AsyncSession", "async_scoped_session"):
        await tx.flush()


def flush_here(tx: Any) -> None:
    """The same of a session of this thread."""
    if is_a(tx, "sqlalchemy.orm", "Session", "scoped_session"):
        tx.flush()


_OPENS: Final = {"connect": "engines", "acquire": "asyncpg's pools", "connection": "psycopg's pools"}


def _methods_of(source: object) -> set[str]:
    return {name for name in _OPENS if callable(getattr(type(source), name, None))}


def _opened(source: Any) -> Any:
    """A connection or session, or the block or awaitable that gives one."""
    made = source() if callable(source) and not _is_pool(source) else source
    if _is_pool(made):
        [opens, *_] = [name for name in _OPENS if name in _methods_of(made)]
        return getattr(made, opens)()
    return made


def _is_pool(one: object) -> bool:
    """Whether it is an engine or a pool, and no connection or session, some of which have such methods too."""
    return bool(_methods_of(one)) and not hasattr(one, "rollback")


@contextlib.asynccontextmanager
async def _transaction(tx: Any) -> AsyncIterator[None]:
    if hasattr(tx, "transaction"):  # asyncpg's and psycopg's
        async with tx.transaction():
            yield
        return
    if is_a(tx, "aiosqlite", "Connection"):
        if not tx.in_transaction:
            await tx.execute("begin immediate")
    elif not tx.in_transaction():  # SQLAlchemy's
        await tx.begin()
    try:
        yield
        await tx.commit()
    except BaseException:
        with contextlib.suppress(Exception):
            await tx.rollback()
        raise


@contextlib.contextmanager
def _transaction_here(tx: Any) -> Iterator[None]:
    if hasattr(tx, "transaction"):  # psycopg's
        with tx.transaction():
            yield
        return
    begun = is_a(tx, "sqlite3", "Connection")
    if begun and not tx.in_transaction:
        tx.execute("begin immediate")
    elif not begun and not tx.in_transaction():  # SQLAlchemy's
        tx.begin()
    try:
        yield
        _commit(tx)
    except BaseException:
        with contextlib.suppress(Exception):
            tx.rollback()
        raise


def _commit(tx: Any) -> None:
    if getattr(tx, "autocommit", None) is True:  # of sqlite3 since Python 3.12, whose `commit()` does nothing then
        tx.execute("commit")
    else:
        tx.commit()
