"""`stepwell projection`: what a person sees of projections, and how they are let go on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from stepwell import Worker, connect
from stepwell.cli.main import main
from stepwell.operate.doctor import findings
from stepwell.operate.facts import facts_of
from stepwell.projections import runner
from tests.projections.books import Balances, Pay, engine_of
from tests.projections.shelves import accounts
from tests.projections.test_poison import Bad, Strict


def said(url: str, *words: str) -> tuple[int, Any]:
    done = CliRunner().invoke(main, ["projection", *words, "--url", url, "--json"])
    return done.exit_code, json.loads(done.stdout) if done.stdout else None


def shown(url: str, *words: str) -> str:
    return CliRunner().invoke(main, ["projection", *words, "--url", url]).output


@pytest.mark.proves("PJ-09", "PJ-12", "MM-06")
@pytest.mark.backends("sqlite", "postgres", reason="the command opens the store a second time")
def test_projections_are_listed_shown_and_let_go_on(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "FIRST_PAUSE", 0.001)
    import asyncio  # noqa: PLC0415 - only here a test is not on a loop: the command has its own

    async def fill() -> list[tuple[str, str]]:
        async with connect(store_url) as store:
            engine = engine_of(store, Balances(Bad(13)), Strict(Bad(13), "strict"), accounts)
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
    assert [level for level, _ in found] == ["good", "good", "warning", "problem"]
    assert "has stopped before event 2: ValueError: 13 cents" in found[-1][1]
    code, listed = said(store_url, "ls")
    assert code == 0
    assert [(one["name"], one["state"], one["lag"], one["parked"]) for one in listed["projections"]] == [
        ("accounts", "running", 0, 0),
        ("balances", "running", 0, 1),
        ("strict", "stopped", 2, 0),
    ]
    assert "set aside: account a from event 2 on: ValueError: 13 cents" in shown(store_url, "show", "balances")
    assert "stepwell projection retry strict" in shown(store_url, "show", "strict")
    top = CliRunner().invoke(main, ["top", "--once", "--url", store_url]).output
    assert [line.split()[1:3] for line in top.splitlines() if line.startswith("  projection")] == [
        ["accounts", "no"],
        ["balances", "no"],
        ["strict", "stopped"],
    ]
    assert "1 parked" in top
    top = CliRunner().invoke(main, ["top", "--json", "--url", store_url]).output
    assert [(one["name"], one["lag"]) for one in json.loads(top)["projections"]][-1] == ("strict", 2)
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


@pytest.mark.proves("PJ-08", "PJ-09")
@pytest.mark.backends("sqlite", "postgres", reason="the command opens the store a second time")
def test_a_build_beside_the_live_one_is_asked_for_and_seen(store_url: str) -> None:
    import asyncio  # noqa: PLC0415 - only here a test is not on a loop: the command has its own

    async def told() -> list[tuple[str, str]]:
        async with connect(store_url) as store:
            engine = engine_of(store, accounts, Balances())
            await engine.execute(Pay("a", 1))
            await Worker(store, [engine]).drain()
            text = await store.prometheus()
            found = [one for one in findings(await facts_of(store, "here")) if one.about == "projection"]
            return [(one.level, one.said) for one in found] + [("text", text)]

    asyncio.run(told())
    assert said(store_url, "rebuild", "balances")[0] == 2  # it does not say its tables
    assert said(store_url, "swap", "balances")[0] == 4
    assert said(store_url, "rebuild", "accounts") == (0, {"projection": "accounts", "changed": True})
    assert "2, beside" in shown(store_url, "ls")
    *found, (_, text) = asyncio.run(told())
    assert ("good", "build 2 of accounts, beside the live one, is 0 positions behind") in found
    assert 'stepwell_projection_lag{projection="accounts__2"} 0' in text
    assert said(store_url, "rebuild", "accounts", "--swap")[0] == 0
    listed = said(store_url, "ls")[1]["projections"][:2]
    assert [(one["build"], one["live"], one["swapping"]) for one in listed] == [(1, True, False), (3, False, True)]
    assert said(store_url, "swap", "accounts", "--keep-old", "2h")[0] == 0
    assert "beside it: build 3, to be swapped" in shown(store_url, "show", "accounts")
    assert said(store_url, "show", "accounts")[1]["beside"]["lag"] == 2
    asyncio.run(told())
    assert said(store_url, "show", "accounts")[1]["build"] == 3
