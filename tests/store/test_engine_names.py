import pytest

from stepwell import Store
from tests.ground.opened import ENGINES, answers
from tests.ground.stores import BACKENDS


async def test_the_fixture_opens_what_it_says(store: Store, backend: str) -> None:
    assert store.database.driver.name == backend


@pytest.mark.backends(*BACKENDS, reason="what is open in memory is told from a file too")
async def test_no_other_engine_answers_the_question_that_one_is_known_by(store: Store, backend: str) -> None:
    assert [name for name, question in ENGINES.items() if await answers(store, question)] == [backend]
