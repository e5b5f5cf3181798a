from tests.store.conftest import prepared

__all__ = ["prepared"]
