"""What a broken rule looks like."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule broken: `rule` is replaced by `broken` in a file below src/stepwell, and `test` must go red."""

    name: str
    proves: str
    file: str
    rule: str
    broken: str
    test: str
