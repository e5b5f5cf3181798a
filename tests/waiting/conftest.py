"""Fixtures of the tests of waiting."""

from tests.ground.scale import measured, scale

__all__ = ["measured", "scale"]
