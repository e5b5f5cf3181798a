"""psycopg 3, which a user may bring to a Postgres store; the only file that knows it.

Statements go through a cursor of our own, so the connection's row factory, cursor class and prepared statements stay
as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import dict_row

from stepwell.errors import InvalidOption, StoreUnavailable
from stepwell.store.driver import AsyncJoin, Call, Ddl, Row, SyncJoin
from stepwell.store.sqlstates import meaning, refused_transaction

Compose = Callable[[Call], tuple[str, list[Any]]]  # a call as text with `$1`, and its values


def join(connection: Connection[Any] | AsyncConnection[Any], compose: Compose) -> SyncJoin | AsyncJoin:
    """Answer calls through the connection, in the transaction it is in or begins with its next statement."""
    if not hasattr(psycopg, "RawCursor"):
        raise InvalidOption("tx", type(connection), f"this needs psycopg 3.2 or newer, here is {psycopg.__version__}")
    _check(connection)
    if isinstance(connection, Connection):
        return SyncJoin(partial(_answer, connection, compose))
    return AsyncJoin(partial(_answer_async, connection, compose))


def _check(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    if connection.closed:
        raise InvalidOption("tx", connection, "it is closed; pass an open connection in a transaction")
    if connection.pgconn.pipeline_status != PipelineStatus.OFF:
        # What was sent is not answered yet, so nobody knows whether a transaction is open.
        raise InvalidOption("tx", connection, "it is in pipeline mode; leave the `pipeline()` block first")
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        how = f"{'' if isinstance(connection, Connection) else 'async '}with connection.transaction():"
        raise InvalidOption("tx", connection, f"it is in autocommit mode; begin a transaction on it first: `{how}`")


def _answer(connection: Connection[Any], compose: Compose, call: Call | Ddl) -> list[Row]:
    assert isinstance(call, Call)
    text, values = compose(call)
    with _translated(connection), psycopg.RawCursor(connection, row_factory=dict_row) as cursor:
        cursor.execute(text.encode(), values, prepare=False)
        return list(cursor.fetchall())


async def _answer_async(connection: AsyncConnection[Any], compose: Compose, call: Call | Ddl) -> list[Row]:
    assert isinstance(call, Call)
    text, values = compose(call)
    with _translated(connection):
        async with psycopg.AsyncRawCursor(connection, row_factory=dict_row) as cursor:
            await cursor.execute(text.encode(), values, prepare=False)
            return list(await cursor.fetchall())


@contextmanager
def _translated(connection: object) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        if (state := error.sqlstate) is None:
            raise StoreUnavailable(error) from error
        raise (refused_transaction(connection, state) or meaning(state, error)) from error
