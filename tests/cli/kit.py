"""The command line called in this process, and what it answered."""

import json
from typing import Any

from click.testing import CliRunner

from stepwell.cli.main import main

APP = "tests.cli.shop"


class Answer:
    """What a command wrote, and the exit code it ended with."""

    def __init__(self, code: int, out: str, error: str) -> None:
        self.code = code
        self.out = out
        self.error = error

    @property
    def json(self) -> Any:
        """Standard output as JSON; nothing else may stand there."""
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.error}"


class Cli:
    """`stepwell`, asked about one store."""

    def __init__(self, url: str | None, app: str = APP) -> None:
        self.url = url
        self.app = app

    def __call__(self, *words: object, code: int | None = 0, given: str | None = None) -> Answer:
        """Run a command; it has to end with this exit code, if one is said."""
        environment = {"STEPWELL_URL": self.url, "NO_COLOR": "1"}
        done = CliRunner().invoke(main, [str(word) for word in words], input=given, env=environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        answer = Answer(done.exit_code, done.stdout, done.stderr)
        assert code in (None, answer.code), answer
        return answer

    def serve(self) -> None:
        """Have a worker do what is due now."""
        self("worker", self.app, "--once")

    def work(self) -> None:
        """Have a worker do all there is to do, what becomes due meanwhile included."""
        for _ in range(100):
            self.serve()
            if all(run["status"] in ("SUCCESS", "ERROR", "CANCELLED") for run in self("runs", "--json").json["runs"]):
                return
        raise AssertionError("the runs do not come to an end")
