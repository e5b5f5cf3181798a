"""The dashboard asked in this process, and pages read as a browser would."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any

from httpx import ASGITransport, AsyncClient, Response

from stepwell import Store, ui
from stepwell.ui.server import serve
from tests.ui import shop

HOST = "localhost:7070"
MOST_BYTES = 300 * 1024
PAGES = (
    "/",
    "/?window=7d",
    "/runs",
    "/runs?q=status:failed",
    "/runs?q=error:gave",
    "/runs?q=nothing-of-this-name",
    "/runs/bulk?do=retry&all=1&q=",
    "/trigger",
    "/queues",
    "/dead",
    "/deciders",
    "/projections",
    "/schedules",
    "/workers",
    "/audit",
    "/settings",
)


class Markup(HTMLParser):
    """The elements and attributes of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, tag: str, attribute: str) -> list[str]:
        """This attribute of every element with this tag."""
        return [str(attrs[attribute]) for name, attrs in self.elements if name == tag and attribute in attrs]

    @property
    def odd(self) -> list[str]:
        """Whatever could execute, or be fetched from elsewhere."""
        found = [f"{tag} {name}" for tag, attrs in self.elements for name in attrs if name.startswith("on")]
        found += [f"{tag} {name}" for tag, attrs in self.elements for name in attrs if name in ("style", "srcdoc")]
        scripts = [attrs.get("src") or "inline" for tag, attrs in self.elements if tag == "script"]
        found += [f"script {src}" for src in scripts if not re.fullmatch(r"/[\w/]*static/\w+\.js\?v=[\w.]+", src)]
        links = [(tag, attrs.get("href") or "") for tag, attrs in self.elements if tag in ("a", "link", "use")]
        found += [f"{tag} {href}" for tag, href in links if not re.match(r"[/?#]", href) or href.startswith("//")]
        return found + [tag for tag, _ in self.elements if tag in ("iframe", "object", "embed", "base", "img", "style")]


class Desk:
    """A browser at the dashboard: it keeps cookies, and sends forms with what their page has hidden."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client

    async def get(self, path: str, *, status: int = 200, **options: Any) -> str:
        """The text of a page."""
        answer = await self.client.get(path, **options)
        assert answer.status_code == status, (path, answer.status_code, answer.text[:2000])
        return answer.text

    async def page(self, path: str) -> Markup:
        """A page, read."""
        text = await self.get(path)
        assert len(text.encode()) <= MOST_BYTES, path
        found = Markup(text)
        assert found.odd == [], path
        return found

    async def post(self, path: str, *, token: str | None = None, **fields: Any) -> Response:
        """Send a form, with the token that pages have unless another is given."""
        if token is None:
            await self.get("/settings")
            token = self.client.cookies["stepwell_form"]
        data = {name.replace("__", "."): value for name, value in fields.items()}
        return await self.client.post(path, data={"form_token": token, **data})

    async def done(self, path: str, **fields: Any) -> str:
        """Send a form, and return what the page after it says became of it."""
        answer = await self.post(path, **fields)
        assert answer.status_code == 303, (answer.status_code, answer.text[:500])
        text = await self.get(answer.headers["location"])
        found = re.search(r'<div class="said (\w+)" role="status">(.*?)</div>', text, re.DOTALL)
        assert found is not None
        return f"{found[1]}: {found[2]}"


@asynccontextmanager
async def dashboard(
    store: Store, serves: Iterable[Any] = (), *, client: str = "127.0.0.1", host: str = HOST, **options: Any
) -> AsyncIterator[Desk]:
    """A browser at the dashboard of a store."""
    transport = ASGITransport(ui.app(store, serves, **options), client=(client, 4711))
    async with AsyncClient(transport=transport, base_url=f"http://{host}") as made:
        yield Desk(made)


@asynccontextmanager
async def opened(store: Store, serves: Iterable[Any] = shop.ALL, **options: Any) -> AsyncIterator[str]:
    """The address of a dashboard in this process."""
    bound: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(ui.app(store, serves, **options), "127.0.0.1", 0, ready=bound.set_result))
    try:
        async with asyncio.timeout(20):
            port = await bound
        yield f"http://127.0.0.1:{port}"
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
