"""SQLAlchemy 2: the connection of the driver below a session or a connection; the only file that knows it.

SQLAlchemy begins when it first executes something. It has to know of the transaction, or its `commit()` would be
nothing and the pool would undo what was written; so where it has not begun yet, it is given something to execute.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import InvalidRequestError, SQLAlchemyError
from sqlalchemy.orm import scoped_session

from stepwell.errors import InvalidOption, StoreUnavailable

ON_LOOP = "it belongs to an event loop: pass its AsyncSession or AsyncConnection to a store of `stepwell.connect(...)`"


def connection_of(tx: Any) -> object:
    """The driver's connection below a `Connection` or `Session`, which is in a transaction now."""
    try:
        session = tx() if isinstance(tx, scoped_session) else tx
        connection = session if isinstance(session, Connection) else session.connection()
        if connection.dialect.is_async:  # inside `run_sync`
            raise InvalidOption("tx", tx, ON_LOOP)
        if not connection.in_transaction():
            connection.execute(select(1))
        found: object = connection.connection.driver_connection
    except SQLAlchemyError as error:
        raise _translated(tx, error) from error
    return found


async def async_connection_of(tx: Any) -> object:
    """The driver's connection below an `AsyncConnection` or `AsyncSession`, which is in a transaction now."""
    # Imported here: since SQLAlchemy 2.1 it needs greenlet, which a sync program need not have.
    from sqlalchemy.ext.asyncio import AsyncConnection, async_scoped_session  # noqa: PLC0415

    try:
        session = tx() if isinstance(tx, async_scoped_session) else tx
        connection = session if isinstance(session, AsyncConnection) else await session.connection()
        found: Any = (await connection.get_raw_connection()).driver_connection
        # Beginning is SQLAlchemy's own matter on asyncpg, whose connection would commit each statement by itself.
        begun = getattr(found, "is_in_transaction", lambda: True)
        if not connection.in_transaction() or not begun():
            await connection.execute(select(1))
    except SQLAlchemyError as error:
        raise _translated(tx, error) from error
    return found


def _translated(tx: object, error: SQLAlchemyError) -> Exception:
    if isinstance(error, InvalidRequestError):  # closed, to be rolled back first, without an engine: it says which
        return InvalidOption("tx", tx, f"it has no connection to join ({error})")
    return StoreUnavailable(error)
