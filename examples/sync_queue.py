"""The same durable queue without asyncio: `stepwell.sync` has the same verbs, and they return when they are done.

Run it:  python examples/sync_queue.py
It uses a temporary SQLite file, or the store that STEPWELL_URL names.
"""

import os
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from uuid import uuid4

from stepwell import PermanentError, Retry, TaskId, handler, sync


@dataclass
class Invoice:
    customer: str
    cents: int


addresses = {"ada": "1 Engine Street", "alan": "2 Tape Lane"}
tries: Counter[str] = Counter()


@handler("invoices", retry=Retry(3, base=0.1), timeout="5s")
def post(invoice: Invoice) -> None:
    """A plain function: the worker calls it in a thread."""
    tries[invoice.customer] += 1
    if invoice.customer not in addresses:
        raise PermanentError(f"{invoice.customer} has no address")  # never tried again: a dead letter at once
    if invoice.customer == "alan" and tries["alan"] == 1:
        raise ConnectionError("the printer is busy")  # any other error: tried again after a pause
    posted = f"posted {invoice.cents} cents to {addresses[invoice.customer]}, try {tries[invoice.customer]}"
    print(f"{posted}\n", end="")  # one write: other threads print too


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        sync.connect(os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/invoices.db") as store,
    ):
        key = f"invoice-{uuid4()}"
        first = store.enqueue(post, Invoice("ada", 1200), key=key)
        again = store.enqueue(post, Invoice("ada", 1200), key=key)
        print("the same message:", first == again, "created again:", again.created)
        ids = [first, *store.enqueue_many(post, [Invoice("alan", 300), Invoice("grace", 900)])]
        work_until_finished(store, ids)

        for letter in store.dead_letters(queue="invoices"):
            print(f"dead letter {letter.payload['customer']}: {letter.last_error}")
        addresses["grace"] = "3 Compiler Row"  # repair the cause
        print("requeued", store.requeue(queue="invoices"))
        work_until_finished(store, ids)

        print("statuses", dict(Counter(status(store, task_id) for task_id in ids)))


def work_until_finished(store: sync.Store, ids: list[TaskId]) -> None:
    """A worker in the background of this program; usually it is a process: `sync.Worker(...).run(signals=True)`."""
    with sync.Worker(store, [post], concurrency=10):
        for task_id in ids:
            while status(store, task_id) not in ("SUCCESS", "ERROR"):
                time.sleep(0.05)


def status(store: sync.Store, task_id: TaskId) -> str:
    task = store.get(task_id)
    return str(task.status) if task else "gone"


if __name__ == "__main__":
    main()
