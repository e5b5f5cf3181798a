"""The same program in processes that hash differently: sets of texts have another order in each."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SEEDS: Final = ("1", "2", "3")


def printed_by_each(program: str) -> list[str]:
    """What the program prints in each of them; all have to end well."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for seed in SEEDS
    ]
    printed = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(SEEDS)
    return printed
