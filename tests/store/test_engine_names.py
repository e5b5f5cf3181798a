from stepwell import Store


async def test_the_fixture_opens_what_it_says(store: Store, backend: str) -> None:
    assert store.driver.name == backend
