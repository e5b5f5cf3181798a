"""Build the wheel, install it into an empty environment and run `stepwell demo` from there.

What is tried is what a user gets: the base dependencies at their locked versions, nothing of this folder on the path.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "stepwell"
SHIPPED = {".py", ".sql", ".typed", ".html", ".css", ".js", ".svg"}  # the last four belong to the dashboard


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    print("+", *command, flush=True)
    subprocess.run([str(part) for part in command], cwd=cwd, env=environment, check=True)


def build(into: Path) -> Path:
    """The wheel is built from the sdist, so that the sdist is known to be complete too."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", into)
    (wheel,) = into.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    expected = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.suffix in SHIPPED and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("stepwell/")}
    if packed != expected:
        sys.exit(f"{wheel.name}: missing {sorted(expected - packed)}, unexpected {sorted(packed - expected)}")
    kinds = ", ".join(f"{sum(name.endswith(kind) for name in packed)} {kind}" for kind in sorted(SHIPPED))
    print(f"{wheel.name}: {kinds}")


def install(uv: str, wheel: Path, into: Path) -> Path:
    """An environment with the locked base dependencies and the wheel; answers its folder of commands."""
    python = into / "bin" / "python"
    run(uv, "venv", "--quiet", "--python", sys.executable, into)
    run(uv, "pip", "sync", "--quiet", "--python", python, "--require-hashes", ROOT / "requirements" / "base.txt")
    run(uv, "pip", "install", "--quiet", "--python", python, "--no-deps", wheel)
    run(uv, "pip", "check", "--quiet", "--python", python)
    return python.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uv", default="uv", help="the uv to use")
    uv = shutil.which(parser.parse_args().uv)
    if uv is None:
        sys.exit("uv was not found: pass --uv, or run `make wheel`")
    with tempfile.TemporaryDirectory(prefix="stepwell-wheel-") as folder:
        temporary = Path(folder)
        wheel = build(temporary / "dist")
        check_contents(wheel)
        commands = install(str(Path(uv).absolute()), wheel, temporary / "venv")
        run(commands / "stepwell", "demo", cwd=temporary)
        shutil.copytree(temporary / "dist", ROOT / "dist", dirs_exist_ok=True)
    print(f"dist/{wheel.name} works")


if __name__ == "__main__":
    main()
