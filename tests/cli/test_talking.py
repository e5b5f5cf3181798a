"""Runs talked with on the command line: their values, their streams and their answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from stepwell import Timeout, connect
from tests.cli.kit import Cli
from tests.cli.talkative import talkative


@pytest.fixture
async def spoken(tmp_path: Path) -> tuple[str, int]:
    """A store with a run that has said what it has to say."""
    from stepwell import Worker  # noqa: PLC0415

    url = f"sqlite:///{tmp_path / 'talk.db'}"
    async with connect(url) as store:
        run_id = await talkative.trigger().options(key="t1", require_worker="ignore").execute(store)
        with pytest.raises(Timeout):
            await store.ask(run_id, "assign", {"hours": 3}, key="k", timeout=0)
        await Worker(store, [talkative]).drain()
    return url, int(run_id)


@pytest.mark.proves("TK-13")
def test_values_are_listed_read_and_shown(spoken: tuple[str, int]) -> None:
    url, run = spoken
    cli = Cli(url)
    listed = cli("value", "t1").out
    assert "progress" in listed
    assert '{"n": 1}' in listed
    assert [one["name"] for one in cli("value", "t1", "--json").json["values"]] == ["colour", "progress", "status"]
    assert cli("value", "t1", "colour").out == "red\n"
    assert cli("value", "t1", "status").out == '{"n": 1}\n'
    assert cli("value", "t1", "status", "--json").json == {"run": run, "name": "status", "value": {"n": 1}}
    refused = cli("value", "t1", "size", code=4).error
    assert "never set the value 'size'; it has set 'colour', 'progress', 'status'" in refused
    shown = cli("show", "t1").out
    assert 'value  status = {"n": 1}' in shown
    assert [one["name"] for one in cli("show", "t1", "--json").json["values"]] == ["colour", "progress", "status"]


@pytest.mark.proves("TK-13")
def test_a_stream_is_a_line_for_each_chunk(spoken: tuple[str, int]) -> None:
    cli = Cli(spoken[0])
    assert cli("stream", "t1", "log").out == 'one\n{"two": 2}\nthree\n'
    assert cli("stream", "t1", "log", "-f", "--after", "1").out == '{"two": 2}\nthree\n'
    lines: list[dict[str, Any]] = [json.loads(line) for line in cli("stream", "t1", "log", "--json").out.splitlines()]
    assert lines[1] == {"offset": 2, "data": {"two": 2}}
    assert cli("stream", "t1", "nothing").out == ""
    cli("value", "nobody", code=3)


@pytest.mark.proves("TK-18")
def test_a_run_is_asked_and_its_reply_is_shown(spoken: tuple[str, int]) -> None:
    url, run = spoken
    cli = Cli(url)
    assert cli("ask", "t1", "assign", "hours:=3", "--key", "k").out == '{"hours": 3}\n'
    replied = {"run": run, "request": "assign", "reply": {"hours": 3}}
    assert cli("ask", "t1", "assign", "hours:=3", "--key", "k", "--json").json == replied
    assert "does not answer the request 'assign' any more" in cli("ask", "t1", "assign", code=1).error


@pytest.mark.proves("logs-04")
def test_the_log_of_a_run_is_shown_by_step(spoken: tuple[str, int]) -> None:
    cli = Cli(spoken[0])
    own, steps, more = cli("logs", "t1").out.splitlines()
    assert own.endswith(" WARNING talk: so it begins")
    assert steps.endswith(" listen#1 (1) WARNING talk: all ears")
    assert more == "and eyes"
    assert cli("logs", "t1", "-f", "--step", "listen#1").out.splitlines() == [steps, more]
    line = json.loads(cli("logs", "t1", "--after", "1", "--json").out)
    assert (line["step"], line["attempt"], line["level"], line["offset"]) == ("listen#1", 1, "WARNING", 2)
    assert "has logged nothing that is kept" in cli("logs", "t1", "--attempt", "2").out
    cli("logs", "nobody", code=3)
