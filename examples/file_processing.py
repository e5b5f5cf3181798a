"""Files that arrive in a folder: each is processed once, a broken one waits for repair, and results are files too.

Run it:  python examples/file_processing.py
It uses a temporary SQLite file, or the store that STEPWELL_URL names.
"""

import csv
import hashlib
import io
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from stepwell import PermanentError, RunId, step, sync, workflow

Sales = dict[str, int]  # cents by product


@dataclass(frozen=True)
class File:
    """What is recorded of a file: its name and its text. A path would mean nothing on another machine."""

    name: str
    text: str


@step
def count(file: File) -> Sales:
    print(f"count {file.name}\n", end="")  # one write: other threads print too
    sales: Sales = {}
    for product, cents in csv.reader(io.StringIO(file.text)):
        if not cents.isdigit():
            raise PermanentError(f"{file.name}: {cents} is no amount")  # tried again it would be none either
        sales[product] = sales.get(product, 0) + int(cents)
    return sales


@step(retry=5)
def publish(folder: str, name: str, sales: Sales) -> str:
    """Idempotent: the same name and the same text in every attempt, and a reader never sees half of a file."""
    target = Path(folder) / f"{name}.report"
    draft = target.with_suffix(f".{uuid4()}")
    draft.write_text("".join(f"{product} {cents}\n" for product, cents in sorted(sales.items())))
    draft.replace(target)
    return target.name


@workflow(name="example.file")
def process(file: File, reports: str) -> str:
    return publish(reports, Path(file.name).stem, count(file))


def take(store: sync.Store, folder: Path) -> list[RunId[str]]:
    """Trigger a run for every file. The key is its content: called again and again, each file is processed once."""
    triggers = []
    for path in sorted(folder.glob("*.csv")):
        file = File(path.name, path.read_text())
        key = hashlib.sha256(f"{folder} {file.name} {file.text}".encode()).hexdigest()
        triggers.append(process.trigger(file, str(folder)).options(key=key, require_worker="ignore"))
    return store.trigger_many(triggers)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "monday.csv").write_text("lamp,1900\ndesk,9900\nlamp,1900\n")
        (folder / "tuesday.csv").write_text("desk,many\n")
        with sync.connect(os.environ.get("STEPWELL_URL") or f"sqlite:///{folder}/files.db") as store:
            take(store, folder)
            again = take(store, folder)
            print("looked twice, new runs:", sum(run_id.created for run_id in again))
            sync.Worker(store, [process]).drain()
            show(store, again)

            (folder / "tuesday.csv").write_text("desk,9900\n")  # repaired: another content, another run
            take(store, folder)
            sync.Worker(store, [process]).drain()
        for report in sorted(folder.glob("*.report")):
            print(report.name, report.read_text().split())


def show(store: sync.Store, run_ids: list[RunId[str]]) -> None:
    for run_id in run_ids:
        run = store.get_run(run_id)
        print(run.status, run.last_error or run.output())


if __name__ == "__main__":
    main()
