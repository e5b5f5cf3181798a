"""Several versions of one workflow, each under a name of its own."""

from stepwell import Workflow, workflow

NAMES = ("pay_v1", "pay.1.4.2", "pay-2026-01-31", "pay-3f2a9c1", "pay:staging")


def made(name: str) -> Workflow[[int], str]:
    @workflow(name=name)
    async def pay(cents: int) -> str:
        return f"{cents} by {name}"

    return pay


v1, semver, dated, hashed, staged = (made(name) for name in NAMES)
newer = [semver, dated, hashed, staged]
