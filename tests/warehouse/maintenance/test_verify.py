"""Verification finds each kind of damage and repairs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import delete, insert, select, update

from tests.warehouse.scenes import events, evict_component, model, work, write_partition
from transforms.columns.arrow_types import arrow_type
from transforms.errors import InputError
from transforms.types import DType, Ragged
from warehouse import (
    Warehouse,
    collect_garbage,
    lease_tasks,
    read_solution,
    register_table,
    submit_model,
    verify_warehouse,
    write_memo_file,
)
from warehouse.catalog import schema
from warehouse.files.artifacts import artifact_path, write_artifact
from warehouse.maintenance import recompute as recompute_module
from warehouse.maintenance import verify as verify_module
from warehouse.maintenance.recompute import sample_memos
from warehouse.memos.coverage import get_or_create_column_sets

MEMOS, FILES, COVERAGE = schema.memos, schema.memo_files, schema.coverage


@pytest.fixture
def stored(warehouse: Warehouse, log: Path) -> Warehouse:
    """Six memos in six files, all well."""
    submit_model(warehouse, model())
    work(warehouse)
    found = verify_warehouse(warehouse, recompute=6)
    assert (found.files, found.read_files, found.memos, found.recomputed, found.findings) == (6, 6, 6, 6, ())
    return warehouse


def one_file(warehouse: Warehouse) -> Any:
    with warehouse.catalog.read() as connection:
        return connection.execute(select(FILES).order_by(FILES.c.id).limit(1)).one()


def change(warehouse: Warehouse, *statements: Any) -> None:
    with warehouse.catalog.write() as connection:
        for statement in statements:
            connection.execute(statement)


def truncate(warehouse: Warehouse, file: Any) -> None:
    path = Path(warehouse.config.home) / file.path
    path.write_bytes(path.read_bytes()[:-30])


def flip(warehouse: Warehouse, file: Any) -> None:
    path = Path(warehouse.config.home) / file.path
    content = bytearray(path.read_bytes())
    for place in range(len(content) // 4, 3 * len(content) // 4, 8):
        content[place] ^= 0x40
    path.write_bytes(content)


def replace_values(warehouse: Warehouse, file: Any) -> None:
    """A whole memo file with right checksums of its own, that is not the one that was committed."""
    with warehouse.catalog.read() as connection:
        name = connection.execute(select(MEMOS.c.fingerprint).where(MEMOS.c.file == file.id)).scalar_one()
    write_memo_file(warehouse.storage, file.path, {name: pa.array([[1]] * file.rows, arrow_type(Ragged(DType.INT64)))})


def remove(warehouse: Warehouse, file: Any) -> None:
    (Path(warehouse.config.home) / file.path).unlink()


def lose_coverage(warehouse: Warehouse, file: Any) -> None:
    change(warehouse, delete(COVERAGE).where(COVERAGE.c.file == file.id))


def claim_more(warehouse: Warehouse, file: Any) -> None:
    with warehouse.catalog.write() as connection:
        mine = connection.execute(select(MEMOS.c.fingerprint).where(MEMOS.c.file == file.id)).scalars()
        held = frozenset({*mine, "f" * 64})
        connection.execute(
            update(COVERAGE)
            .where(COVERAGE.c.file == file.id)
            .values(column_set=get_or_create_column_sets(connection, {held})[held])
        )


def claim_another_content(warehouse: Warehouse, file: Any) -> None:
    with warehouse.catalog.write() as connection:
        column_set = connection.execute(select(COVERAGE.c.column_set).where(COVERAGE.c.file == file.id)).scalar_one()
        others = select(schema.fragments.c.fragment_id).where(
            ~select(COVERAGE.c.file)
            .where(COVERAGE.c.file == file.id, COVERAGE.c.content == schema.fragments.c.fragment_id)
            .exists()
        )
        content = connection.execute(others).scalars().first()
        connection.execute(insert(COVERAGE).values(file=file.id, content=content, column_set=column_set))


def miscount(warehouse: Warehouse, file: Any) -> None:
    change(warehouse, update(FILES).where(FILES.c.id == file.id).values(live_bytes=file.live_bytes + 1))


def condemn(warehouse: Warehouse, file: Any) -> None:
    change(warehouse, update(FILES).where(FILES.c.id == file.id).values(condemned_at=1.0))


def misnumber(warehouse: Warehouse, file: Any) -> None:
    change(warehouse, update(MEMOS).where(MEMOS.c.file == file.id).values(rows=file.rows + 1))


def move_to_another_fragment(warehouse: Warehouse, file: Any) -> None:
    row = select(MEMOS.c.fragment).where(MEMOS.c.file == file.id).scalar_subquery()
    with warehouse.catalog.read() as connection:
        other = connection.execute(select(schema.fragments.c.id).where(schema.fragments.c.id != row)).scalars().first()
    change(warehouse, update(MEMOS).where(MEMOS.c.file == file.id).values(fragment=other))


@pytest.mark.parametrize(
    ("damage", "kinds", "what", "lost"),
    [
        (truncate, {"damaged memo"}, "cannot be read", True),
        (flip, {"damaged memo"}, "", True),
        (replace_values, {"damaged memo"}, "not the one that was committed", True),
        (remove, {"missing file"}, "not there", True),
        (lose_coverage, {"coverage"}, "lacks 1 memos", False),
        (claim_more, {"coverage"}, "claims 1 memos", False),
        (claim_another_content, {"coverage"}, "claims 1 memos", False),
        (miscount, {"counts"}, "live_bytes is", False),
        (condemn, {"counts"}, "it is marked unreferenced", False),
        (misnumber, {"rows"}, "has 21 rows, its file 20", True),
        (move_to_another_fragment, {"identity", "coverage"}, "not that of its component", False),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_damage_is_found_and_repaired(
    stored: Warehouse, damage: Callable[[Warehouse, Any], None], kinds: set[str], what: str, lost: bool
) -> None:
    file = one_file(stored)
    damage(stored, file)
    found = verify_warehouse(stored)
    assert {one.kind for one in found.findings} == kinds
    assert what in found.findings[0].what
    assert found.wrong == len(found.findings) > 0
    assert {one.next_step for one in found.findings} == {"headrace verify --repair"}
    assert all(one.where == file.path for one in found.findings)
    assert verify_warehouse(stored).findings == found.findings, "looking changes nothing"
    repaired = verify_warehouse(stored, repair=True)
    assert (repaired.wrong, len(repaired.findings)) == (0, len(found.findings))
    assert verify_warehouse(stored).findings == ()
    assert work(stored) == lost, "what was lost is queued for the model that reads it"
    again = verify_warehouse(stored, recompute=6)
    assert (again.findings, again.memos) == ((), 6)
    collect_garbage(stored, dry_run=False)
    assert verify_warehouse(stored).findings == ()


def test_a_memo_of_no_known_fragment_is_evicted(stored: Warehouse) -> None:
    file = one_file(stored)
    move_to_another_fragment(stored, file)
    lose_coverage(stored, file)
    assert verify_warehouse(stored, repair=True).wrong == 0
    assert verify_warehouse(stored).findings == ()
    assert work(stored) == 0, "computing it from the fragment that it named would have given wrong values"
    submit_model(stored, model())
    assert work(stored) == 1
    assert verify_warehouse(stored, recompute=6).findings == ()


def test_values_that_an_operator_would_not_give_are_found_by_recomputing(stored: Warehouse) -> None:
    """As when an operator changed and its version did not: the file is whole, and of another truth."""
    file = one_file(stored)
    with stored.catalog.read() as connection:
        memo = connection.execute(select(MEMOS).where(MEMOS.c.file == file.id)).one()
    wrong = write_memo_file(
        stored.storage, file.path, {memo.fingerprint: pa.array([[1]] * 20, arrow_type(Ragged(DType.INT64)))}
    )
    values = {"checksum": wrong.checksum, "size_bytes": wrong.size_bytes, "live_bytes": wrong.size_bytes}
    change(
        stored,
        update(FILES).where(FILES.c.id == file.id).values(**values),
        update(MEMOS).where(MEMOS.c.memo_key == memo.memo_key).values(size_bytes=wrong.size_bytes),
    )
    assert verify_warehouse(stored).findings == ()
    (finding,) = verify_warehouse(stored, recompute=6).findings
    assert (finding.kind, finding.what) == ("recomputed", "computing it again gave other values than the memo")
    assert verify_warehouse(stored, recompute=6, repair=True).wrong == 0
    assert work(stored) == 1
    assert verify_warehouse(stored, recompute=6).findings == ()


def test_raw_data_that_changed_cannot_be_recomputed(stored: Warehouse, log: Path) -> None:
    write_partition(log, 1, events(20, seed=9))
    findings = verify_warehouse(stored, recompute=6, repair=True).findings
    assert {one.kind for one in findings} == {"raw data"}
    assert not any(one.repaired for one in findings)
    assert all("hour=01" in one.where for one in findings)
    register_table(stored, "log", str(log))
    assert verify_warehouse(stored, recompute=6).findings == (), "memos of data that is gone are not sampled"


def test_the_same_memos_under_two_contents_are_well(stored: Warehouse, log: Path) -> None:
    write_partition(log, 0, events(20, 0, clicked=pa.array([True] * 20)))
    register_table(stored, "log", str(log))
    submit_model(stored, model())
    assert read_solution(stored, "ctr").count("load") == 6
    assert verify_warehouse(stored).findings == ()
    lose_coverage(stored, one_file(stored))
    assert verify_warehouse(stored, repair=True).wrong == 0
    submit_model(stored, model())
    assert read_solution(stored, "ctr").count("load") == 6


def test_a_sample_reads_less_and_still_misses_no_file(stored: Warehouse) -> None:
    half = verify_warehouse(stored, sample=0.5, seed=3)
    assert (half.files, half.read_files, half.memos, half.findings) == (6, 3, 3, ())
    assert verify_warehouse(stored, sample=0.5, seed=3) == half
    remove(stored, one_file(stored))
    assert [one.kind for one in verify_warehouse(stored, sample=0).findings] == ["missing file"]
    with pytest.raises(InputError, match="share"):
        verify_warehouse(stored, sample=1.5)


@pytest.mark.parametrize("few", [10_000, 1])
def test_the_sample_to_recompute_depends_on_the_seed_only(
    stored: Warehouse, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(recompute_module, "_FEW", few)
    with stored.catalog.read() as connection:
        drawn = {tuple(row.memo_key for row in sample_memos(connection, 2, Random(seed))) for seed in range(40)}
        again = {tuple(row.memo_key for row in sample_memos(connection, 2, Random(seed))) for seed in range(40)}
        assert len(sample_memos(connection, 100 if few > 1 else 6, Random(0))) == 6
        assert len(sample_memos(connection, 3, Random(0))) == 3, "more than there are components"
    assert drawn == again
    assert {len(keys) for keys in drawn} == {2}
    assert len({key for keys in drawn for key in keys}) == 6, "every memo has its chance"


@pytest.mark.slow
def test_what_is_evicted_while_it_is_read_is_no_finding(stored: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    fingerprint = read_solution(stored, "ctr").inputs[0].fingerprint
    check = verify_module.check_bytes
    waiting = [True]

    def evict_first(*args: Any) -> Any:
        if waiting:
            waiting.pop()
            evict_component(stored, fingerprint)
            collect_garbage(stored, dry_run=False)
        return check(*args)

    monkeypatch.setattr(verify_module, "check_bytes", evict_first)
    assert verify_warehouse(stored).findings == ()


def test_running_tasks_are_no_finding(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model())
    lease_tasks(warehouse, "w", limit=2)
    assert verify_warehouse(warehouse, recompute=3).findings == ()


def test_damaged_artifacts_are_found(stored: Warehouse) -> None:
    digest = write_artifact(stored.storage, pa.array(["red", "blue"]))
    change(stored, insert(schema.analyses).values(
        key="k", fingerprint="f", operator="o", expression="e", table_name="log", start_at=0, end_at=1,
        partitions=[], rows=1, artifact=digest, secs=0, created_at=0))  # fmt: skip
    assert verify_warehouse(stored).artifacts == 1
    path = Path(stored.config.home) / artifact_path(digest)
    path.write_bytes(path.read_bytes()[:-10])
    (finding,) = verify_warehouse(stored, repair=True).findings
    assert (finding.kind, finding.where, finding.repaired) == ("artifact", artifact_path(digest), False)
    assert "headrace analyze" in finding.next_step


def test_raw_files_stay_as_they_are(stored: Warehouse, log: Path) -> None:
    before = {path: pq.read_table(path) for path in log.rglob("*.parquet")}
    verify_warehouse(stored, recompute=6, repair=True)
    assert {path: pq.read_table(path) for path in log.rglob("*.parquet")} == before
