"""A FastAPI app that takes orders, and a worker in the same process; in production the worker is a process of its own.

Run it:    python examples/fastapi_app.py                    (asks the app some questions, without a network)
Serve it:  uvicorn --app-dir examples fastapi_app:app        (pip install fastapi uvicorn)

It uses a temporary SQLite file, or the store that STEPWELL_URL names. stepwell itself does not need FastAPI: without it
the same functions are asked directly.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Any
from uuid import uuid4

from stepwell import IdempotencyConflict, Store, Worker, connect, step, wait, workflow

try:
    from fastapi import FastAPI, HTTPException
except ImportError:
    HAS_FASTAPI = False
else:
    HAS_FASTAPI = True


@dataclass
class Order:
    number: str
    cents: int


@step
async def charge(order: Order) -> str:
    return f"receipt over {order.cents}"


@workflow(name="example.order")
async def fulfil(order: Order) -> str:
    receipt = await charge(order)
    return f"{receipt}, shipped to {await wait('address', str, timeout='7d', default='the shop')}"


class Shop:
    """What the routes do. One store for all requests: it is opened when the process starts."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def place(self, order: Order) -> dict[str, Any]:
        """Committed when it returns, and fulfilled even if every process dies. A repeated click finds the first run."""
        run_id = await fulfil.trigger(order).options(key=order.number).execute(self.store)
        return {"order": order.number, "new": run_id.created}

    async def ship(self, number: str, address: str) -> dict[str, Any]:
        run = await fulfil.find(number, self.store)
        return {"answer": str(await self.store.signal(run.id, "address", address, key="address"))} if run else {}

    async def look(self, number: str) -> dict[str, Any]:
        run = await fulfil.find(number, self.store)
        return {"status": str(run.status), "output": run.output() if run.status == "SUCCESS" else None} if run else {}


@asynccontextmanager
async def opened_shop() -> AsyncIterator[Shop]:
    """The store and a worker, for as long as the app runs."""
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/shop.db"
        async with connect(url) as store, Worker(store, [fulfil]):
            yield Shop(store)


def make_app() -> Any:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with opened_shop() as app.state.shop:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=202)
    async def place(order: Order) -> dict[str, Any]:
        try:
            return await shop(app).place(order)
        except IdempotencyConflict as error:
            raise HTTPException(409, str(error)) from error

    @app.post("/orders/{number}/address", status_code=202)
    async def ship(number: str, address: str) -> dict[str, Any]:
        return await shop(app).ship(number, address) or not_found()

    @app.get("/orders/{number}")
    async def look(number: str) -> dict[str, Any]:
        return await shop(app).look(number) or not_found()

    return app


def shop(app: Any) -> Shop:
    opened: Shop = app.state.shop
    return opened


def not_found() -> dict[str, Any]:
    raise HTTPException(404, "no such order")


app = make_app() if HAS_FASTAPI else None


# ---- asking it, without a network


async def main() -> None:
    number = f"order {uuid4()}"
    async with asking() as ask:
        for _ in range(2):
            answer = await ask("POST", "/orders", Order(number, 1900))
            print("placed, new:", answer["new"])
        print("address:", (await ask("POST", f"/orders/{number}/address?address=Paris"))["answer"] in ("WOKE", "KEPT"))
        while (answer := await ask("GET", f"/orders/{number}"))["status"] != "SUCCESS":
            await asyncio.sleep(0.02)
        print(answer["output"])


@asynccontextmanager
async def asking() -> AsyncIterator[Any]:
    if app is None:
        async with opened_shop() as opened:
            yield lambda *request: without_fastapi(opened, *request)
    else:
        async with app.router.lifespan_context(app):
            yield through_fastapi


async def without_fastapi(opened: Shop, method: str, path: str, order: Order | None = None) -> dict[str, Any]:
    if order:
        return await opened.place(order)
    number, _, address = path.removeprefix("/orders/").partition("/address?address=")
    return await (opened.ship(number, address) if method == "POST" else opened.look(number))


async def through_fastapi(method: str, path: str, order: Order | None = None) -> Any:
    """What a server does with a request."""
    path, _, query = path.partition("?")
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": []}
    scope["headers"] = [(b"content-type", b"application/json")]
    body, answers = json.dumps(asdict(order)).encode() if order else b"", []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(answer: dict[str, Any]) -> None:
        answers.append(answer)

    assert app is not None
    await app(scope, receive, send)
    return json.loads(answers[1]["body"])


if __name__ == "__main__":
    asyncio.run(main())
