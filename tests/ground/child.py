"""Run a module as a program that dies with its parent: `python child.py PARENT_PID MODULE [ARGUMENT...]`.

Started by path, not by name, so that it works in any folder. It asks the kernel for its own end instead of
having the parent do so between fork and exec, where a program with threads must not run Python.
"""

import ctypes
import os
import runpy
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel SIGKILL this process when the thread that started it ends; leave at once if it already has."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    """Become `python -m MODULE ARGUMENT...`."""
    parent, module, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    die_with_parent(parent)
    sys.path[0] = str(Path.cwd())
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
