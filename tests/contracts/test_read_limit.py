"""Reads of the catalog end at their limit, on each database, and leave the connection as it was."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sqlalchemy import text

from transforms.errors import InputError
from warehouse.catalog.catalog import Catalog
from warehouse.catalog.read_limit import ReadLimit
from warehouse.errors import CatalogTimeout

LIMIT_SECS = 0.2
#: Runs for minutes in either database if nothing ends it.
ENDLESS = text(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) SELECT max(i) FROM n"
)


@pytest.fixture
def limited(url: str, tmp_path: Path) -> Catalog:
    (tmp_path / "home").mkdir(exist_ok=True)
    return Catalog.open(url, read_secs=LIMIT_SECS)


def test_a_long_statement_ends_and_the_next_read_is_whole(limited: Catalog) -> None:
    for _ in range(2):
        with pytest.raises(CatalogTimeout, match=r"took longer than 0\.2 s") as caught, limited.read() as connection:
            connection.execute(ENDLESS).scalar()
        assert caught.value.next_step
        assert caught.value.where == limited.where
        with limited.read() as connection:
            assert connection.execute(text("SELECT 7")).scalar() == 7
    limited.close()


def test_a_read_of_many_short_statements_ends(limited: Catalog) -> None:
    asked = 0

    def ask_on() -> None:
        nonlocal asked
        with limited.read() as connection:
            while True:
                asked += connection.execute(text("SELECT 1")).scalar_one()

    with pytest.raises(CatalogTimeout):
        ask_on()
    assert asked > 1
    limited.close()


def test_a_statement_is_interrupted_while_its_rows_are_read(limited: Catalog) -> None:
    rows = text("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000000) SELECT i FROM n")

    def read_on() -> None:
        with limited.read() as connection:
            for _ in connection.execute(rows, execution_options={"yield_per": 100}):
                connection.execute(text("SELECT 7"))

    with pytest.raises(CatalogTimeout):
        read_on()
    limited.close()


def test_a_write_has_no_limit(limited: Catalog) -> None:
    with limited.write() as connection:
        if limited.dialect == "postgresql":
            assert connection.execute(text("SHOW statement_timeout")).scalar() == "0"
        began = time.monotonic()
        while time.monotonic() - began < 2 * LIMIT_SECS:
            connection.execute(text("SELECT 7")).scalar()
    limited.close()


def test_other_errors_of_a_limited_read_stay_what_they_are(limited: Catalog) -> None:
    with pytest.raises(Exception, match="nothing_of_this_name") as caught, limited.read() as connection:
        connection.execute(text("SELECT * FROM nothing_of_this_name"))
    assert not isinstance(caught.value, CatalogTimeout)
    limited.close()


@pytest.mark.parametrize("secs", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_is_a_positive_time(secs: float) -> None:
    with pytest.raises(InputError, match="must be > 0 seconds"):
        ReadLimit(secs, "catalog")
