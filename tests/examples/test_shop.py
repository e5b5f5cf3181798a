"""The shop of examples/shop: a web process, workers, a deploy with a renamed step, a cancel from the web process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
STORY = [
    "placed, new: True",
    "placed, new: False",
    "a customer changes their mind: REQUESTED",
    "the desk is cancelled, nothing is reserved any more",
    "a deploy renames the step that pays",
    "the order is held: PAUSED",
    "the next one keeps the old name",
    "the lamp is shipped",
    "the bank was asked 1 time",
]


@pytest.mark.proves("G-02", "R-16", "L-12")
@pytest.mark.backends("sqlite", "postgres", reason="Turso is for one process, the shop has two")
def test_an_order_outlives_a_deploy_and_a_change_of_mind_is_undone(store_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shop.story"],
        cwd=EXAMPLES,
        env={**os.environ, "STEPWELL_URL": store_url},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == STORY
