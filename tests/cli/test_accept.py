"""A step renamed by a deploy, in real processes: held by the worker, named by `why`, mended by code or by `accept`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.kit import Cli

APP = """
from pathlib import Path
from stepwell import Context, step, workflow

@step
async def charge() -> int:
    return LEDGER.open("a").write("charge ")

@workflow
async def fulfil(ctx: Context) -> None:
    await charge()
    await ctx.wait("go")

LEDGER = Path(__file__).with_name("ledger")
"""
RENAMED = APP.replace("charge", "charge_card")


class Place:
    """A folder with an application, and a store; every worker is a process of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.cli = Cli(url, "app")
        self._environment = {**os.environ, "STEPWELL_URL": url}

    def deploy(self, text: str) -> None:
        """Have a worker with this code do what is due."""
        (self.folder / "app.py").write_text(text)
        words = [sys.executable, "-B", "-m", "stepwell", "worker", "app", "--once"]
        done = subprocess.run(
            words, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done

    @property
    def ledger(self) -> str:
        """What was executed."""
        return (self.folder / "ledger").read_text()

    def status(self, run: object) -> str:
        """How a run stands."""
        return str(self.cli("show", run, "--json").json["status"])


@pytest.fixture
def place(tmp_path: Path, store_url: str) -> Place:
    """A place where two runs have been charged, and may go on."""
    place = Place(tmp_path, store_url)
    place.deploy(APP)
    for key in ("one", "two"):
        place.cli("trigger", "fulfil", "--key", key)
    place.deploy(APP)
    for key in ("one", "two"):
        place.cli("signal", key, "go")
    return place


@pytest.mark.proves("R-16")
@pytest.mark.backends("sqlite", "postgres", reason="Turso lets no second process open the file")
def test_a_renamed_step_is_held_until_the_code_or_somebody_says_what_it_is(place: Place) -> None:
    place.deploy(RENAMED)
    assert place.ledger == "charge charge "
    told = place.cli("why", "one")
    for said in ("charge_card#1", '@step(id="charge")', "stepwell accept ", "stepwell fork ", "code_differs"):
        assert said in told.out
    assert f"next: stepwell accept {place.cli('show', 'one', '--json').json['id']}" in told.out
    assert "2 are held for their code" in place.cli("doctor", code=1).out
    assert "goes on with the code as it is" in place.cli("accept", "one", "--reason", "a card is another matter").out
    place.deploy(RENAMED)
    assert (place.status("one"), place.status("two")) == ("SUCCESS", "PAUSED")
    assert place.ledger == "charge charge charge_card "
    refused = place.cli("accept", "one", "--json", code=4)
    assert [one["accepted"] for one in refused.json] == [False]
    place.deploy(RENAMED.replace("@step", '@step(id="charge")'))
    assert place.status("two") == "SUCCESS"  # without a command
    assert place.ledger == "charge charge charge_card "
    assert "#accepted" not in place.cli("show", "one").out
