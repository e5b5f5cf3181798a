"""psycopg 3, which a user may bring to a Postgres store; the only file that knows it.

Statements go through a cursor of our own, so the connection's row factory, cursor class, adapters and prepared
statements stay as they are, and decide nothing about what we read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.adapt import AdaptersMap, Loader
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import dict_row
from psycopg.types.array import ListDumper
from psycopg.types.bool import BoolLoader
from psycopg.types.numeric import IntLoader
from psycopg.types.string import TextLoader

from stepwell.errors import InvalidOption, StoreUnavailable
from stepwell.store.driver import AsyncJoin, Call, Ddl, Row, SyncJoin
from stepwell.store.postgres.connection import meaning, refused_transaction

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
        # What was sent is not answered yet, so it is unknown whether a transaction is open.
        raise InvalidOption("tx", connection, "it is in pipeline mode; leave the `pipeline()` block first")
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        how = f"{'' if isinstance(connection, Connection) else 'async '}with connection.transaction():"
        raise InvalidOption("tx", connection, f"it is in autocommit mode; begin a transaction on it first: `{how}`")


def _answer(connection: Connection[Any], compose: Compose, call: Call | Ddl) -> list[Row]:
    assert isinstance(call, Call)
    text, values = compose(call)
    with _translated(connection), psycopg.RawCursor(connection, row_factory=dict_row) as cursor:
        _adapt(cursor.adapters)
        cursor.execute(text.encode(), values, prepare=False)
        return cursor.fetchall() if cursor.description else []


async def _answer_async(connection: AsyncConnection[Any], compose: Compose, call: Call | Ddl) -> list[Row]:
    assert isinstance(call, Call)
    text, values = compose(call)
    with _translated(connection):
        async with psycopg.AsyncRawCursor(connection, row_factory=dict_row) as cursor:
            _adapt(cursor.adapters)
            await cursor.execute(text.encode(), values, prepare=False)
            return await cursor.fetchall() if cursor.description else []


def _adapt(adapters: AdaptersMap) -> None:
    """Have this cursor read and write what our statements say as psycopg itself does, whatever the connection has."""
    for type_, loader in LOADERS.items():
        adapters.register_loader(type_, loader)
    adapters.register_dumper(list, ListDumper)


LOADERS: Final[dict[str, type[Loader]]] = {
    "int4": IntLoader,
    "int8": IntLoader,
    "text": TextLoader,
    "bool": BoolLoader,
}


@contextmanager
def _translated(connection: object) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        if (state := error.sqlstate) is None:
            raise StoreUnavailable(error) from error
        raise (refused_transaction(connection, state) or meaning(state, error)) from error
