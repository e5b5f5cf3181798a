"""Users of a transaction of the store's own."""

from typing import Any

from tests.queue.joining.users import User


class StoreTransaction(User):
    is_async = True
    tx: Any = None

    async def open(self) -> None:
        """It is the store's."""

    async def close(self) -> None:
        """It is the store's."""

    async def begin(self) -> None:
        self._block = self.store.transaction()
        self.tx = await self._block.__aenter__()

    async def commit(self) -> None:
        await self._block.__aexit__(None, None, None)

    async def rollback(self) -> None:
        try:
            await self._block.__aexit__(RuntimeError, RuntimeError("undone"), None)
        except RuntimeError:
            return

    async def ask(self, sql: str) -> Any:
        rows = await self.tx.execute(sql)
        return rows[0][0] if rows else None

    def settings(self) -> object:
        return None

    async def in_autocommit(self) -> Any:
        raise NotImplementedError


class SyncStoreTransaction(StoreTransaction):
    is_async = False

    async def begin(self) -> None:
        self._block = self.store.transaction()
        self.tx = self._block.__enter__()

    async def commit(self) -> None:
        self._block.__exit__(None, None, None)

    async def rollback(self) -> None:
        try:
            self._block.__exit__(RuntimeError, RuntimeError("undone"), None)
        except RuntimeError:
            return

    async def ask(self, sql: str) -> Any:
        rows = self.tx.execute(sql)
        return rows[0][0] if rows else None
