"""Tasks that differ in nothing but their input: thousands of them are one task and a list of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import msgspec

from stepwell.records import NewTask


class Alike(Sequence[NewTask]):
    """Tasks like one, each with an input of its own; a task is made when it is asked for."""

    def __init__(self, like: NewTask, inputs: Sequence[str]) -> None:
        self.like = like
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs)

    @overload
    def __getitem__(self, place: int) -> NewTask: ...
    @overload
    def __getitem__(self, place: slice) -> Alike: ...
    def __getitem__(self, place: int | slice) -> NewTask | Alike:
        if isinstance(place, slice):
            return Alike(self.like, self.inputs[place])
        return msgspec.structs.replace(self.like, input=self.inputs[place])


def examples(tasks: Sequence[NewTask]) -> Sequence[NewTask]:
    """Tasks that show all there is in these but for their inputs: one is enough where they are alike."""
    return [tasks.like] if isinstance(tasks, Alike) else tasks


def inputs(tasks: Sequence[NewTask]) -> Sequence[str]:
    """The input of each."""
    return tasks.inputs if isinstance(tasks, Alike) else [task.input for task in tasks]
