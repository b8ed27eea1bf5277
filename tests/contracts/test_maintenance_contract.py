"""Pins, compaction, garbage collection and verification, on each database."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import delete, update

from tests.warehouse.scenes import evict_component, model, work, write_log
from warehouse import (
    CompactionPolicy,
    Warehouse,
    WarehouseConfig,
    collect_garbage,
    compact_memos,
    heartbeat_pin,
    live_pins,
    pin_solution,
    pinned_solution,
    read_fragment,
    read_solution,
    register_table,
    release_pin,
    submit_model,
    verify_warehouse,
)
from warehouse.catalog import schema


@pytest.mark.slow
def test_a_warehouse_is_kept(config: WarehouseConfig, tmp_path: Path) -> None:
    with Warehouse.open(config) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log")))
        submit_model(warehouse, model(inputs=3))
        work(warehouse)
        first = read_solution(warehouse, "ctr").inputs[0].fingerprint
        with pinned_solution(warehouse, "ctr", holder="job") as solution:
            assert evict_component(warehouse, first).memos == 0
            assert compact_memos(warehouse, CompactionPolicy(many_files=2), dry_run=False).memos == 9
            assert collect_garbage(warehouse, dry_run=False).pinned == 9
            assert all(read_fragment(warehouse.storage, solution, one, on_damage=_fail) for one in solution.fragments)
        assert collect_garbage(warehouse, dry_run=False).rows == 9
        assert evict_component(warehouse, first).memos == 3
        policy = CompactionPolicy(threshold=1, least_gain_bytes=1)
        assert compact_memos(warehouse, policy, dry_run=False).memos == 6
        assert collect_garbage(warehouse, dry_run=False).by_kind()["unreferenced memos"][0] == 3
        found = verify_warehouse(warehouse, recompute=6)
        assert (found.findings, found.memos, found.recomputed) == ((), 6, 6)


def _fail(*damage: object) -> None:
    pytest.fail(repr(damage))


def test_pins_are_moved_on_and_released(config: WarehouseConfig, tmp_path: Path) -> None:
    with Warehouse.open(config) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log", hours=1)))
        submit_model(warehouse, model())
        pin = pin_solution(warehouse, read_solution(warehouse, "ctr"), "job")
        assert heartbeat_pin(warehouse, pin)
        (held,) = live_pins(warehouse)
        assert (held.id, held.fingerprints, held.start) == (pin.id, pin.fingerprints, pin.start)
        assert held.expires_at > pin.expires_at
        assert release_pin(warehouse, pin)
        assert live_pins(warehouse) == ()


def test_a_catalog_that_contradicts_itself_is_repaired(config: WarehouseConfig, tmp_path: Path) -> None:
    with Warehouse.open(config) as warehouse:
        register_table(warehouse, "log", str(write_log(tmp_path / "log")))
        submit_model(warehouse, model())
        work(warehouse)
        with warehouse.catalog.write() as connection:
            connection.execute(delete(schema.coverage))
            connection.execute(update(schema.memo_files).values(live_bytes=1))
        found = verify_warehouse(warehouse, repair=True)
        assert ({one.kind for one in found.findings}, found.wrong) == ({"coverage", "counts"}, 0)
        assert verify_warehouse(warehouse).findings == ()
        assert read_solution(warehouse, "ctr").count("load") == 6
