"""`stepwell projection`: what a person sees of projections, and how they are let go on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from stepwell import Worker, connect
from stepwell.cli.main import main
from stepwell.operate.doctor import facts_of, findings
from stepwell.projections import runner
from tests.projections.books import Balances, Pay, engine_of
from tests.projections.test_poison import Bad, Strict


def said(url: str, *words: str) -> tuple[int, Any]:
    done = CliRunner().invoke(main, ["projection", *words, "--url", url, "--json"])
    return done.exit_code, json.loads(done.stdout) if done.stdout else None


def shown(url: str, *words: str) -> str:
    return CliRunner().invoke(main, ["projection", *words, "--url", url]).output


@pytest.mark.proves("PJ-09", "PJ-12")
@pytest.mark.backends("sqlite", "postgres", reason="the command opens the store a second time")
def test_projections_are_listed_shown_and_let_go_on(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FIRST_PAUSE", 0.001)
    import asyncio  # noqa: PLC0415 - only here a test is not on a loop: the command has its own

    async def fill() -> list[tuple[str, str]]:
        async with connect(store_url) as store:
            engine = engine_of(store, Balances(Bad(13)), Strict(Bad(13), "strict"))
            for cents in (1, 13, 2):
                await engine.execute(Pay("a", cents))
            await Worker(store, [engine]).drain()
            text = await store.prometheus()
            assert 'stepwell_projection_parked{projection="balances"} 1' in text
            assert 'stepwell_projection_lag{projection="strict"} 2' in text
            assert 'stepwell_projection_events_total{projection="balances"} 1' in text
            return [
                (one.level, one.said) for one in findings(await facts_of(store, "here")) if one.about == "projection"
            ]

    found = asyncio.run(fill())
    assert [level for level, _ in found] == ["good", "warning", "problem"]
    assert "has stopped before event 2: ValueError: 13 cents" in found[-1][1]
    code, listed = said(store_url, "ls")
    assert code == 0
    assert [(one["name"], one["state"], one["lag"], one["parked"]) for one in listed["projections"]] == [
        ("balances", "running", 0, 1),
        ("strict", "stopped", 2, 0),
    ]
    assert "set aside: account a from event 2 on: ValueError: 13 cents" in shown(store_url, "show", "balances")
    assert "stepwell projection retry strict" in shown(store_url, "show", "strict")
    assert said(store_url, "retry", "balances", "account", "a")[0] == 0
    assert said(store_url, "skip", "balances", "account", "b")[0] == 4
    assert said(store_url, "skip", "strict") == (0, {"projection": "strict", "changed": True})
    assert said(store_url, "pause", "strict")[0] == 0
    assert said(store_url, "pause", "strict")[0] == 4
    assert said(store_url, "resume", "strict")[0] == 0
    assert said(store_url, "reset", "balances", "--yes")[0] == 0
    assert said(store_url, "show", "balances")[1]["position"] == 0
    assert said(store_url, "show", "nothing")[0] == 3
    assert said(store_url, "retry", "balances", "account")[0] == 2
    assert "balances" in shown(store_url, "ls")
