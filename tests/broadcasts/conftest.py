"""Fixtures of the tests of broadcasts."""

from tests.ground.scale import measured, scale

__all__ = ["measured", "scale"]
