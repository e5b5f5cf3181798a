"""Pytest plugin: a fresh store on every database, through one fixture.

A test that asks for `backend` (or `store_url`, which does) runs once per backend. `--backend sqlite,postgres`
restricts a run; `@pytest.mark.backends("postgres", reason="...")` restricts a test. The conformance suite runs on
`memory` too: what is asked of one store in one process. A test that has to open it a second time does not, since
nobody else finds a store in memory. One Postgres server serves the whole run: the process that owns the run starts
it when first needed, and xdist's workers are told its address. `STEPWELL_TEST_POSTGRES` names a server to use
instead; databases are created and dropped on it.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.ground.databases import create_database, drop_database, host_and_port
from tests.ground.faultproxy import FaultProxy
from tests.ground.installed import (
    forget_database,
    installed_database,
    installed_file,
    installed_memory,
    installed_worlds,
)
from tests.ground.postgres import PostgresServer

DATABASES = ("sqlite", "turso", "postgres")
BACKENDS = (*DATABASES, "memory")
CONFORMANCE = frozenset({"deciders", "outbox", "queue", "results", "runs", "waiting", "workflows"})  # folders of tests
STORES = frozenset({"store", "live_store"})

_NEED_POSTGRES = {"postgres_url", "postgres_server", "proxy", "proxied_url"}
_SERVER = pytest.StashKey[PostgresServer]()
_ADDRESS = "stepwell_postgres"


class Node(Protocol):
    """An xdist worker as the process that owns the run sees it."""

    config: pytest.Config
    workerinput: dict[str, Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend",
        default=",".join(BACKENDS),
        help=f"comma-separated databases to test on (default: {','.join(BACKENDS)})",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "backends(*names, reason): run only on these databases, for this reason")
    if unknown := set(chosen_backends(config)) - set(BACKENDS):
        raise pytest.UsageError(f"--backend: unknown {', '.join(sorted(unknown))}; there are {', '.join(BACKENDS)}")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Node) -> None:
    """Tell an xdist worker where the one server is."""
    if "postgres" in chosen_backends(node.config):
        node.workerinput[_ADDRESS] = server_address(node.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if os.environ.get("STEPWELL_TEST_POSTGRES"):
        forget_database(config, server_address(config))
    if server := config.stash.get(_SERVER, None):
        server.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        wanted = wanted_backends(metafunc.definition)
        names = [name for name in chosen_backends(metafunc.config) if name in wanted]
        metafunc.parametrize("backend", names, ids=names, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what none of the chosen backends can run, instead of counting it as skipped."""
    left_out = [item for item in items if not _is_wanted(item, chosen_backends(config))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def chosen_backends(config: pytest.Config) -> list[str]:
    """Return the backends of this run."""
    chosen: str = config.getoption("--backend")
    return [name.strip() for name in chosen.split(",") if name.strip()]


def wanted_backends(test: pytest.Item) -> Sequence[str]:
    """Return the backends a test is meant for; a test that leaves some out must say why."""
    marker = test.get_closest_marker("backends")
    if marker is None:
        return BACKENDS if _is_conformance(test) else DATABASES
    if not marker.kwargs.get("reason"):
        pytest.fail(f"{test.nodeid}: @pytest.mark.backends needs a reason", pytrace=False)
    if not marker.args or not set(marker.args) <= set(BACKENDS):
        pytest.fail(f"{test.nodeid}: @pytest.mark.backends takes names out of {', '.join(BACKENDS)}", pytrace=False)
    return marker.args


def _is_conformance(test: pytest.Item) -> bool:
    """True if the test needs no other way to what it stores than its one store; reports tell of databases only."""
    info: Any = test._fixtureinfo  # type: ignore[attr-defined]
    asking = {name for name, used in info.name2fixturedefs.items() if any("store_url" in one.argnames for one in used)}
    is_one_store = bool(asking) and asking <= STORES and "store_url" not in info.argnames
    return test.path.parent.name in CONFORMANCE and is_one_store and "measured" not in info.names_closure


def server_address(config: pytest.Config) -> str:
    """Return the address of the run's Postgres server, starting it if this process owns the run."""
    if named := os.environ.get("STEPWELL_TEST_POSTGRES"):
        return named
    told: dict[str, Any] = getattr(config, "workerinput", {})
    if _ADDRESS in told:
        address: str = told[_ADDRESS]
        return address
    if _SERVER not in config.stash:
        server = PostgresServer()
        config.stash[_SERVER] = server.__enter__()
    return config.stash[_SERVER].url()


def _is_installed(request: pytest.FixtureRequest) -> bool:
    return not STORES.isdisjoint(request.fixturenames)


@pytest.fixture(scope="session", autouse=True)
def worlds_begin_with_the_schema(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A world installs nothing: what does is tested by name, in tests/store and tests/cli."""
    with pytest.MonkeyPatch.context() as patch:
        installed_worlds(request.config, patch, tmp_path_factory)
        yield


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the database this test runs on: `sqlite`, `turso`, `postgres` or `memory`."""
    name: str = request.param
    return name


@pytest.fixture
def store_url(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The address of a fresh place on the backend; empty, unless the test asks for a store in it as well."""
    if backend == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        return url
    factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    if backend == "memory":
        installed_memory(request.config, request.getfixturevalue("monkeypatch"), factory)
        return "memory:"
    if _is_installed(request):
        installed_file(request.config, backend, tmp_path / "store.db", factory)
    return f"{backend}:///{tmp_path}/store.db"


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a fresh database on the run's Postgres server, dropped afterwards; empty as `store_url` is."""
    server = server_address(request.config)
    url = installed_database(request.config, server) if _is_installed(request) else create_database(server)
    yield url
    drop_database(url, server)


@pytest.fixture
def postgres_server() -> Iterator[PostgresServer]:
    """A Postgres server of this test's own, to be killed and restarted at will."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[FaultProxy]:
    """A fault proxy, in its own thread, before the server of `postgres_url`."""
    with FaultProxy.in_thread(*host_and_port(postgres_url)) as proxy:
        yield proxy


@pytest.fixture
def proxied_url(proxy: FaultProxy, postgres_url: str) -> str:
    """The address of the database of `postgres_url`, through `proxy`."""
    return proxy.url(postgres_url)


def _is_wanted(item: pytest.Item, chosen: Sequence[str]) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    if "backend" in fixtures:
        call = getattr(item, "callspec", None)
        return call is not None and call.params.get("backend") in BACKENDS
    return "postgres" in chosen or not fixtures & _NEED_POSTGRES
