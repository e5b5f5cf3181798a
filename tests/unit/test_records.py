"""The plain values behave as the plain values they stand for."""

from __future__ import annotations

import copy
import json
import pickle
from enum import StrEnum

import pytest

from stepwell.records import CancelAnswer, Page, RunStatus, SignalAnswer, TaskId, TaskKind
from stepwell.store.why import Reason
from stepwell.values import codec


def test_a_status_is_its_text() -> None:
    assert RunStatus.SUCCESS == "SUCCESS"
    assert [status for status in RunStatus if status.finished] == ["SUCCESS", "ERROR", "CANCELLED"]


@pytest.mark.parametrize("public", [RunStatus, CancelAnswer, SignalAnswer, Reason])
def test_the_text_of_an_answer_is_its_name(public: type[StrEnum]) -> None:
    assert [str(one) for one in public] == [one.name for one in public]


def test_the_kinds_of_task() -> None:
    assert list(TaskKind) == ["MESSAGE", "RUN", "EFFECT", "TIMER", "INPUT", "OUTBOX"]


def test_a_task_id_is_an_int_that_knows_if_it_is_new() -> None:
    task_id = TaskId.found(5)
    assert task_id == 5
    assert task_id.created is False
    assert repr(task_id) == str(task_id) == f"{task_id}" == "5"
    assert json.dumps(task_id) == codec.encode(task_id) == "5"
    assert {5: "same"}[task_id] == "same"
    assert pickle.loads(pickle.dumps(task_id)).created is copy.copy(task_id).created is False


def test_a_page_is_a_list_with_a_next() -> None:
    page = Page([1, 2], next="cursor")
    assert page == [1, 2]
    assert page.next == "cursor"
    assert Page[int]().next is None
