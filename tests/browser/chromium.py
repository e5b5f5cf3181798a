"""The Chromium of this machine, driven by playwright, and a dashboard in a process of its own for it to look at."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, Page, async_playwright

ROOT: Final = Path(__file__).parents[2]
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)
PATIENCE: Final = 20_000  # milliseconds for what a page is asked for
WIDE: Final = (1440, 900)


def find_chromium() -> str | None:
    """The Chromium that `STEPWELL_TEST_CHROMIUM` names, or the one on the path; None if there is none."""
    named = os.environ.get("STEPWELL_TEST_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser that has just started."""
    path = find_chromium()
    assert path is not None, "there is no Chromium"
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path, args=list(ARGUMENTS), timeout=60_000)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def person(
    browser: Browser, address: str, *, size: tuple[int, int] = WIDE, **options: Any
) -> AsyncIterator[Page]:
    """A page of a person who has opened nothing else; whatever its scripts complain about fails the test."""
    context = await browser.new_context(
        base_url=address,
        viewport={"width": size[0], "height": size[1]},
        locale="en-GB",
        timezone_id="UTC",
        **options,
    )
    context.set_default_timeout(PATIENCE)
    page = await context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(f"{error}"))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("dialog", lambda dialog: wrong.append(f"dialog: {dialog.message}"))
    try:
        yield page
    finally:
        await context.close()
    assert not wrong, wrong


@asynccontextmanager
async def served(url: str, app: str = "tests.ui.shop", more: Sequence[str] = ()) -> AsyncIterator[str]:
    """The address of `stepwell ui` for this store, in a process of its own."""
    command = [sys.executable, "-m", "stepwell", "ui", "--app", app, "--port", "0", *more]
    path = os.pathsep.join(filter(None, (str(ROOT / "tests" / "ui"), os.environ.get("PYTHONPATH"))))
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env={**os.environ, "STEPWELL_URL": url, "PYTHONPATH": path}, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            said = ""
            while (found := re.search(r"http://\S+:\d+/", said)) is None:
                line = (await process.stderr.readline()).decode()
                assert line, f"it has ended: {said}"
                said += line
        yield found[0].rstrip("/")
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()
