"""The clock of leases."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from sqlalchemy import create_engine, text

from warehouse.catalog.catalog import Catalog
from warehouse.catalog.clock import ServerClock, catalog_clock, elapsed_secs
from warehouse.catalog.urls import parse_url


def test_processes_of_one_machine_use_its_clock(tmp_path: object) -> None:
    with_sqlite = Catalog.open(f"sqlite:///{tmp_path}/home/catalog.db")
    assert catalog_clock(with_sqlite) is time.time
    with_sqlite.close()


def test_the_counter_is_never_set_back() -> None:
    first = elapsed_secs()
    assert elapsed_secs() >= first


@pytest.fixture
def url(new_database: Callable[[], str]) -> str:
    return new_database()


def test_a_server_has_the_clock_of_all(url: str) -> None:
    elapsed = [5.0]
    catalog = Catalog.open(url)
    clock = ServerClock(catalog, lambda: elapsed[0])
    engine = create_engine(parse_url(url))
    with engine.connect() as connection:
        before = float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
        first = clock()
        after = float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
    assert before <= first <= after
    elapsed[0] += 20.0
    assert clock() == pytest.approx(first + 20.0), "the counter goes on, the server is not asked"
    elapsed[0] += 20.0
    assert clock() < first + 30.0, "asked again, it says that no time went by"
    engine.dispose()
    catalog.close()


def test_the_last_answer_of_a_stopped_server_is_kept(url: str) -> None:
    elapsed = [0.0]
    catalog = Catalog.open(url, sleep=lambda secs: None)
    clock = ServerClock(catalog, lambda: elapsed[0])
    first = clock()
    place = parse_url(url)
    database = place.database
    engine = create_engine(place.set(database="postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS false'))
        connection.execute(text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"),
                           {"name": database})  # fmt: skip
        elapsed[0] += 100.0
        assert clock() == pytest.approx(first + 100.0)
        connection.execute(text(f'ALTER DATABASE "{database}" ALLOW_CONNECTIONS true'))
    engine.dispose()
    catalog.close()
