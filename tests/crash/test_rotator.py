"""Keys that are rotated under load by a process that is SIGKILLed again and again: no value is ever unreadable."""

import asyncio
import base64
import json
import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from stepwell import Encrypted, Keyring, Worker, connect, handler
from tests.crash.conftest import Scale
from tests.crash.site import LONG, Site, void_unless
from tests.ground.databases import run_apart
from tests.ground.processes import Crew
from tests.ground.waiting import until

MODULE = "tests.crash.rotator"
RING = {"old": os.urandom(32), "new": os.urandom(32)}


@pytest.mark.proves("security-14")
@pytest.mark.timeout(1800)
@pytest.mark.backends("postgres", "sqlite", reason="Turso serves one process")
def test_a_rotator_that_is_killed_leaves_every_value_readable(
    site: Site, scale: Scale, measured: Callable[..., None]
) -> None:
    kills, keys = scale.of(3, 300), site.folder / "keys.json"
    keys.write_text(json.dumps({"current": "old", "keys": {n: base64.b64encode(k).decode() for n, k in RING.items()}}))
    began = time.monotonic()
    with site.crew(1, module=MODULE, keys=keys) as crew:
        messages = run_apart(_lived(site, crew, kills))
    seconds = time.monotonic() - began
    rotated = [line["changed"] for line in site.witness.lines("rotated")]
    cut_off = len(site.witness.lines("rotating")) - len(rotated)
    void_unless(sum(rotated) > 0, "no rotation came to its end")
    void_unless(cut_off >= scale.of(0, 30), f"only {cut_off} of {kills} kills came while it rotated")
    run_apart(_readable(site, messages))
    measured("rotation", kills=kills, cut_off=cut_off, rotated=sum(rotated), messages=len(messages), seconds=seconds)


async def _lived(site: Site, crew: Crew, kills: int) -> dict[int, str]:
    """Enqueue and handle messages while the rotator is killed this often; what each message says, by its number."""
    sent: dict[int, str] = {}
    taken: list[str] = []
    chance = random.Random(1)

    @handler("mail")
    async def mail(text: str) -> None:
        taken.append(text)

    async with (
        connect(site.url, codec=Encrypted(keys=Keyring(RING, "old"))) as store,
        Worker(store, [mail]),
    ):
        for kill in range(kills):
            due = len(site.witness.lines("rotating")) + chance.randint(1, 4)
            await until(lambda due=due: len(site.witness.lines("rotating")) >= due, LONG, every=0.001)  # type: ignore[misc]
            text = f"message {kill}"
            await asyncio.sleep(chance.uniform(0, 0.003))  # into its rotation, or behind it
            crew.kill_random()
            sent[int(await store.enqueue(mail, text))] = text
            crew.respawn()
        await until(lambda: sorted(taken) == sorted(sent.values()), LONG)
    return sent


async def _readable(site: Site, messages: dict[int, str]) -> None:
    """Rotate to the end, then read all of it with the new key alone."""
    async with connect(site.url, codec=Encrypted(keys=Keyring(RING, "new"))) as store:
        await store.rotate_keys()
        assert await store.rotate_keys() == 0
    only: Any = Keyring({"new": RING["new"]}, "new")
    async with connect(site.url, codec=Encrypted(keys=only)) as store:
        for number, text in messages.items():
            found = await store.get(number)
            assert found is not None
            assert (found.status, found.input) == ("SUCCESS", text)
