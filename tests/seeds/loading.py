"""The programs of the source documents, run as they stand there: only the package has another name.

Those that stand there in Rust are told in Python, line by line. Where a text leaves names out a test supplies them,
and the address in the text leads to the test's own database.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stepwell

if TYPE_CHECKING:
    from types import ModuleType

    import pytest

    from stepwell import Store

PROGRAMS = Path(__file__).parent / "programs"
ADDRESSES = {"postgresql://localhost/mydb", "postgres://localhost/mydb"}


def loaded(program: str, **names: Any) -> ModuleType:
    """The program as a module of its own, new each time, with the names that its text leaves out."""
    spec = importlib.util.spec_from_file_location(f"seeds_{program}", PROGRAMS / f"{program}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module).update(names)
    sys.modules[spec.name] = module  # its classes are looked up there
    spec.loader.exec_module(module)
    return module


class Site:
    """Where the programs run: what they open at their address is the test's database, and is closed at the end."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connect = stepwell.connect
        self._opened: list[Store] = []

    async def connect(self, address: str) -> Store:
        """Open the store, as `stepwell.connect` does."""
        assert address in ADDRESSES
        store = await self._connect(self.url)
        self._opened.append(store)
        return store

    def stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have programs that import `connect` get this one."""
        monkeypatch.setattr(stepwell, "connect", self.connect)

    async def close(self) -> None:
        """Close what the programs left open."""
        for store in self._opened:
            await store.close()
