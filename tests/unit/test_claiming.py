"""What the next claim asks for: free places over queues in turn, and where a backlog goes on."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stepwell.records import TaskKind
from stepwell.store.rows import Claimed
from stepwell.work.demand import PLAIN_EVERY, Demand, Places, shares
from tests.store.seam import asked


def claimed(task_id: int, queue: int = 1, priority: int = 0, run_at: int = 0) -> Claimed:
    unread: dict[str, Any] = {"key": None, "input": None, "wakes": 0}
    numbers: dict[str, Any] = {"turn": 1, "attempt": 1, "max_attempts": 3, "created_at": 0, "suspect": False}
    return Claimed(
        id=task_id, kind=TaskKind.MESSAGE, queue_id=queue, owner=1, priority=priority, run_at=run_at,
        **numbers, **unread,
    )  # fmt: skip


class TestDemand:
    def test_another_queue_is_first_every_time(self) -> None:
        demand = Demand(5, {1: None, 2: None, 3: None})
        order = [[queue for queue, _ in asked(demand)] for _ in range(4)]
        assert order == [[2, 3, 1], [3, 1, 2], [1, 2, 3], [2, 3, 1]]

    def test_a_queue_without_a_limit_may_take_all_that_is_free(self) -> None:
        demand = Demand(5, {1: None, 2: 2, 3: 9})
        assert sorted(asked(demand)) == [(1, 5), (2, 2), (3, 5)]
        for queue in (1, 2, 3):
            demand.take(queue)
        assert (demand.free, demand.busy) == (2, 3)
        assert sorted(asked(demand)) == [(1, 2), (2, 1), (3, 2)]
        demand.take(2)
        assert sorted(asked(demand)) == [(1, 1), (3, 1)]
        demand.take(1)
        assert asked(demand) == []
        demand.give_back(2)
        assert sorted(asked(demand)) == [(1, 1), (2, 1), (3, 1)]

    def test_a_worker_of_nothing_wants_nothing(self) -> None:
        assert asked(Demand(5, {})) == []
        assert asked(Demand(0, {1: None})) == []

    def test_a_queue_of_batches_has_a_claim_of_its_own_and_a_place_of_it_holds_a_batch(self) -> None:
        demand = Demand(4, {1: None, 2: 3, 3: None}, {2: 10})
        assert demand.turns() == [(2,), (3, 1)]
        assert demand.turns() == [(3, 1), (2,)]
        assert (demand.wanted((2,)), demand.batch(2), demand.batch(1)) == ([(2, 30)], 10, 1)
        demand.take(2)
        assert (demand.free, demand.wanted((2,)), demand.wanted((1, 3))) == (3, [(2, 20)], [(1, 3), (3, 3)])

    def test_the_queues_of_each_lease_have_a_claim_of_their_own(self) -> None:
        demand = Demand(4, {1: None, 2: None, 3: None, 4: None}, {4: 10}, {1: 30.0, 2: 300.0, 3: 30.0, 4: 300.0})
        assert demand.turns() == [(2,), (3, 1), (4,)]
        assert demand.turns() == [(3, 1), (4,), (2,)]

    def test_other_queues_leave_the_places_that_are_taken(self) -> None:
        demand = Demand(2, {1: None, 2: None})
        demand.take(1)
        demand.serve({2: None, 3: None}, {}, {})
        assert (demand.free, sorted(asked(demand))) == (1, [(2, 1), (3, 1)])
        demand.give_back(1)
        assert demand.free == 2

    @given(
        concurrency=st.integers(1, 20),
        limits=st.lists(st.none() | st.integers(1, 5), min_size=1, max_size=5),
        turns=st.lists(st.integers(0, 4), max_size=60),
    )
    def test_no_limit_is_ever_passed(self, concurrency: int, limits: list[int | None], turns: list[int]) -> None:
        demand = Demand(concurrency, dict(enumerate(limits)))
        busy = dict.fromkeys(range(len(limits)), 0)
        for turn in turns:
            wanted = dict(asked(demand))
            queue = turn % len(limits)
            room = min(concurrency - sum(busy.values()), 99 if (most := limits[queue]) is None else most - busy[queue])
            assert wanted.get(queue, 0) == max(0, room)
            if room > 0:
                demand.take(queue)
                busy[queue] += 1
            elif busy[queue]:
                demand.give_back(queue)
                busy[queue] -= 1
            assert demand.free == concurrency - sum(busy.values())


class TestPlaces:
    def test_the_first_claim_is_from_the_beginning(self) -> None:
        assert Places().above([(1, 5)], 0.0) == []

    def test_in_a_backlog_the_claim_goes_on_where_it_ended_urgent_first(self) -> None:
        places = Places()
        tasks = [
            claimed(9, priority=5, run_at=30),
            claimed(7, priority=0, run_at=10),
            claimed(8, priority=0, run_at=10),
        ]
        places.claimed(tasks, 3, 0.0, plain=True)
        assert places.above([(1, 4)], 0.1) == [(1, 4, 5, 30, 9), (1, 4, 0, 10, 8)]

    def test_a_place_only_moves_forward(self) -> None:
        places = Places()
        places.claimed([claimed(9, run_at=30)], 1, 0.0, plain=True)
        places.claimed([claimed(12, run_at=20)], 1, 0.1, plain=False)
        assert places.above([(1, 1)], 0.2) == [(1, 1, 0, 30, 9)]
        places.claimed([claimed(3, run_at=31)], 1, 0.2, plain=False)
        assert places.above([(1, 1)], 0.3) == [(1, 1, 0, 31, 3)]

    def test_once_a_second_it_looks_behind(self) -> None:
        places = Places()
        places.claimed([claimed(9)], 1, 10.0, plain=True)
        places.claimed([claimed(10)], 1, 10.5, plain=False)
        assert places.above([(1, 1)], 10.0 + PLAIN_EVERY - 0.01)
        assert places.above([(1, 1)], 10.0 + PLAIN_EVERY) == []
        places.claimed([claimed(2)], 1, 11.0, plain=True)
        assert places.above([(1, 1)], 11.1) == [(1, 1, 0, 0, 2)]  # what it knew before is forgotten

    def test_without_a_backlog_it_forgets_everything(self) -> None:
        places = Places()
        places.claimed([claimed(9), claimed(10)], 2, 0.0, plain=True)
        places.claimed([claimed(11)], 2, 0.1, plain=False)
        assert places.above([(1, 2)], 0.2) == []

    def test_a_queue_without_a_place_is_looked_at_from_the_beginning(self) -> None:
        places = Places()
        places.claimed([claimed(9, queue=1)], 1, 0.0, plain=True)
        assert places.above([(1, 1), (2, 1)], 0.1) == []
        places.claimed([claimed(5, queue=1), claimed(6, queue=2)], 2, 0.1, plain=True)
        assert places.above([(2, 3), (1, 1)], 0.2) == [(2, 3, 0, 0, 6), (1, 1, 0, 0, 5)]


class TestShares:
    def test_a_plain_queue_gives_every_task_its_place(self) -> None:
        tasks = [claimed(1), failed(2)]
        assert list(shares(tasks, 1)) == [((tasks[0],),), ((tasks[1],),)]

    def test_what_has_failed_before_is_called_alone_within_its_share(self) -> None:
        tasks = [claimed(1), failed(2), claimed(3), failed(4), failed(5)]
        assert list(shares(tasks, 3)) == [((tasks[0], tasks[2]), (tasks[1],)), ((tasks[3],), (tasks[4],))]

    @given(suspects=st.lists(st.booleans(), max_size=60), batch=st.integers(1, 20))
    def test_nothing_is_lost_or_doubled_and_no_more_places_are_used_than_were_asked_for(
        self, suspects: list[bool], batch: int
    ) -> None:
        tasks = [failed(number) if suspect else claimed(number) for number, suspect in enumerate(suspects)]
        given_out = list(shares(tasks, batch))
        assert len(given_out) == -(-len(tasks) // batch)
        assert sorted(task.id for calls in given_out for call in calls for task in call) == list(range(len(tasks)))
        assert all(len(call) == 1 or not any(task.suspect for task in call) for calls in given_out for call in calls)


def failed(task_id: int) -> Claimed:
    return msgspec.structs.replace(claimed(task_id), suspect=True)
