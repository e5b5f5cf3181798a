"""The shop's own tables. They stand in the same database as the store, so that one transaction can change both."""

import os
from datetime import UTC, datetime

from sqlalchemy import String
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """What SQLAlchemy wants."""


class Order(Base):
    """An order as the shop sees it: `status` is for its customers."""

    __tablename__ = "shop_order"
    number: Mapped[str] = mapped_column(String(80), primary_key=True)
    item: Mapped[str]
    cents: Mapped[int]
    status: Mapped[str] = mapped_column(default="placed")


class Payment(Base):
    """What the bank has been asked for. Its key is the step's, so that a repeated request changes nothing."""

    __tablename__ = "shop_payment"
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    number: Mapped[str] = mapped_column(String(80))
    cents: Mapped[int]
    at: Mapped[datetime] = mapped_column(default=lambda: datetime.now(UTC).replace(tzinfo=None))


def url() -> str:
    return os.environ.get("STEPWELL_URL", "sqlite:///shop.db")


def engine() -> AsyncEngine:
    """SQLAlchemy's way to the same database."""
    address = url().split("?")[0]
    for plain, driver in (("postgresql://", "postgresql+asyncpg://"), ("sqlite://", "sqlite+aiosqlite://")):
        address = address.replace(plain, driver, 1)
    return create_async_engine(address)


async def create_tables(database: AsyncEngine) -> None:
    async with database.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
