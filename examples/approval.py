"""An expense that needs approval: the run waits for a webhook, and survives the worker that began it.

Run it:  python examples/approval.py
It uses a temporary SQLite file, or the store that STEPWELL_URL names.
"""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from stepwell import RunId, RunNotFound, Store, Worker, connect, step, sync, wait, workflow

UNLUCKY = "UNLUCKY" in os.environ


@dataclass(frozen=True)
class Expense:
    what: str
    cents: int


@dataclass(frozen=True)
class Decision:
    approved: bool
    by: str


@step
async def ask(expense: Expense) -> None:
    say(f"mail to the boss: {expense.cents} cents for a {expense.what}?")


@step
async def pay(expense: Expense) -> str:
    say(f"pay {expense.cents} cents")
    return f"a {expense.what} is paid"


@workflow
async def reimburse(expense: Expense) -> str:
    """While it waits, it holds no process, no memory and no lease."""
    await ask(expense)
    decision = await wait("decision", Decision, timeout="7d", default=Decision(approved=False, by="timeout"))
    if not decision.approved:
        return f"a {expense.what} is refused by {decision.by}"
    return f"{await pay(expense)}, as {decision.by} said"


class Webhook(BaseHTTPRequestHandler):
    """What the boss's click calls: any web framework will do, in any process that has the store."""

    def __init__(self, store: sync.Store, *request: Any) -> None:
        self.store = store
        super().__init__(*request)

    def do_POST(self) -> None:
        run_id = int(self.path.removeprefix("/decisions/"))
        decision = Decision(**json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        try:
            answer = self.store.resume(run_id, "decision", decision)  # committed when it has returned
        except RunNotFound as error:
            self.reply(404, str(error))
        else:
            self.reply(202 if answer else 409, answer)  # WOKE or KEPT; TOO_LATE counts as false

    def reply(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Be quiet."""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/expenses.db"
        with sync.connect(url) as store:
            lamp, yacht = store.trigger_many(
                reimburse.trigger(expense) for expense in (Expense("lamp", 4900), Expense("yacht", 99_000_000))
            )
        work(url, lamp, yacht, unlucky=True)
        with sync.connect(url) as store, served(store) as port:
            print("the runs are", [str(store.get_run(run_id).status) for run_id in (lamp, yacht)])
            print("the boss likes the lamp:", click(port, lamp, Decision(approved=True, by="grace")))
            print("and clicks again:", click(port, lamp, Decision(approved=False, by="grace")))
            print("but no yacht:", click(port, yacht, Decision(approved=False, by="grace")))
        work(url, lamp, yacht)
        with sync.connect(url) as store:
            print(store.result(lamp), "and", store.result(yacht))


@contextmanager
def served(store: sync.Store) -> Iterator[int]:
    """Serve the webhook on this machine alone; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Webhook, store))
    threading.Thread(target=server.serve_forever, args=[0.05]).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def click(port: int, run_id: RunId[str], decision: Decision) -> str:
    """What the boss's browser does."""
    browser = http.client.HTTPConnection("127.0.0.1", port)
    browser.request("POST", f"/decisions/{run_id}", json.dumps(vars(decision)))
    answer = browser.getresponse()
    text = f"{answer.status} {answer.read().decode()}"
    browser.close()
    return text


def work(url: str, *run_ids: RunId[str], unlucky: bool = False) -> None:
    """A worker process; usually it is `await Worker(...).run(signals=True)`, and there are several."""
    environment = os.environ | ({"UNLUCKY": "1"} if unlucky else {})
    subprocess.run([sys.executable, __file__, url, *map(str, run_ids)], env=environment, check=not unlucky)


async def work_until_finished(url: str, run_ids: list[int]) -> None:
    async with connect(url) as store, Worker(store, [reimburse]):
        if UNLUCKY:
            await die_when_all_wait(store, run_ids)
        for run_id in run_ids:
            await store.result(run_id)


async def die_when_all_wait(store: Store, run_ids: list[int]) -> None:
    while any([(await store.get_run(run_id)).status != "PAUSED" for run_id in run_ids]):
        await asyncio.sleep(0.05)
    say("is killed while the runs wait")
    os.kill(os.getpid(), signal.SIGKILL)


def say(words: str) -> None:
    print(f"  {'worker 1' if UNLUCKY else 'worker 2'}: {words}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work_until_finished(sys.argv[1], [int(number) for number in sys.argv[2:]]))
    else:
        main()
