"""`stepwell limit`: rates are set and shown, and what is no rate is refused."""

import pytest

from tests.cli.kit import Cli


@pytest.mark.proves("LI-16")
def test_the_commands_set_and_show_rates(cli: Cli) -> None:
    cli("send", "emails", "ada@example.org")
    cli("limit", "set", "emails", "rate=50/s", "key_rate=10/1m burst 2", "key=to", "cost=size")
    assert "50/1s begin, 10/1m burst 2 of each key; each costs what its size says" in cli("limit", "show", "emails").out
    assert "50/1s" in cli("limit", "ls").out
    assert "whole number" in cli("limit", "set", "emails", "running=1/s", code=2).error
    assert "none of" in cli("limit", "set", "emails", "pace=1", code=2).error
    assert "'often'" in cli("limit", "set", "emails", "rate=often", code=2).error
