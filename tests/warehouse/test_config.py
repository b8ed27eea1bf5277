from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import InputError
from warehouse import WarehouseConfig
from warehouse.catalog_url import with_driver, without_secrets


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
def test_a_catalog_may_stand_in_postgresql(scheme: str) -> None:
    config = WarehouseConfig("home", f"{scheme}://me:secret@host/catalog")
    assert config.url == f"{scheme}://me:secret@host/catalog"
    assert with_driver(config.url) == "postgresql+psycopg://me:secret@host/catalog"
    assert "secret" not in repr(config)


@given(user=st.text("ab%20", max_size=4), secret=st.text("xyz/?#@:&=%", min_size=1, max_size=12))
def test_a_password_is_never_shown_however_it_is_written(user: str, secret: str) -> None:
    marked = f"S3{secret}T4"
    for url in (
        f"postgresql://{user}:{marked}@host/db",
        f"postgresql://{user}@host/db?password={secret.replace('&', '')}",
    ):
        shown = without_secrets(url)
        assert "S3" not in shown
        assert "T4" not in shown
        assert shown.startswith(f"postgresql://{user}")
        assert "password=***" in shown or ":***@host/db" in shown
