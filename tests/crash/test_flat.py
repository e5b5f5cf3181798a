"""A worker that has run for long uses what it used when it was warm, idle or busy: memory, files, threads, connections.

`make soak` lets them run for ten minutes, `make test` for seconds.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

import pytest

from tests.crash.conftest import Scale
from tests.crash.lives import Life, Spans, begin, watch
from tests.crash.site import void_unless
from tests.crash.steady import EVERY, LOT
from tests.crash.vitals import usual
from tests.ground.databases import create_database, drop_database
from tests.ground.stores import chosen_backends, server_address

MIB = 1024 * 1024
WATCHED = ("postgres", "sqlite")
KINDS = ("idle", "busy")
SHORT, LONG = Spans(warm_up=3, whole=6, window=1.5, every=0.25), Spans(warm_up=60, whole=540, window=60, every=1)
MOST_OBJECTS = 200  # of one type, more at the end than at the beginning: what may be under way at one moment
MOST_MORE = {
    "weakref.ReferenceType": 2_000,  # sqlite3 forgets those to its cursors by the hundred, for each connection
    "blocks of memory": 4_000,  # every small object is one, also of a type that the collector does not know
}


@pytest.fixture(scope="module")
def lives(
    scale: Scale, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str, str], Life]:
    """The life of an idle or a busy worker on a database, watched to its end.

    In a soak, which takes minutes, all of them live at the same time; otherwise each does when it is asked for, since
    the tests of this file are spread over the processes of a run.
    """
    found: dict[tuple[str, str], Life] = {}
    chosen = [name for name in chosen_backends(request.config) if name in WATCHED]

    def life(backend: str, kind: str) -> Life:
        if (backend, kind) not in found:
            found.update(lived([(backend, kind)] if not scale.is_full else list(product(chosen, KINDS))))
        return found[backend, kind]

    def lived(together: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Life]:
        with ExitStack() as stack:
            begun: dict[tuple[str, str], Life] = {}
            for backend, kind in together:
                folder = tmp_path_factory.mktemp(f"{backend}-{kind}")
                url = stack.enter_context(_place(backend, folder, request.config))
                begun[backend, kind] = begin(stack, backend, url, folder, busy=kind == "busy")
            watch(begun.values(), scale.of(SHORT, LONG))
            return begun

    return life


@contextmanager
def _place(backend: str, folder: Path, config: pytest.Config) -> Iterator[str]:
    if backend != "postgres":
        yield f"{backend}:///{folder}/store.db"
        return
    server = server_address(config)
    url = create_database(server)
    try:
        yield url
    finally:
        drop_database(url, server)


@pytest.mark.timeout(1200)
@pytest.mark.proves("promise-18")
@pytest.mark.backends(*WATCHED, reason="Turso serves one process: nobody could send messages to its worker")
@pytest.mark.parametrize("kind", [pytest.param("idle", marks=pytest.mark.soak), "busy"])
def test_flat(
    lives: Callable[[str, str], Life], scale: Scale, backend: str, kind: str, measured: Callable[..., None]
) -> None:
    life, seconds = lives(backend, kind), scale.of(SHORT, LONG).whole
    sent = seconds * LOT / EVERY
    void_unless(not life.busy or life.messages >= scale.of(0.3, 0.8) * sent, f"only {life.messages} messages done")
    early, late = usual(life.early), usual(life.late)
    assert (late.files, late.threads, late.connections) == (early.files, early.threads, early.connections)
    assert grown(life) == {}  # a leak is named here; what the allocator keeps after a busy moment is not one
    assert late.memory - early.memory <= scale.of(2, 4) * MIB, (
        f"{early.memory / MIB:.1f} to {late.memory / MIB:.1f} MiB"
    )
    measured(
        "flat",
        kind=kind,
        seconds=seconds,
        messages=life.messages,
        early=early.memory / MIB,
        late=late.memory / MIB,
        files=late.files,
        threads=late.threads,
        connections=late.connections,
    )


def grown(life: Life) -> dict[str, int]:
    """The types of which there are many more objects at the end: what names a leak, long before it is large."""
    first, *_, last = life.counts()
    more = {name: count - first.get(name, 0) for name, count in last.items()}
    return {name: count for name, count in more.items() if count > MOST_MORE.get(name, MOST_OBJECTS)}
