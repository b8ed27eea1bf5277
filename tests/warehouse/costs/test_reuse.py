"""Reads in the catalog, by model and by age of the data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warehouse.scenes import Clock, events, model, write_partition
from warehouse import Warehouse, register_table, submit_model
from warehouse.costs.reuse import load_aged_reads, models_with, record_read
from warehouse.maintenance.compact_table import compact_table
from warehouse.matching.plan_context import PlanContext
from warehouse.planning.forecast import AgedReads
from warehouse.tables.manifests import arrival_times, current_units, get_table

DAY = 86_400.0


def aged(warehouse: Warehouse, asking: str = "") -> AgedReads:
    with warehouse.catalog.read() as connection:
        fragments = current_units(connection, "log")
        context = PlanContext(connection, warehouse.config, get_table(connection, "log"), fragments, warehouse.clock())
        return load_aged_reads(connection, "log", context.arrivals, warehouse.clock(), asking)


def read(warehouse: Warehouse, row: int, start: float | None = None, end: float | None = None) -> None:
    with warehouse.catalog.write() as connection:
        record_read(connection, row, "log", start, end, 60, warehouse.clock())


def test_live_models_with_a_component(warehouse: Warehouse, log: Path) -> None:
    small, large = model("small", inputs=1), model("large", "ads", inputs=3)
    submit_model(warehouse, small)
    submit_model(warehouse, large)
    both, one = ({item.fingerprint for item in made.inputs.values()} for made in (small, large))
    with warehouse.catalog.read() as connection:
        found = models_with(connection, "log", one)
        asked = models_with(connection, "log", one, "new")
    assert {found[name] for name in both} == {frozenset({"small", "large"})}
    assert {found[name] for name in one - both} == {frozenset({"large"})}
    assert all(asked[name] == found[name] | {"new"} for name in found)


def test_a_fragment_arrives_with_the_first_version_that_has_it(warehouse: Warehouse, log: Path, clock: Clock) -> None:
    first = clock()
    clock.advance(3 * DAY)
    write_partition(log, 1, events(5, seed=9), name="late.parquet")
    register_table(warehouse, "log", str(log))
    with warehouse.catalog.read() as connection:
        placed = current_units(connection, "log")
        arrived = arrival_times(connection, "log")
    assert [arrived[one.row] for one in placed if one.fragment.rows == 5] == [clock()]
    assert {arrived[one.row] for one in placed if one.fragment.rows != 5} == {first}


def test_reads_are_counted_by_model_and_age(warehouse: Warehouse, log: Path, clock: Clock) -> None:
    submit_model(warehouse, model("small", inputs=1))
    read(warehouse, 1)
    clock.advance(5 * DAY)
    read(warehouse, 1)
    changed = model("small", inputs=2)
    assert submit_model(warehouse, changed).version == 2
    read(warehouse, 2)
    found = aged(warehouse)
    assert found.reads[0] == pytest.approx(1.0)
    assert found.reads[3] == pytest.approx(2.0)
    assert found.by_model["small"][:4] == (1, 0, 0, 2), "a model has the reads of all its versions"
    assert found.live_days == {"small": 5.0}
    assert set(aged(warehouse, "new").by_model) == {"small", "new"}
    clock.advance(26 * DAY)
    assert aged(warehouse).reads[0] == 0, "a month later it does not count"


def test_a_read_of_some_partitions_counts_as_its_part(warehouse: Warehouse, log: Path, clock: Clock) -> None:
    submit_model(warehouse, model("small", inputs=1))
    with warehouse.catalog.read() as connection:
        starts = sorted({one.start.timestamp() for one in current_units(connection, "log")})
    read(warehouse, 1, starts[0], starts[1])
    assert aged(warehouse).reads[0] == pytest.approx(1 / 3)
    read(warehouse, 1, starts[1], None)
    assert aged(warehouse).reads[0] == pytest.approx(1.0)


def test_merging_fragments_changes_no_counts(warehouse: Warehouse, log: Path, clock: Clock) -> None:
    submit_model(warehouse, model("small", inputs=1))
    with warehouse.catalog.read() as connection:
        starts = sorted({one.start.timestamp() for one in current_units(connection, "log")})
    read(warehouse, 1, starts[1], starts[2])
    clock.advance(2 * DAY)
    write_partition(log, 5, events(20, seed=9))
    register_table(warehouse, "log", str(log))
    read(warehouse, 1, starts[2], None)
    before = aged(warehouse)
    assert compact_table(warehouse, "log").fragments_after == 1
    assert aged(warehouse) == before
