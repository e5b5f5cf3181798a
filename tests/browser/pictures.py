"""Write a picture of every page, light and dark: `make pictures`. With --to FOLDER --png to look at them first."""

from __future__ import annotations

import argparse
import asyncio
import base64
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from playwright.async_api import Browser, Page

import stepwell
from tests.browser.chromium import ROOT, chromium, person, served
from tests.ground.postgres import PostgresServer
from tests.ui import scene

FOLDER: Final = ROOT / "docs" / "img"
SHARPNESS: Final = 1.5  # pixels of a picture for one of the page
QUALITY: Final = 82
MOST_BYTES: Final = 200 * 1024
THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
NARROW: Final = (360, 780)


def pages(ids: Mapping[str, int]) -> Mapping[str, str]:
    """The path of each picture's page by the name of the picture."""
    return {
        "overview": "/",
        "runs": "/runs",
        "run": f"/runs/{ids['failed']}",
        "graph": f"/runs/{ids['failed']}?tab=graph",
        "source": f"/runs/{ids['failed']}?tab=source",
        "recovered": f"/runs/{ids['recovered']}",
        "waiting": f"/runs/{ids['waiting']}",
        "trigger": "/trigger?workflow=fulfil_order",
        "queues": "/queues",
        "queue": "/queues/one?name=emails",
        "dead": "/dead",
        "deciders": "/deciders?type=subscription",
        "decider": "/deciders/one?type=subscription&id=sub-2207&at=4",
        "schedules": "/schedules",
        "schedule": "/schedules/one?name=nightly",
        "projections": "/projections",
        "workers": "/workers",
        "audit": "/audit",
        "settings": "/settings",
    }


async def shoot(page: Page, *, as_png: bool, whole: bool = False) -> bytes:
    """What the page shows now."""
    if as_png:
        return await page.screenshot(full_page=whole)
    session = await page.context.new_cdp_session(page)
    found = await session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    return base64.b64decode(found["data"])


@dataclass(frozen=True)
class Album:
    """Where pictures go, and which are wanted."""

    folder: Path
    as_png: bool
    names: frozenset[str]

    async def take(self, browser: Browser, address: str, ids: Mapping[str, int]) -> None:
        """Take every picture; the narrow ones only beside those that are looked at, not kept."""
        for theme in THEMES:
            options: dict[str, Any] = {"color_scheme": theme, "device_scale_factor": SHARPNESS}
            await self._take(browser, address, ids, theme, **options)
        if self.as_png:
            await self._take(browser, address, ids, "narrow", size=NARROW)

    async def _take(self, browser: Browser, address: str, ids: Mapping[str, int], kind: str, **options: Any) -> None:
        async with person(browser, address, **options) as page:
            for name, path in pages(ids).items():
                if not self.names or name in self.names:
                    await page.goto(path, wait_until="load")
                    self._keep(f"{name}-{kind}", await shoot(page, as_png=self.as_png, whole=kind == "narrow"))

    def _keep(self, name: str, content: bytes) -> None:
        assert self.as_png or len(content) <= MOST_BYTES, f"{name} has {len(content)} bytes"
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{name}.{'png' if self.as_png else 'webp'}").write_bytes(content)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=FOLDER, help="the folder they are written to")
    parser.add_argument("--png", action="store_true", help="PNG, and each page at a width of 360 too")
    parser.add_argument("--store", help="a store that an earlier call has filled, or is to be filled")
    parser.add_argument("names", nargs="*", help="these pictures only")
    asked = parser.parse_args()
    album = Album(asked.to, asked.png, frozenset(asked.names))
    with ExitStack() as stack:
        # Durable, or `doctor` would find fault with it in the pictures.
        url = asked.store or stack.enter_context(PostgresServer(durable=True)).url()
        ids = await _known(url)
        async with scene.worker(url), served(url, "shop") as address, chromium() as browser:
            await album.take(browser, address, ids)


async def _known(url: str) -> Mapping[str, int]:
    """The runs of the scene by name; it is made where it is not there."""
    async with stepwell.connect(url) as store:
        found = {run.key: run.id for run in await store.runs() if run.workflow == "fulfil_order"}
    if not found:
        return await scene.fill(url, minutes=58)
    named = {"failed": 1042, "recovered": 1043, "waiting": 1044, "done": 1041}
    return {name: int(found[f"order-{number}"]) for name, number in named.items()}


if __name__ == "__main__":
    asyncio.run(main())
