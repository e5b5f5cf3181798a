"""Reading which names a program declares disturbs nothing of it."""

import sys
from types import ModuleType
from typing import Any, NoReturn

import pytest

from stepwell.base.program import _is_loaded, _is_ours, program


class Lazy:
    """An object that makes itself when it is asked for anything, and cannot, as Django's settings."""

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        self.fail()

    def __getattr__(self, name: str) -> NoReturn:
        self.fail()

    def fail(self) -> NoReturn:
        raise RuntimeError("settings are not configured")


@pytest.mark.proves("R-16")
async def test_a_lazy_object_in_a_module_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("lazy_application")
    module.__dict__["lazy_settings_of_a_test"] = Lazy()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    await program()
    assert not _is_loaded("lazy_settings_of_a_test")
    assert not _is_ours(module.__dict__["lazy_settings_of_a_test"])


def test_a_function_and_a_method_of_a_loaded_module_are_found() -> None:
    assert _is_loaded("Lazy.fail")
    assert _is_loaded("test_a_function_and_a_method_of_a_loaded_module_are_found")
    assert not _is_loaded("Lazy.none")
