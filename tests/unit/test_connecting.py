"""Where a store is and how it is opened: from arguments, from the URL's query, from the environment."""

import sys
from datetime import timedelta
from typing import Any

import pytest

from stepwell import Config, DriverMissing, InvalidName, InvalidOption, StepwellError, UnknownStore, connect
from stepwell.base.clock import DatabaseClock, TestClock
from stepwell.base.telemetry import Telemetry
from stepwell.connect import Opening, file_of


def test_the_defaults_are_those_the_documentation_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPWELL_URL", raising=False)
    config = Config()
    assert (config.url, config.schema, config.install) == ("sqlite:///stepwell.db", "stepwell", True)
    assert (config.options.lease, config.options.timeout) == (30.0, 10.0)
    assert (config.options.payload_limit, config.options.tenant) == (1_048_576, "")
    assert (config.options.keep, config.options.keep_dead_letters) == (7 * 86_400.0, None)
    assert isinstance(config.clock, DatabaseClock)
    assert isinstance(config.telemetry, Telemetry)


def test_the_environment_names_the_store_unless_an_argument_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWELL_URL", "turso:///there.db?lease=5")
    assert (Config().url, Config().options.lease) == ("turso:///there.db", 5.0)
    assert (Config("sqlite:///here.db").url, Config("sqlite:///here.db").options.lease) == ("sqlite:///here.db", 30.0)


def test_every_option_may_stand_in_the_query() -> None:
    query = "lease=2&timeout=1m&pool=8&payload_limit=100&tenant=ann&schema=other&install=no"
    config = Config(f"sqlite:////var/app.db?{query}", lease=99)
    assert config.url == "sqlite:////var/app.db"
    assert (config.options.lease, config.options.timeout) == (2.0, 60.0)
    assert (config.options.payload_limit, config.options.tenant) == (100, "ann")
    assert (config.schema, config.install, config.pool) == ("other", False, 8)


def test_what_is_kept_for_ever_is_said_so() -> None:
    assert Config("memory:", keep=None).options.keep is None
    config = Config("memory:?keep=forever&keep_dead_letters=90d", keep="1h")
    assert (config.options.keep, config.options.keep_dead_letters) == (None, 90 * 86_400.0)


def test_what_is_not_ours_in_a_postgres_query_is_the_drivers() -> None:
    config = Config("postgresql://ann@h:5/db?lease=2&sslmode=require&application_name=a%20b&pool=5")
    assert config.url == "postgresql://ann@h:5/db?sslmode=require&application_name=a+b"
    assert config.options.lease == 2.0
    assert Config("postgresql://ann:p%2Fw@h/db?lease=2").url == "postgresql://ann:p%2Fw@h/db"
    said = "sslmode cannot be 'require': a store's URL takes audit, beat, codec, hang_after, helper, install, keep"
    with pytest.raises(InvalidOption, match=said):
        Config("sqlite:///app.db?sslmode=require")


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///app.db", "app.db"),
        ("sqlite:///data/app.db", "data/app.db"),
        ("sqlite:////var/app.db", "/var/app.db"),
        ("sqlite:////var/my%20app.db", "/var/my app.db"),
        ("sqlite:////var/a%3Fb.db", "/var/a?b.db"),
        ("turso:////var/a%23b.db", "/var/a#b.db"),
    ],
)
def test_the_file_of_a_url(url: str, path: str) -> None:
    assert file_of(Config(url).url) == path
    assert file_of(Config(f"{url}?lease=2").url) == path


@pytest.mark.parametrize(
    "options",
    [
        {"lease": 0}, {"lease": -1}, {"lease": 0.05}, {"lease": True}, {"lease": None}, {"lease": "soon"},
        {"lease": float("nan")}, {"lease": timedelta(days=-1)}, {"timeout": 0}, {"timeout": []}, {"pool": 3},
        {"pool": "many"}, {"pool": None}, {"payload_limit": 0}, {"payload_limit": -5}, {"payload_limit": "x"},
        {"install": "perhaps"}, {"install": 2}, {"install": None}, {"keep": -1}, {"keep": "never"}, {"keep": True},
        {"keep_dead_letters": "soon"},
    ],
)  # fmt: skip
def test_a_bad_option_is_refused_by_its_name(options: dict[str, Any]) -> None:
    [name] = options
    with pytest.raises(InvalidOption, match=f"^{name} cannot be "):
        Config("memory:", **options)


def test_a_bad_tenant_is_refused() -> None:
    for tenant in ("a\0", "x" * 256, 7):
        with pytest.raises(InvalidName):
            Config("memory:", tenant=tenant)  # type: ignore[arg-type]


def test_an_unknown_option_is_a_mistake_of_the_program() -> None:
    with pytest.raises(InvalidOption, match="leese"):
        _ = connect("memory:", leese=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("text", ["true", "1", "YES", "on", "false", "0", "No", "off"])
def test_truth_may_be_spelled(text: str) -> None:
    assert Config(f"memory:?install={text}").install is (text.lower() in {"true", "1", "yes", "on"})


def test_connecting_opens_nothing_until_it_is_awaited() -> None:
    assert isinstance(connect("sqlite:////no/such/folder/app.db"), Opening)
    clock = TestClock()
    assert Config("memory:", clock=clock).clock is clock


async def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme, extra, module, package in (
        ("postgresql", "postgres", "postgres.driver", "asyncpg"),
        ("turso", "turso", "embedded.turso", "pyturso"),
    ):
        monkeypatch.setitem(sys.modules, f"stepwell.store.{module}", None)
        with pytest.raises(DriverMissing, match=f"pip install {package}, or .* its extra `{extra}`"):
            await connect(f"{scheme}:///somewhere.db")


def test_a_config_shows_no_password() -> None:
    config = Config("postgresql://ann:s3cret@h/db?password=s3cret")
    assert repr(config) == "Config('postgresql://ann:***@h/db?password=***')"


@pytest.mark.proves("security-08")
@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///app.db?authToken=s3cret",
        "turso:///app.db?key=s3cret",
        "memory:?pw=s3cret&lease=2",
        "sqlite:///app.db?listen=postgresql:/ann:s3cret@h/db",
        "postgresql://h/db?listen=mysql://ann:s3cret@h/db",
        b"postgresql://ann:s3cret@h/db",
    ],
)
def test_a_refused_address_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        Config(url)
    assert "s3cret" not in f"{caught.value} {caught.value.__dict__}"


@pytest.mark.proves("security-08")
@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/db?authToken=s3cret",
        "postgresql://h/db?sslkeypass=s3cret",
        "postgresql://ann:s3cret%40h/db",
        "posgresql:/ann:s3cret@h/db",
        "postgres//ann:s3cret@h/db",
        "ann:s3cret@h/db",
    ],
)
async def test_no_secret_of_a_misspelt_address_is_shown(url: str) -> None:
    assert "s3cret" not in repr(Config(url))
    with pytest.raises(StepwellError) as caught:
        await connect(url, timeout=0.2)
    assert "s3cret" not in f"{caught.value} {caught.value.__dict__} {caught.value.__cause__}"


@pytest.mark.proves("security-08")
def test_the_value_of_an_option_that_there_is_not_is_not_shown() -> None:
    with pytest.raises(InvalidOption, match="password cannot be") as caught:
        _ = connect("memory:", password="s3cret")  # type: ignore[call-arg]
    assert "s3cret" not in f"{caught.value} {caught.value.__dict__}"


@pytest.mark.parametrize("url", ["postgresql://ann:s3cret@[::1/db", "postgresql://ann:s3cret@h\u2100/db"])
def test_a_url_that_cannot_be_read_is_refused(url: str) -> None:
    with pytest.raises(UnknownStore) as caught:
        Config(url)
    assert "s3cret" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
