"""Opening a store: `connect` and its options.

The URL picks the database; its query may hold any option of `connect`, so that a command line or an environment
variable can set it. A driver is imported only when its kind of store is opened.
"""

from __future__ import annotations

import contextlib
import operator
import os
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, cast, get_args
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from stepwell.base.backoff import Retry
from stepwell.base.clock import Clock, DatabaseClock
from stepwell.base.durations import SHORTEST_SPAN, Duration, seconds_of
from stepwell.base.events import PoolerFound
from stepwell.base.names import check_key, check_schema
from stepwell.base.redaction import redact_option, redact_url
from stepwell.base.telemetry import Telemetry
from stepwell.errors import (
    CannotOpen,
    DriverMissing,
    InvalidOption,
    StoreUnavailable,
    StoreUnusable,
    UnknownStore,
)
from stepwell.store import schema
from stepwell.store import schema as schema_
from stepwell.store.audit import AuditLevel
from stepwell.store.database import Options
from stepwell.store.driver import Driver
from stepwell.store.run_log import LogLevel
from stepwell.store.sql import Statements
from stepwell.store.store import Store
from stepwell.values.codec import PAYLOAD_LIMIT
from stepwell.values.encryption import Encrypted
from stepwell.values.named_codecs import Codec, codec_of
from stepwell.values.own_types import Type, check_types

if TYPE_CHECKING:
    from stepwell.store.store import Store


URL_VARIABLE: Final = "STEPWELL_URL"
DEFAULT_URL: Final = "sqlite:///stepwell.db"


class Config:
    """Where the store is and how to open it; takes the options of `connect`, also from the URL's query."""

    def __init__(
        self,
        url: str | None = None,
        *,
        schema: str = "stepwell",
        install: bool = True,
        lease: Duration = 30,
        beat: Duration | None = None,
        pool: int = 10,
        timeout: Duration = 10,
        payload_limit: int = PAYLOAD_LIMIT,
        retry: int | Retry = 3,
        visibility: Duration = 30,
        pause_check_interval: Duration = "1h",
        keep: Duration | None = "7d",
        keep_dead_letters: Duration | None = None,
        unreadable_after: Duration = "7d",
        tenant: str | None = None,
        listen: bool | str = True,
        helper: bool = True,
        hang_after: Duration | None = None,
        audit: AuditLevel = "problems",
        seal_audit: bool = False,
        keep_audit: Duration | None = "30d",
        codec: Codec | str | None = None,
        types: Iterable[Type[Any]] = (),
        logs: LogLevel = "info",
        clock: Clock | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        if url is not None and (not isinstance(url, str) or not url):
            shown = url if not url else f"a {type(url).__name__}"  # not shown as it is: it may hold a password
            raise InvalidOption("url", shown, "it is text like sqlite:///shop.db, or None for what STEPWELL_URL says")
        if types:
            check_types(types)
        place, said = _split(url or os.environ.get(URL_VARIABLE) or DEFAULT_URL)
        self.url = place
        self.schema = check_schema(said.get("schema", schema))
        self.install = _truth("install", said.get("install", install))
        self.pool = _whole("pool", said.get("pool", pool), least=4)
        lease = _span("lease", said.get("lease", lease))
        codec_ = said.get("codec", codec)
        self.encrypted = Encrypted.of(codec_)
        codec_ = codec_ if self.encrypted is None else self.encrypted.codec
        self.options = Options(
            lease=lease,
            beat=None if (beat_ := said.get("beat", beat)) is None else _beat(beat_, lease),
            timeout=_span("timeout", said.get("timeout", timeout)),
            payload_limit=_whole("payload_limit", said.get("payload_limit", payload_limit), least=1),
            retry=_retry(said.get("retry", retry)),
            visibility=_span("visibility", said.get("visibility", visibility)),
            pause_check_interval=_span("pause_check_interval", said.get("pause_check_interval", pause_check_interval)),
            keep=_kept("keep", said.get("keep", keep)),
            keep_dead_letters=_kept("keep_dead_letters", said.get("keep_dead_letters", keep_dead_letters)),
            unreadable_after=_span("unreadable_after", said.get("unreadable_after", unreadable_after)),
            tenant=check_key(tenant_, "tenant") if (tenant_ := said.get("tenant", tenant)) else "",
            audit=_one_of("audit", said.get("audit", audit), get_args(AuditLevel)),
            seal_audit=_truth("seal_audit", said.get("seal_audit", seal_audit)),
            keep_audit=_kept("keep_audit", said.get("keep_audit", keep_audit)),
            codec=codec_of(codec_),
            encrypted=self.encrypted is not None,
            logs=_one_of("logs", said.get("logs", logs), get_args(LogLevel)),
            helper=_truth("helper", said.get("helper", helper)),
            hang_after=_hang_after(said.get("hang_after", hang_after), lease),
            listen=bool(listen_ := _listen(said.get("listen", listen), place)),
        )
        self.listen_url = listen_ if isinstance(listen_, str) else None
        self.clock = clock or DatabaseClock()
        self.telemetry = telemetry or Telemetry()

    def __repr__(self) -> str:
        return f"Config({redact_url(self.url)!r})"


class Opening:
    """A store about to be opened: await it, or enter it with `async with` to have it closed at the end."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._store: Store | None = None

    def __await__(self) -> Generator[Any, None, Store]:
        return open_store(self._config).__await__()

    async def __aenter__(self) -> Store:
        self._store = await open_store(self._config)
        return self._store

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            await self._store.close()


class ConnectOptions(TypedDict, total=False):
    """The options of `connect` besides the URL; each may also stand in the URL's query, which takes precedence."""

    schema: str
    install: bool
    lease: Duration
    beat: Duration | None
    pool: int
    timeout: Duration
    payload_limit: int
    retry: int | Retry
    visibility: Duration
    pause_check_interval: Duration
    keep: Duration | None
    keep_dead_letters: Duration | None
    unreadable_after: Duration
    tenant: str | None
    listen: bool | str
    helper: bool
    hang_after: Duration | None
    audit: AuditLevel
    seal_audit: bool
    keep_audit: Duration | None
    codec: Codec | str | None
    types: Iterable[Type[Any]]
    logs: LogLevel
    clock: Clock | None
    telemetry: Telemetry | None


def connect(url: str | None = None, /, **options: Unpack[ConnectOptions]) -> Opening:
    """Open the store that a URL names: await the result, or enter it with `async with`.

    `sqlite:///file.db`, `turso:///file.db`, `postgresql://...` or `memory:`; without a URL, what `STEPWELL_URL` says,
    else `sqlite:///stepwell.db`. The schema is installed unless `install=False`.
    """
    return connect_with(configured(url, options))


def configured(url: str | None, options: ConnectOptions) -> Config:
    """The options of `connect`; an unknown option is refused with a list of the known ones."""
    known = ConnectOptions.__annotations__
    for option, value in options.items():
        if option not in known:
            raise InvalidOption(option, redact_option(option, value), f"options are {', '.join(known)}")
    return Config(url, **options)


def connect_with(config: Config) -> Opening:
    """Open the store a `Config` describes."""
    return Opening(config)


async def open_store(config: Config) -> Store:
    """Open the driver, bring the schema up to date, and return the store."""
    scheme = config.url.partition(":")[0]
    statements = Statements("postgres" if scheme.startswith("postgres") else "sqlite", config.schema)
    driver = _driver(config, scheme, statements)
    try:
        await _opened(driver, config.url)
        if driver.pooled:
            config.telemetry.emit(PoolerFound())
        if config.install:
            await schema_.install(driver, statements)
        else:
            await schema_.check_version(driver, statements)
        if config.encrypted is not None:
            driver, secret = await _sealed(driver, config, config.encrypted, statements)
            return Store(driver, statements, replace(config.options, secret=secret), config.clock, config.telemetry)
        return Store(driver, statements, config.options, config.clock, config.telemetry)
    except BaseException:
        await driver.close()
        raise


async def _sealed(driver: Driver, config: Config, encrypted: Encrypted, statements: Statements) -> tuple[Driver, bytes]:
    """The driver with what it writes sealed, the data key of this tenant unwrapped, and the secret of its hashes."""
    try:
        from stepwell.store.sealed_calls import class_in  # noqa: PLC0415
        from stepwell.store.sealed_driver import SealedDriver  # noqa: PLC0415
    except ImportError as error:
        raise DriverMissing("encryption") from error
    sealed = SealedDriver(driver, statements, encrypted.keys, config.options.tenant, config.clock)
    await sealed.unlock()
    config.telemetry.tells = class_in
    return cast("Driver", sealed), sealed.cipher.secret


async def _opened(driver: Driver, url: str) -> None:
    try:
        await driver.open()
    except StoreUnusable as error:
        raise CannotOpen(url, f"{error.why}; does it exist, and may this user open it?") from error
    except StoreUnavailable as error:
        raise CannotOpen(url, f"{error.why}; check the address, and that the server runs") from error


def _driver(config: Config, scheme: str, statements: Statements) -> Driver:
    # Imported here: opening SQLite must neither need nor load the driver of another database.
    timeout = config.options.timeout
    match scheme:
        case "memory" | "sqlite":
            from stepwell.store.embedded.sqlite import open_sqlite  # noqa: PLC0415

            path = None if scheme == "memory" else file_of(config.url)
            return open_sqlite(None if path == ":memory:" else path, statements, timeout=timeout)
        case "turso":
            try:
                from stepwell.store.embedded.turso import open_turso  # noqa: PLC0415
            except ImportError as error:
                raise DriverMissing("turso") from error
            return open_turso(file_of(config.url), statements, timeout=timeout)
        case "postgresql" | "postgres":
            try:
                from stepwell.store.postgres.driver import Postgres  # noqa: PLC0415
            except ImportError as error:
                raise DriverMissing("postgres") from error
            return Postgres(config.url, statements, pool=config.pool, timeout=timeout, listen_url=config.listen_url)
        case _:
            raise UnknownStore(config.url)


_OURS: Final = frozenset(ConnectOptions.__annotations__) - {"clock", "telemetry", "types"}  # those are no text


def _split(url: str) -> tuple[str, dict[str, Any]]:
    """The URL without our options, and our options; the rest of the query belongs to the driver."""
    parts = None
    with contextlib.suppress(ValueError):  # not chained: its message shows the password
        parts = urlsplit(url)
    if parts is None:
        raise UnknownStore(url.partition("?")[0])  # the query may hold another password that is not recognised as one
    said = parse_qsl(parts.query, keep_blank_values=True)
    theirs = [(name, value) for name, value in said if name not in _OURS]
    if theirs and not parts.scheme.startswith("postgres"):
        name, value = theirs[0]
        raise InvalidOption(name, redact_option(name, value), f"a store's URL takes {', '.join(sorted(_OURS))}")
    bare = url.partition("?")[0]  # not joined again from its parts: that would lose slashes of a file's path
    return (f"{bare}?{urlencode(theirs)}" if theirs else bare), {name: value for name, value in said if name in _OURS}


def file_of(url: str) -> str:
    """The file of an embedded store: `sqlite:///relative.db`, `sqlite:////absolute.db`."""
    _, _, rest = url.partition("://")
    if not rest.startswith("/") or len(rest) < 2:
        raise UnknownStore(url)
    return unquote(rest[1:])


def _span(option: str, value: Any) -> float:
    span = seconds_of(value, option)  # a bare number in a URL is seconds too
    if span < SHORTEST_SPAN:
        raise InvalidOption(option, value, f"it is at least {SHORTEST_SPAN:g} s")
    return span


def _beat(value: Any, lease: float) -> float:
    """The time between two beats, if it is not to be a third of the lease."""
    span = _span("beat", value)
    if span > lease / 3:
        raise InvalidOption("beat", value, f"it is at most a third of the lease, {lease / 3:g} s: two may be lost")
    return span


def _hang_after(value: Any, lease: float) -> float:
    """How long a worker may be blocked: the given time, or long enough for an ordinary body."""
    if value is None:
        return max(60.0, 10 * lease)
    span = _span("hang_after", value)
    if span < lease:
        raise InvalidOption("hang_after", value, f"it is at least the lease, {lease:g} s")
    return span


def _kept(option: str, value: Any) -> float | None:
    return None if value is None or value == "forever" else seconds_of(value, option)


def _whole(option: str, value: Any, *, least: int) -> int:
    try:
        number = int(value) if isinstance(value, str) else operator.index(value)  # a text comes from the URL
    except (TypeError, ValueError):
        raise InvalidOption(option, value, "it is a whole number") from None
    if isinstance(value, bool):
        raise InvalidOption(option, value, "it is a whole number")
    if number < least:
        raise InvalidOption(option, value, f"it is at least {least}")
    return number


def _retry(value: Any) -> Retry:
    return value if isinstance(value, Retry) else Retry.of(_whole("retry", value, least=1))


def _listen(value: Any, url: str) -> bool | str:
    """Whether to listen to other processes, and at which address if not the store's own."""
    if not (isinstance(value, str) and "://" in value):
        return _truth("listen", redact_url(str(value)))  # perhaps a misspelt address, with a password
    if value.startswith(("postgresql://", "postgres://")) and url.startswith("postgres"):
        return value
    raise InvalidOption("listen", redact_url(value), "it is true, false, or for Postgres a postgresql:// address")


def _one_of(option: str, value: Any, known: Sequence[Any]) -> Any:
    if value not in known:
        raise InvalidOption(option, value, f"it is one of {', '.join(map(str, known))}")
    return value


def _truth(option: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in {"true", "1", "yes", "on"}:
        return True
    if str(value).lower() in {"false", "0", "no", "off"}:
        return False
    raise InvalidOption(option, value, "it is true or false")


def admin(store: Store) -> Admin:
    """The verbs for a store as a whole; for a sync store, pass its `async_store` and await on its loop."""
    return Admin(store)


class Admin:
    """Installs and checks the tables of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def install(self) -> None:
        """Create or upgrade the tables; may be repeated, and any number of processes may call it at once."""
        await schema.install(self._store.database.driver, self._store.database.statements)

    async def verify(self) -> None:
        """Raise unless the tables are exactly this release's: `SchemaMissing`, `SchemaNewer` or `SchemaDiffers`."""
        await schema.verify(self._store.database.driver, self._store.database.statements)
