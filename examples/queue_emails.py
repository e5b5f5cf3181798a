"""Emails through a durable queue: retries, a timeout, a key against duplicates, dead letters and requeue.

Run it:  python examples/queue_emails.py
It uses a temporary SQLite file, or the store that STEPWELL_URL names.
"""

import asyncio
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from uuid import uuid4

from stepwell import PermanentError, Retry, Store, TaskId, Worker, connect, handler


@dataclass
class Email:
    to: str
    subject: str


mailboxes = {"ada@example.org", "slow@example.org", "busy@example.org"}
tries: Counter[str] = Counter()


@handler("emails", retry=Retry(3, base=0.1), timeout="500ms")
async def send(email: Email) -> None:
    tries[email.to] += 1
    if email.to not in mailboxes:
        raise PermanentError(f"no mailbox {email.to}")  # never tried again: a dead letter at once
    if email.to.startswith("busy") and tries[email.to] == 1:
        raise ConnectionError("mail server is busy")  # any other error: tried again after a pause
    if email.to.startswith("slow") and tries[email.to] == 1:
        await asyncio.sleep(60)  # ended by the timeout, and tried again
    print(f"sent {email.subject!r} to {email.to}, try {tries[email.to]}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with connect(os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/emails.db") as store:
            ids = await enqueue(store)
            await work_until_finished(store, ids)

            for letter in await store.dead_letters(queue="emails"):
                print(f"dead letter {letter.payload['to']}: {letter.last_error}")
            mailboxes.add("grace@example.org")  # repair the cause
            print("requeued", await store.requeue(queue="emails"))
            await work_until_finished(store, ids)

            print("statuses", dict(Counter([await status(store, task_id) for task_id in ids])))


async def enqueue(store: Store) -> list[TaskId]:
    """When `enqueue` returns, the message is committed. It is handled even if every process dies."""
    key = f"welcome-ada-{uuid4()}"
    first = await store.enqueue(send, Email("ada@example.org", "Welcome"), key=key)
    again = await store.enqueue(send, Email("ada@example.org", "Welcome"), key=key)
    print("the same message:", first == again, "created again:", again.created)
    others = ["slow@example.org", "busy@example.org", "grace@example.org"]
    return [first, *await store.enqueue_many(send, [Email(to, "News") for to in others])]


async def work_until_finished(store: Store, ids: list[TaskId]) -> None:
    """A worker in the background of this program; usually it is a process: `await Worker(...).run(signals=True)`."""
    async with Worker(store, [send], concurrency=10):
        for task_id in ids:
            while await status(store, task_id) not in ("SUCCESS", "ERROR"):
                await asyncio.sleep(0.05)


async def status(store: Store, task_id: TaskId) -> str:
    task = await store.get(task_id)
    return str(task.status) if task else "gone"


if __name__ == "__main__":
    asyncio.run(main())
