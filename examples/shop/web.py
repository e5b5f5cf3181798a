"""The web process: it writes orders, asks for runs, and cancels them. It executes nothing.

Serve it:  uvicorn --app-dir examples shop.web:app       (pip install fastapi uvicorn 'sqlalchemy[asyncio]' asyncpg)
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from shop.tables import Order, create_tables, engine, url
from stepwell import Run, Store, connect, workflow

fulfil = workflow("shop.fulfil")  # by name: the worker has the function


class NewOrder(BaseModel):
    number: str
    item: str
    cents: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One store and one engine for all requests of the process."""
    app.state.database = engine()
    await create_tables(app.state.database)
    async with connect(url()) as app.state.store:
        await app.state.store.create_workflow("shop.fulfil")  # a worker that starts first has done it already
        yield
    await app.state.database.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def place(order: NewOrder, request: Request) -> dict[str, Any]:
    """The order and its run are one transaction: both are committed, or neither is."""
    async with AsyncSession(request.app.state.database) as session:
        session.add(Order(number=order.number, item=order.item, cents=order.cents))
        try:
            await session.flush()
            trigger = fulfil.trigger(number=order.number, cents=order.cents).options(key=order.number)
            await trigger.execute(store(request), tx=session)
            await session.commit()
        except IntegrityError:
            return {"order": order.number, "new": False}  # the customer has clicked twice
    return {"order": order.number, "new": True}


@app.post("/orders/{number}/packed", status_code=202)
async def packed(number: str, by: str, request: Request) -> dict[str, str]:
    """A webhook of the warehouse; sent twice it counts once."""
    run = await run_of(number, request)
    return {"answer": str(await store(request).signal(run.id, "packed", by, key="packed"))}


@app.delete("/orders/{number}", status_code=202)
async def cancel(number: str, request: Request) -> dict[str, str]:
    """The run gives back what it has reserved, in the worker's process."""
    run = await run_of(number, request)
    return {"answer": str(await store(request).cancel(run.id, reason="the customer has changed their mind"))}


@app.get("/orders/{number}")
async def look(number: str, request: Request) -> dict[str, Any]:
    run = await run_of(number, request)
    async with AsyncSession(request.app.state.database) as session:
        order = await session.get(Order, number)
    why = None if run.status.finished else str(await store(request).why(run.id))
    return {"order": order.status if order else None, "run": run.id, "status": str(run.status), "why": why}


def store(request: Request) -> Store:
    opened: Store = request.app.state.store
    return opened


async def run_of(number: str, request: Request) -> Run[Any]:
    run = await fulfil.find(number, store(request))
    if run is None:
        raise HTTPException(404, "no such order")
    return run
