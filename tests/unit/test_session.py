"""What a session concludes from its beats: that it is dead, or that it owns what it does not hold."""

from typing import Any

from stepwell.records import TaskKind
from stepwell.store.rows import Claimed, Owned
from stepwell.work.session import Session


class Heard:
    """A session, and what it told its worker."""

    def __init__(self) -> None:
        self.lost: list[Session] = []
        self.orphans: list[Owned] = []
        self.session = Session(7, self.lost.append, lambda _, orphans: self.orphans.extend(orphans), lease=30.0)

    def beat(self, sent_at: float, *owned: Owned, alive: bool = True) -> None:
        self.session.beaten(alive, list(owned), sent_at)


def owned(task_id: int, turn: int = 1) -> Owned:
    return Owned(worker_id=7, task_id=task_id, turn=turn)


def claimed(task_id: int, turn: int = 1) -> Claimed:
    rest: dict[str, Any] = {"key": None, "input": None, "wakes": 0}
    return Claimed(
        id=task_id, kind=TaskKind.MESSAGE, queue_id=1, owner=7, turn=turn, attempt=1, max_attempts=3, priority=0,
        run_at=0, created_at=0, suspect=False, **rest,
    )  # fmt: skip


def test_a_session_hears_of_its_death_once() -> None:
    heard = Heard()
    heard.beat(1.0)
    assert not heard.session.lost
    heard.beat(2.0, alive=False)
    heard.beat(3.0, alive=False)
    assert heard.session.lost
    assert heard.lost == [heard.session]


def test_what_is_held_is_no_orphan() -> None:
    heard = Heard()
    heard.session.claiming(0.5)
    heard.session.claimed([claimed(1), claimed(2)])
    for moment in (1.0, 2.0, 3.0):
        heard.beat(moment, owned(1), owned(2))
    assert heard.orphans == []
    assert heard.session.held == {1: 1, 2: 1}


def test_what_is_owned_and_not_held_at_two_beats_is_given_back() -> None:
    heard = Heard()
    heard.session.claiming(0.5)
    heard.session.claimed([])  # its reply was lost
    heard.beat(1.0, owned(1))
    assert heard.orphans == []
    heard.beat(2.0, owned(1))
    assert heard.orphans == [owned(1)]


def test_a_claim_under_way_looks_just_the_same_and_is_waited_for() -> None:
    heard = Heard()
    heard.session.claiming(0.5)
    for moment in (1.0, 2.0, 3.0):
        heard.beat(moment, owned(1))
    assert heard.orphans == []
    heard.session.claimed([claimed(1)])
    heard.beat(4.0, owned(1))
    assert heard.orphans == []


def test_a_claim_that_began_between_the_beats_does_not_hide_an_orphan_for_ever() -> None:
    heard = Heard()
    heard.beat(1.0, owned(1))
    heard.session.claiming(1.5)
    heard.beat(2.0, owned(1), owned(2))
    assert heard.orphans == [owned(1)]  # the claim that is under way began after it had been seen
    heard.session.claimed([claimed(2)])
    heard.beat(3.0, owned(2))
    assert heard.orphans == [owned(1)]


def test_a_beat_that_was_sent_before_the_claim_and_answered_after_it_accuses_nobody() -> None:
    heard = Heard()
    heard.session.claiming(1.5)
    heard.beat(1.0, owned(1))  # sent before, read after the claim had committed
    heard.session.claimed([claimed(1)])
    heard.session.settled(1, 1)
    heard.session.claiming(1.8)
    heard.beat(2.0, owned(1, turn=2))
    heard.session.claimed([claimed(1, turn=2)])
    heard.beat(3.0, owned(1, turn=2))
    assert heard.orphans == []


def test_another_turn_of_a_held_task_is_not_held() -> None:
    heard = Heard()
    heard.session.claimed([claimed(1, turn=2)])
    heard.beat(1.0, owned(1, turn=1))
    heard.beat(2.0, owned(1, turn=1))
    assert heard.orphans == [owned(1, turn=1)]
    heard.session.settled(1, 1)
    assert heard.session.held == {1: 2}
    heard.session.settled(1, 2)
    heard.session.settled(1, 2)
    assert heard.session.held == {}


def test_an_orphan_that_was_settled_meanwhile_starts_anew() -> None:
    heard = Heard()
    heard.beat(1.0, owned(1))
    heard.beat(2.0)
    heard.beat(3.0, owned(1))
    assert heard.orphans == []
