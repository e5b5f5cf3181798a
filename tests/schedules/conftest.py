"""What tests of schedules take besides."""

from tests.ground.scale import scale

__all__ = ["scale"]
