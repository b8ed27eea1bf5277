"""Files of changes under garbage collection and verification."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import delete, select, update

import transforms.expressions.expression as hr
from tests.warehouse.scenes import Clock, model, work
from transforms.expressions.model import Model
from warehouse import (
    Warehouse,
    collect_garbage,
    compact_memos,
    read_fragment,
    read_solution,
    submit_model,
    verify_warehouse,
)
from warehouse.catalog import schema
from warehouse.changes.deletion import delete_rows
from warehouse.changes.overlay import overlay_columns
from warehouse.maintenance.compaction import CompactionPolicy
from warehouse.maintenance.gc import LEFTOVER_SECS


def mirror(log: Path, folder: Path, **columns: Any) -> str:
    """Values for every event, file by file."""
    for path in log.rglob("*.parquet"):
        rows = pq.read_metadata(path).num_rows
        place = folder / path.relative_to(log)
        place.parent.mkdir(parents=True)
        pq.write_table(pa.table({name: pa.array([value] * rows) for name, value in columns.items()}), place)
    return str(folder)


@pytest.fixture
def changed(warehouse: Warehouse, log: Path, tmp_path: Path) -> Warehouse:
    """Two overlays of three fragments, of which the second leaves nothing of the first but ``spam``; a retraction.

    The memos of ``spam`` are one, since all of its values are equal.
    """
    made = spam_model()
    overlay_columns(warehouse, "log", mirror(log, tmp_path / "one", clicked=True, spam=0.25))
    submit_model(warehouse, made)
    work(warehouse)
    overlay_columns(warehouse, "log", mirror(log, tmp_path / "two", clicked=False))
    delete_rows(warehouse, "log", where=[("query", "red red h0")])
    submit_model(warehouse, made)
    work(warehouse)
    return warehouse


def spam_model() -> Model:
    made = model(inputs=2)
    made.input("spam", hr.float64("spam").fill_null(0.5))
    return made


def overlay_files(warehouse: Warehouse) -> list[Path]:
    return sorted((Path(warehouse.config.home) / "overlays").rglob("*.memo"))


def test_files_of_every_version_stay_and_those_of_none_go(changed: Warehouse, clock: Clock) -> None:
    files = overlay_files(changed)
    assert len(files) == 7
    orphan, young = (files[0].with_name(f"{'0' * 16}-{digit * 32}.memo") for digit in "01")
    for path, age_secs in ((orphan, LEFTOVER_SECS + 1), (young, 5), *((path, 2 * LEFTOVER_SECS) for path in files)):
        if not path.exists():
            path.write_bytes(b"123")
        os.utime(path, (clock.now - age_secs, clock.now - age_secs))
    assert collect_garbage(changed, dry_run=False).by_kind() == {"overlays": (1, 3)}
    assert overlay_files(changed) == sorted([*files, young])
    for version in (2, 3, 4):
        solution = read_solution(changed, "ctr", table_version=version)
        assert all(read_fragment(changed.storage, solution, one) for one in solution.fragments)


def test_whatever_changed_all_is_well_and_memos_move_along(changed: Warehouse) -> None:
    before = read_solution(changed, "ctr")
    assert (before.count("load"), before.rows) == (9, 57)
    found = verify_warehouse(changed, recompute=20)
    assert (found.findings, found.overlays, found.memos) == ((), 7, 7)
    assert compact_memos(changed, CompactionPolicy(many_files=2), dry_run=False).memos >= 6, "not what is alone"
    collect_garbage(changed, dry_run=False)
    assert read_solution(changed, "ctr").count("load") == 9
    assert verify_warehouse(changed, recompute=20).findings == ()


def test_coverage_is_made_again_under_overlays_too(changed: Warehouse) -> None:
    with changed.catalog.write() as connection:
        connection.execute(delete(schema.coverage))
    found = verify_warehouse(changed, repair=True)
    assert {one.kind for one in found.findings} == {"coverage"}
    assert (found.wrong, verify_warehouse(changed).findings) == (0, ())
    assert read_solution(changed, "ctr").count("load") == 7, "each memo under its own content"
    submit_model(changed, spam_model())
    assert read_solution(changed, "ctr").count("load") == 9


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:99])])
def test_damaged_overlays_are_found(changed: Warehouse, damage: Any) -> None:
    for path in overlay_files(changed):
        content = path.read_bytes()
        damage(path)
        found = verify_warehouse(changed, repair=True)
        assert {one.kind for one in found.findings} <= {"overlay", "missing file"}
        assert len(found.findings) == found.wrong > 0, "nobody but a person can bring them back"
        assert all(path.name in one.where and "backup" in one.next_step for one in found.findings)
        path.write_bytes(content)
    assert verify_warehouse(changed).findings == ()


def test_a_catalog_that_contradicts_itself_about_changes_is_found(changed: Warehouse) -> None:
    members, overlays = schema.manifest_fragments, schema.overlays
    with changed.catalog.write() as connection:
        retracted = members.c.deletions.is_not(None)
        connection.execute(update(members).where(retracted).values(deleted_rows=members.c.deleted_rows + 1))
    (finding,) = verify_warehouse(changed).findings
    assert finding.what == "it deletes 3 events, the manifest says 4"
    with changed.catalog.write() as connection:
        connection.execute(update(members).where(retracted).values(deleted_rows=3))
        deletions = connection.execute(select(members.c.deletions).where(retracted)).scalars().first()
        connection.execute(delete(overlays).where(overlays.c.path == deletions))
    (finding,) = verify_warehouse(changed).findings
    assert finding.what == "a manifest refers to a deletion vector that no change wrote"
