"""Fixtures of the tests of deciders. The same races run small in `make test` and whole in `make soak`."""

from tests.ground.scale import Scale, measured, scale

__all__ = ["Scale", "measured", "scale"]
