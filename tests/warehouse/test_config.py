from __future__ import annotations

import contextlib
import io
import random
import tempfile
import traceback
from urllib.parse import quote

import pytest

from headrace.cli.main import run
from transforms.errors import InputError
from warehouse import WarehouseConfig
from warehouse.catalog.catalog import Catalog
from warehouse.catalog.urls import outline, parse_url, secrets_of, shown_url, without_secrets


def test_catalog_stands_in_the_home_by_default() -> None:
    assert WarehouseConfig("/data/home").url == "sqlite:////data/home/catalog.db"
    assert WarehouseConfig("file:///data/home").url == "sqlite:////data/home/catalog.db"
    assert WarehouseConfig("/data/home", "sqlite:////else/where.db").url == "sqlite:////else/where.db"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("home", ""),
        ("catalog_url", "mysql://somewhere/catalog"),
        ("fragment_rows", 0),
        ("fragment_rows", 1.5),
        ("fragment_rows", True),
        ("lease_secs", 0),
        ("lease_secs", float("nan")),
        ("max_attempts", 0),
        ("retry_backoff_secs", -1),
        ("untried_backoff_secs", -1),
        ("max_untried", 0),
        ("busy_timeout_secs", float("nan")),
        ("busy_timeout_secs", float("inf")),
        ("read_threads", -1),
    ],
)
def test_settings_out_of_range_are_refused(field: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        WarehouseConfig(**{"home": "here", field: value})  # type: ignore[arg-type]
    assert caught.value.where == f"WarehouseConfig.{field}"


def test_a_remote_home_needs_a_catalog_url() -> None:
    with pytest.raises(InputError, match="catalog URL"):
        WarehouseConfig("gs://bucket/home")
    assert WarehouseConfig("gs://bucket/home", "sqlite:///x.db").url == "sqlite:///x.db"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_catalog_can_be_in_postgresql(scheme: str) -> None:
    config = WarehouseConfig("home", f"{scheme}://me:secret@host/catalog")
    assert config.url == f"{scheme}://me:secret@host/catalog"
    parsed = parse_url(config.url)
    assert parsed.render_as_string(hide_password=False) == "postgresql+psycopg://me:secret@host/catalog"
    assert "secret" not in repr(config)


#: Ways to write the same URL, right and wrong; ``S`` is the password.
_SPELLED = (
    "postgresql://me:S@127.0.0.1:1/db",
    "postgres://me:S@127.0.0.1:1/db?sslmode=disable",
    "postgresql://me:S@127.0.0.1:port/db",
    "postgresql:/me:S@127.0.0.1:1/db",
    "postgresql:me:S@127.0.0.1:1/db",
    "postgresql//me:S@127.0.0.1:1/db",
    "postgresql://me:S",
    "postgresql://me/S@127.0.0.1:1/db",
    "postgresql://S@127.0.0.1:1:2/db",
    "postgresql://me:x@S@127.0.0.1:1/db",
    "postgresql://:S@127.0.0.1:1/db",
    "postgresql://me :S@127.0.0.1:1/db",
    "postgresql+psycopg2://me:S@127.0.0.1:1/db",
    "postgresql+psycopg://me:S@127.0.0.1:1/db",
    "postgresqll://me:S@127.0.0.1:1/db",
    "Postgresql://me:S@127.0.0.1:1/db",
    " postgresql://me:S@127.0.0.1:1/db",
    "mysql://me:S@127.0.0.1:1/db",
    "sqlite://me:S@127.0.0.1/db",
    "sqlite:me:S@127.0.0.1/db",
    "me:S@127.0.0.1:1/db",
    "S@127.0.0.1:1/db",
    "127.0.0.1:1/db?password=S",
    "postgresql://me@127.0.0.1:1/db?password=S",
    "postgresql://me@127.0.0.1:1/db?Password=S",
    "postgresql://me@127.0.0.1:1/db?pasword=S",
    "postgresql://me@127.0.0.1:1/db?password=S&sslpassword=S",
    "postgresql://me@127.0.0.1:1/db&password=S",
    "postgresql://me@127.0.0.1:1/db?sslmode=no&passfile=S",
    "postgresql://me@[::1]:1/db?password = S",
    "sqlite:///db?password=S",
)


def shown_of(url: str) -> str:
    """All that opening the catalog says, with its traceback, and all that a command prints."""
    said, errors = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("HEADRACE_CATALOG_URL", url)
        patch.setenv("HEADRACE_BUSY_TIMEOUT_SECS", "0")
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            run(["status", "--home", home])
        try:
            Catalog.open(url, busy_timeout_secs=0).close()
        except Exception as error:
            errors.write("".join(traceback.format_exception(error)) + repr(error))
    return said.getvalue() + errors.getvalue()


@pytest.mark.parametrize("spelled", _SPELLED)
def test_a_password_is_never_shown_however_it_is_written(spelled: str) -> None:
    check_hidden(spelled, 1)


@pytest.mark.slow
def test_many_passwords_are_never_shown() -> None:
    for spelled in _SPELLED:
        check_hidden(spelled, 30)


def check_hidden(spelled: str, trials: int) -> None:
    """Random passwords, as they are and percent-encoded, in a URL that is right or wrong in some way."""
    draws = random.Random(spelled)
    for _ in range(trials):
        spelling = draws.choice(("plain", "some", "all"))
        secret = f"Sec3{''.join(draws.choices('xyzé/?#@:&=%+ []', k=draws.randrange(6)))}T4ret"
        written = {"plain": secret, "some": quote(secret, safe="/:&="),
                   "all": "".join(f"%{one:02x}" for one in secret.encode())}[spelling]  # fmt: skip
        shown = shown_of(spelled.replace("S", written))
        assert "Sec3" not in shown, (secret, shown)
        # What stands behind the only @ of a URL is its host, which is shown.
        ends_as_host = "@" in written and "@" not in spelled.partition("S")[2]
        assert ends_as_host or "T4ret" not in shown, (secret, shown)
        assert spelling != "all" or written not in shown
        assert "defect:" not in shown, (secret, shown)


def test_what_is_no_secret_is_shown() -> None:
    url = parse_url("postgresql://me:secret@host:5433/db?sslmode=require&password=secret&host=other")
    assert shown_url(url) == "postgresql://me:***@host:5433/db?sslmode=require&password=***&host=other"
    assert "".join(sorted(secrets_of(url))) == "secret"
    assert outline("sqlite:/x/catalog.db") == "sqlite:/x/catalog.db"
    assert outline("mysql://me:secret@host") == "mysql:***"
    assert without_secrets("no user me:a@b?x in postgresql://me:a@b?x@host", ["a@b?x"]).count("***") == 2
