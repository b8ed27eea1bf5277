"""Any order of appends, corrections, deletions and merges of both tables gives the joined columns that a new warehouse computes, bit for bit."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import headrace as hr
from tests.warehouse.joins.scenes import at, clicks, events, write_tables
from tests.warehouse.joins.test_refresh import CLICKS, column_of, memoize, model, refresh
from tests.warehouse.scenes import Clock
from warehouse import Warehouse, WarehouseConfig, read_solution, register_table, submit_model
from warehouse.changes.append import append_rows
from warehouse.changes.deletion import delete_rows
from warehouse.changes.overlay import fix_columns
from warehouse.joins import repair, rows_of_keys
from warehouse.joins.preview import previewed_columns
from warehouse.maintenance.compact_table import compact_table
from warehouse.matching.explain import explain_model
from warehouse.tables.manifests import current_fragments, get_table

EXPRESSIONS = (
    CLICKS.count(window="50m"),
    CLICKS.sum(hr.float64("paid")),
    CLICKS.latest(hr.text("country"), max_age="90m"),
    hr.table("log").by(hr.int64("user")).ratio(hr.boolean("clicked"), prior=(1, 4)),
)
HOURS = 3


class JoinsMachine(RuleBasedStateMachine):
    """Two tables, a model over one of them that joins both, and a worker that comes by now and then."""

    @initialize(share=st.sampled_from([0.2, 10.0]))
    def begin(self, share: float) -> None:
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(repair, "MOST_SHARE", share)
        self.patched.setattr(rows_of_keys, "LEAST_ROWS", 1)
        self.patched.setattr(rows_of_keys, "MOST_KEYS_SHARE", 1.0)
        self.folder = Path(tempfile.mkdtemp())
        self.serial = 0
        folders = write_tables(self.folder, HOURS)
        self.warehouse = Warehouse.open(WarehouseConfig(str(self.folder / "home"), read_threads=1), Clock())
        register_table(self.warehouse, "log", str(folders.log), time_column="at")
        register_table(self.warehouse, "clicks", str(folders.clicks), time_column="time")
        submit_model(
            self.warehouse,
            model(*EXPRESSIONS[:1], EXPRESSIONS[2].hash_buckets(7), EXPRESSIONS[1].log1p(), EXPRESSIONS[3] * 2.0),
        )

    def teardown(self) -> None:
        if hasattr(self, "warehouse"):
            self.patched.undo()
            self.warehouse.close()
            shutil.rmtree(self.folder)

    @rule(hour=st.integers(0, HOURS - 1), rows=st.integers(1, 8), is_known=st.booleans())
    def clicks_come_late(self, hour: int, rows: int, is_known: bool) -> None:
        columns = clicks(hour, rows, seed=1_000 + self.serial)
        if not is_known:
            columns["id"] = pa.array([99] * rows, pa.int64())
        append_rows(self.warehouse, "clicks", [self._saved(columns)])

    @rule(hour=st.integers(0, HOURS - 1), rows=st.integers(1, 6))
    def events_come_late(self, hour: int, rows: int) -> None:
        columns = events(hour, rows)
        columns["at"] = at(hour, [self.serial * 11 % 3_600 + k + self.serial / 1_000 for k in range(rows)])
        columns["user"] = pa.array(np.arange(rows) % 5, pa.int64())
        columns["clicked"] = pa.array([self.serial % 2 == 0] * rows)
        append_rows(self.warehouse, "log", [self._saved(columns)])

    @rule(user=st.integers(0, 4), table=st.sampled_from([("clicks", "id"), ("log", "user")]))
    def rows_are_deleted(self, user: int, table: tuple[str, str]) -> None:
        delete_rows(self.warehouse, table[0], where=[(table[1], str(user))])

    @rule(hour=st.integers(0, HOURS - 1), user=st.integers(0, 4))
    def users_are_corrected(self, hour: int, user: int) -> None:
        known = pa.table(events(hour))
        first = known.slice(0, 1).set_column(1, "user", pa.array([user], pa.int64()))
        if known["at"].to_pylist().count(known["at"][0].as_py()) == 1:
            fix_columns(
                self.warehouse,
                "log",
                self._saved({"at": first["at"], "user": first["user"]}),
                why="x",
                on=("at",),
                columns=("user",),
            )

    @rule(table=st.sampled_from(["clicks", "log"]))
    def fragments_are_merged(self, table: str) -> None:
        compact_table(self.warehouse, table)

    @rule()
    def columns_are_computed(self) -> None:
        refresh(self.warehouse)
        assert refresh(self.warehouse) == []
        with self.warehouse.catalog.read() as connection:
            table, fragments = get_table(connection, "log"), current_fragments(connection, "log")
        definitions = {one.node.name: one.node.definition for one in EXPRESSIONS}
        for name, values in previewed_columns(self.warehouse, table, definitions, fragments).items():
            expected = pa.concat_arrays(values)
            assert _bits(column_of(self.warehouse, name)[name].combine_chunks()) == _bits(expected), name
        memoize(self.warehouse)
        assert all(one.hit for one in explain_model(self.warehouse, "ctr"))
        assert read_solution(self.warehouse, "ctr").table_version == table.version

    @invariant()
    def versions_are_readable(self) -> None:
        if hasattr(self, "warehouse"):
            explain_model(self.warehouse, "ctr")

    def _saved(self, columns: dict[str, pa.Array]) -> str:
        self.serial += 1
        path = self.folder / f"{self.serial}.parquet"
        pq.write_table(pa.table(columns), path)
        return str(path)


def _bits(values: pa.Array) -> list[object]:
    return [one.hex() if isinstance(one, float) else one for one in values.to_pylist()]


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        JoinsMachine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, derandomize=True, database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
        ),
    )  # fmt: skip


@pytest.mark.medium
def test_joined_columns_are_those_of_scratch() -> None:
    run(examples=2, steps=8)


@pytest.mark.slow
def test_joined_columns_are_those_of_scratch_at_length() -> None:
    run(examples=60, steps=25)
