"""A module whose workflow others import."""

from stepwell import workflow


@workflow
async def send(address: str) -> None: ...
