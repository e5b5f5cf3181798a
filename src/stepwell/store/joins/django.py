"""Django: the driver's connection below `django.db.connection` or `connections[alias]`; the only file that knows it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from django.db import DatabaseError, connections, transaction

from stepwell.errors import InvalidOption


def connection_of(tx: Any) -> object:
    """The connection that `.connection` of the wrapper is, if the wrapper is in a transaction that can go on."""
    try:
        tx.validate_thread_sharing()
    except DatabaseError as error:
        raise InvalidOption("tx", tx, f"it belongs to another thread: use `connections[{tx.alias!r}]` here") from error
    if tx.connection is None or (tx.get_autocommit() and not tx.in_atomic_block):
        how = f"with transaction.atomic(using={tx.alias!r}):"
        raise InvalidOption("tx", tx, f"it is in autocommit mode; begin a transaction on it first: `{how}`")
    if tx.in_atomic_block and tx.needs_rollback:
        raise InvalidOption("tx", tx, "its transaction has failed: leave the `atomic` block, which rolls it back")
    found: object = tx.connection
    return found


@contextlib.contextmanager
def begun(source: Any) -> Iterator[Any]:
    """A transaction on the connection that this thread has under the alias, committed at the end of the block."""
    tx = connections[source.alias]
    tx.close_if_unusable_or_obsolete()  # as at the begin and the end of a request
    try:
        with transaction.atomic(using=tx.alias, durable=True):
            yield tx
    finally:
        tx.close_if_unusable_or_obsolete()
