"""Workflows of a module, beside one that it only imports."""

from stepwell import step, workflow
from tests.runs.sample.mail import send

__all__ = ["send"]

elsewhere = workflow("elsewhere")  # a name, not a definition


@workflow(name="media.resize", retry=4, concurrency=2, dead_letter="media.broken", strict=True)
async def resize(name: str, width: int = 10) -> list[str]:
    """Make it smaller."""
    return [name] * width


@workflow
def crop(name: str) -> bool:
    return bool(name)


the_same = crop


@step
async def fetch(name: str) -> str:
    return name
