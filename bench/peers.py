"""The peers' environments: one for each, with exactly what its lock names."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
LOCKS: Final = Path(__file__).parent / "peers"


def environment(peer: str, uv: str | None) -> Path:
    """The Python of the peer's environment, which is made, or brought up to its lock, if need be."""
    folder = ROOT / f".venv-bench-{peer}"
    python, ready = folder / "bin" / "python", folder / ".ready"
    lock = LOCKS / f"{peer}.txt"
    if ready.exists() and ready.read_text() == lock.read_text():
        return python
    if not python.exists():
        _run(uv, "venv", "--python", sys.executable, str(folder))
    _run(uv, "pip", "sync", "--python", str(python), "--require-hashes", str(lock))
    ready.write_text(lock.read_text())
    return python


def modules(peer: str) -> Path:
    """The folder of a peer that is written for Node: what its lock names is in its `node_modules`."""
    folder, wanted = ROOT / f".venv-bench-{peer}", LOCKS / peer
    lock, ready = (wanted / "package-lock.json").read_text(), folder / ".ready"
    if not ready.exists() or ready.read_text() != lock:
        folder.mkdir(exist_ok=True)
        for file in wanted.iterdir():
            shutil.copy(file, folder)
        npm = shutil.which("npm") or "npm"
        subprocess.run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True)
        ready.write_text(lock)
    return folder


def write_locks(uv: str | None, *, upgrade: bool = True) -> list[Path]:
    """Resolve what each `.in` file asks for into names, versions and hashes."""
    locks = []
    for wanted in sorted(LOCKS.glob("*.in")):
        lock = wanted.with_suffix(".txt")
        options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-emit-index-url"]
        said = ["--no-annotate", "--custom-compile-command", "make bench ARGS=--lock"]
        newer = ["--upgrade"] if upgrade else []
        _run(uv, "pip", "compile", *options, *said, *newer, str(wanted), "--output-file", str(lock))
        locks.append(lock)
    return locks


def _run(uv: str | None, *arguments: str) -> None:
    program = uv or shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    if not Path(program).exists():
        raise RuntimeError(f"no uv at {program}: `make bench` fetches it, or name one with --uv")
    # Never a Python that uv would download.
    surroundings = {"UV_PYTHON_DOWNLOADS": "never", **os.environ}
    subprocess.run([program, *arguments[:1], "--quiet", *arguments[1:]], env=surroundings, check=True)
