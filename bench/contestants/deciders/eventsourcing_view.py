"""The read model of eventsourcing: a view in Postgres, which its projection writes an event at a time."""

from typing import Any

from eventsourcing.persistence import Tracking  # type: ignore[import-not-found]
from eventsourcing.postgres import PostgresTrackingRecorder  # type: ignore[import-not-found]
from eventsourcing.projection import Projection, ProjectionRunner  # type: ignore[import-not-found]
from psycopg.sql import SQL

ADD = "insert into bench_model values (%s, 1) on conflict (id) do update set total = bench_model.total + 1"
LONGEST = 150.0  # seconds


class View(PostgresTrackingRecorder):  # type: ignore[misc]
    """A row for each aggregate."""

    def __init__(self, datastore: Any, **options: Any) -> None:
        super().__init__(datastore, **options)
        made = "create table if not exists bench_model (id text primary key, total bigint not null)"
        self.sql_create_statements.append(SQL(made))

    def add(self, id_: str, tracking: Tracking) -> None:
        """One more, and the place of the event."""
        with self.datastore.transaction(commit=True) as cursor:
            self._insert_tracking(cursor, tracking)
            cursor.execute(ADD, (id_,))


class SumsView(Projection[View]):  # type: ignore[misc]
    """Every event adds one."""

    name = "bench_model"

    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        """One more."""
        self.view.add(str(domain_event.originator_id), tracking)


def followed(application: type[Any], settings: dict[str, str], last: int) -> None:
    """Run the projection until it has recorded this event."""
    options = {"application_class": application, "projection_class": SumsView, "view_class": View}
    with ProjectionRunner(**options, env=settings) as runner:
        runner.wait(last, timeout=LONGEST)


def totals(datastore: Any) -> list[int]:
    """What the view says."""
    with datastore.transaction() as cursor:
        cursor.execute("select total from bench_model order by id")
        return [row["total"] for row in cursor.fetchall()]
