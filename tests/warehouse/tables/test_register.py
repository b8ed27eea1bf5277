"""Registration in place: what is found, what is refused, and that a refusal writes nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.warehouse.scenes import FREE_READS, Clock, events, write_log, write_partition
from transforms.errors import Busy, DataError, HeadraceError, InputError, TypeMismatch, UnknownColumn
from warehouse import Warehouse, WarehouseConfig, list_tables, read_raw, register_table
from warehouse.errors import ChangedData, CorruptFile, EmptyPartition, SchemaDrift, UnknownTable
from warehouse.files.digests import column_digest
from warehouse.tables.manifests import get_table, table_manifests
from warehouse.tables.parquet import gather_row_groups
from warehouse.tables.table import Manifest


def manifests(warehouse: Warehouse, name: str = "log") -> tuple[Manifest, ...]:
    with warehouse.catalog.read() as connection:
        return table_manifests(connection, name)


def digest_of(found: tuple[Manifest, ...]) -> list[tuple[str, int, list[str]]]:
    return [(one.partition, one.version, [fragment.fragment_id for fragment in one.fragments]) for one in found]


def test_first_registration(warehouse: Warehouse, tmp_path: Path) -> None:
    root = write_log(tmp_path / "log", hours=3, rows=20)
    steps: list[tuple[int, int, str]] = []
    found = register_table(warehouse, "log", str(root), progress=lambda *step: steps.append(step))
    assert found.added == tuple(f"date=2026-01-01/hour={hour:02d}" for hour in range(3))
    assert (found.changed, found.removed, found.unchanged, found.rows) == ((), (), 0, 60)
    assert found.table.version == 1
    assert [column.name for column in found.table.columns] == ["query", "title", "price", "clicked"]
    assert [step[0] for step in steps] == sorted(step[0] for step in steps)
    assert steps[-1][0] == steps[-1][1] > 0
    first = manifests(warehouse)[0]
    assert (first.rows, first.version, first.start.hour, first.end.hour) == (20, 1, 0, 1)
    assert first.fragments[0].digests == {
        name: column_digest(events(20).column(name)) for name in ("query", "title", "price", "clicked")
    }


def test_a_folder_with_a_half_published_import_is_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    root = write_log(tmp_path / "log", hours=2, rows=5)
    journal = tmp_path / "log.imports" / "abc.pending.json"
    journal.parent.mkdir()
    journal.write_text("{}")
    with pytest.raises(Busy, match="not finished") as caught:
        register_table(warehouse, "log", str(root))
    assert caught.value.value == str(journal)
    assert list_tables(warehouse) == ()
    journal.rename(journal.with_name("abc.json"))
    assert register_table(warehouse, "log", str(root)).rows == 10


def test_days_and_several_files_and_ignored_names(warehouse: Warehouse, tmp_path: Path) -> None:
    for name in ("b.parquet", "a.pq", "_SUCCESS", ".hidden.parquet", "notes.txt"):
        path = tmp_path / "log/date=2026-01-01" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith((".parquet", ".pq")):
            pq.write_table(events(5), path)
        else:
            path.write_text("")
    (tmp_path / "log/_temporary/date=2026-01-02").mkdir(parents=True)
    found = register_table(warehouse, "log", str(tmp_path / "log"))
    assert found.rows == 10
    assert [Path(f.path).name for f in manifests(warehouse)[0].fragments] == ["a.pq", "b.parquet"]


def test_registering_again_reads_nothing(warehouse: Warehouse, log: Path) -> None:
    before = digest_of(manifests(warehouse))
    steps: list[Any] = []
    found = register_table(warehouse, "log", str(log), progress=lambda *step: steps.append(step))
    assert (found.added, found.changed, found.unchanged, found.table.version, steps) == ((), (), 3, 1, [])
    assert found.rows == 60
    assert digest_of(manifests(warehouse)) == before


def test_an_appended_file_touches_its_partition_only(warehouse: Warehouse, log: Path) -> None:
    before = digest_of(manifests(warehouse))
    write_partition(log, 1, events(5, seed=9), name="late.parquet")
    read: list[str] = []
    found = register_table(warehouse, "log", str(log), progress=lambda done, total, path: read.append(path))
    assert found.changed == ("date=2026-01-01/hour=01",)
    assert (found.unchanged, found.rows, found.table.version) == (2, 65, 2)
    assert {Path(path).name for path in read} == {"late.parquet"}
    after = digest_of(manifests(warehouse))
    assert after[0] == before[0]
    assert after[2] == before[2]
    assert after[1][1] == 2
    assert set(after[1][2]) > set(before[1][2])


def test_a_rewritten_file_and_one_with_the_same_values(warehouse: Warehouse, log: Path) -> None:
    before = digest_of(manifests(warehouse))
    path = write_partition(log, 0, events(20, seed=0), compression="none", row_group_size=7)
    os.utime(path, ns=(1, 1))
    register_table(warehouse, "log", str(log))
    same = digest_of(manifests(warehouse))
    assert same[0][1] == 2
    assert same[0][2] == before[0][2], "the same values in other bytes are the same fragment"
    write_partition(log, 0, events(20, seed=5))
    register_table(warehouse, "log", str(log))
    assert digest_of(manifests(warehouse))[0][2] != before[0][2]


def test_a_partition_that_is_gone(warehouse: Warehouse, log: Path) -> None:
    shutil.rmtree(log / "date=2026-01-01/hour=02")
    found = register_table(warehouse, "log", str(log))
    assert found.removed == ("date=2026-01-01/hour=02",)
    assert found.rows == 40
    assert len(manifests(warehouse)) == 2
    write_partition(log, 2, events(20, seed=2))
    assert register_table(warehouse, "log", str(log)).added == ("date=2026-01-01/hour=02",)
    assert manifests(warehouse)[2].version == 3


def test_moved_data_keeps_its_fragments(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    before = [ids for _, _, ids in digest_of(manifests(warehouse))]
    shutil.move(log, tmp_path / "elsewhere")
    found = register_table(warehouse, "log", str(tmp_path / "elsewhere"))
    assert len(found.changed) == 3
    assert [ids for _, _, ids in digest_of(manifests(warehouse))] == before


def test_fragments_follow_row_groups(tmp_path: Path, clock: Clock) -> None:
    write_partition(tmp_path / "log", 0, events(100), row_group_size=30)
    with Warehouse.open(
        WarehouseConfig(str(tmp_path / "home"), fragment_rows=60, rates=FREE_READS), clock
    ) as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
        fragments = manifests(warehouse)[0].fragments
        assert [(one.row_groups, one.rows) for one in fragments] == [((0, 1), 60), ((2, 3), 40)]
        read = [read_raw(warehouse.storage, one, ["price", "query"]) for one in fragments]
        assert pa.concat_tables(read).equals(events(100).select(["price", "query"]))
        assert sum(one.size_bytes for one in fragments) < (tmp_path / "log").stat().st_size + 10_000


def test_gathering_row_groups() -> None:
    assert gather_row_groups([5, 5, 5], 10) == [(0, 1), (2,)]
    assert gather_row_groups([50, 1, 1], 10) == [(0,), (1, 2)]
    assert gather_row_groups([], 10) == []
    assert gather_row_groups([0, 0], 10) == []
    assert gather_row_groups([3, 0, 8], 10) == [(0, 1), (2,)]


def test_a_file_without_rows(warehouse: Warehouse, log: Path) -> None:
    write_partition(log, 1, events(20).slice(0, 0), name="empty.parquet")
    assert register_table(warehouse, "log", str(log)).rows == 60
    assert register_table(warehouse, "log", str(log)).unchanged == 3


def refused(warehouse: Warehouse, root: Path, kind: type[HeadraceError], **options: Any) -> HeadraceError:
    """The error of a registration that must write nothing."""
    with pytest.raises(kind) as caught:
        register_table(warehouse, "refused", str(root), **options)
    assert type(caught.value) is kind
    with warehouse.catalog.read() as connection, pytest.raises(UnknownTable):
        get_table(connection, "refused")
    return caught.value


def test_a_partition_without_files(warehouse: Warehouse, tmp_path: Path) -> None:
    root = write_log(tmp_path / "log")
    (root / "date=2026-01-02/hour=00").mkdir(parents=True)
    error = refused(warehouse, root, EmptyPartition)
    assert error.where == f"{root}/date=2026-01-02/hour=00"
    assert isinstance(error, DataError)
    (root / "date=2026-01-02/hour=00/_SUCCESS").write_text("")
    refused(warehouse, root, EmptyPartition)


def test_no_partitions_at_all(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    assert "no partitions" in refused(warehouse, tmp_path / "log", EmptyPartition).what
    pq.write_table(events(), tmp_path / "log/part.parquet")
    assert refused(warehouse, tmp_path / "log", DataError).where == str(tmp_path / "log/part.parquet")
    assert refused(warehouse, tmp_path / "nothing", DataError).value == str(tmp_path / "nothing")


DRIFTS: dict[str, tuple[dict[str, Any], list[str], str, str, str]] = {
    "type": ({"price": pa.array(range(20))}, [], "price", "int64", "float"),
    "text": ({"title": pa.array(range(20))}, [], "title", "int64", "string"),
    "list": ({"title": pa.array([["a"]] * 20)}, [], "title", "list<element: string>", "string"),
}


@pytest.mark.parametrize("drift", sorted(DRIFTS))
def test_a_drifted_schema_names_file_column_and_both_types(warehouse: Warehouse, tmp_path: Path, drift: str) -> None:
    replaced, dropped, column, found, expected = DRIFTS[drift]
    root = write_log(tmp_path / "log")
    path = write_partition(root, 2, events(20, **replaced).drop_columns(dropped), name="x.parquet")
    error = refused(warehouse, root, SchemaDrift)
    assert error.where == f"{path}, column {column}"
    assert (error.value, error.allowed) == (found, expected)


def test_a_drifted_schema_of_an_appended_file(warehouse: Warehouse, log: Path) -> None:
    before = digest_of(manifests(warehouse))
    path = write_partition(log, 7, events(20, price=pa.array(["dear"] * 20)))
    with pytest.raises(SchemaDrift) as caught:
        register_table(warehouse, "log", str(log))
    assert str(path) in caught.value.where
    assert (caught.value.value, caught.value.allowed) == ("string", "float")
    assert digest_of(manifests(warehouse)) == before
    path.unlink()
    path.parent.rmdir()
    assert register_table(warehouse, "log", str(log)).unchanged == 3


def test_a_table_keeps_its_columns_even_when_every_file_is_new(warehouse: Warehouse, log: Path) -> None:
    for hour in range(3):
        write_partition(log, hour, events(20, seed=hour, price=pa.array(["dear"] * 20)))
    with pytest.raises(SchemaDrift) as caught:
        register_table(warehouse, "log", str(log))
    assert caught.value.where.endswith("column price")
    for hour in range(3):
        write_partition(log, hour, events(20, seed=hour).drop_columns(["price"]))
    table = register_table(warehouse, "log", str(log)).table
    assert [column.name for column in table.columns] == ["query", "title", "price", "clicked"]


def test_spelling_and_order_are_no_drift(warehouse: Warehouse, tmp_path: Path) -> None:
    root = write_log(tmp_path / "log", hours=1)
    table = events(20, seed=1).select(["clicked", "price", "title", "query"])
    table = table.set_column(3, "query", table.column("query").cast(pa.dictionary(pa.int32(), pa.string())))
    table = table.set_column(2, "title", table.column("title").cast(pa.large_string()))
    write_partition(root, 1, table)
    assert register_table(warehouse, "log", str(root)).rows == 40


@pytest.mark.parametrize("keep", [0, 3, 100, 400, -1, -9])
def test_a_truncated_file_is_named(warehouse: Warehouse, tmp_path: Path, keep: int) -> None:
    root = write_log(tmp_path / "log")
    path = root / "date=2026-01-01/hour=01/part.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    assert str(path) in refused(warehouse, root, CorruptFile).where


def test_damaged_pages_are_found(warehouse: Warehouse, tmp_path: Path) -> None:
    root = write_log(tmp_path / "log", rows=5000)
    path = root / "date=2026-01-01/hour=01/part.parquet"
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    assert str(path) in refused(warehouse, root, CorruptFile).where


def test_a_column_name_that_is_not_utf8_is_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    root = write_log(tmp_path / "log")
    path = root / "date=2026-01-01/hour=01/part.parquet"
    pq.write_table(events(20), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"title", b"t\xfftle"))
    with pytest.raises(CorruptFile, match="name") as caught:
        register_table(warehouse, "log", str(root))
    assert (caught.value.where, caught.value.value) == (str(path), b"t\xfftle")


@pytest.mark.slow
def test_a_file_damaged_after_its_registration_is_refused_or_read_as_it_was(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    table = pa.table({"query": ["a", "b", "c"] * 60})
    root = tmp_path / "log"
    write_partition(root, 0, table)
    register_table(warehouse, "log", str(root))
    fragment = manifests(warehouse)[0].fragments[0]
    path = Path(fragment.path)
    content = path.read_bytes()
    refusals = set()
    for at in range(len(content)):
        for value in (content[at] ^ 0xFF, content[at] ^ 1):
            path.write_bytes(content[:at] + bytes([value]) + content[at + 1 :])
            try:
                assert read_raw(warehouse.storage, fragment, ["query"], coded=["query"]).num_rows == 180
            except HeadraceError as error:
                refusals.add(type(error))
    assert {ChangedData, CorruptFile} <= refusals


def test_time_column_is_checked(warehouse: Warehouse, tmp_path: Path) -> None:
    root = write_log(tmp_path / "log")
    assert "clicked" in refused(warehouse, root, UnknownColumn, time_column="clickd").allowed
    assert refused(warehouse, root, TypeMismatch, time_column="title").value == "string"
    moments = pa.array(range(20), pa.timestamp("ms"))
    root = tmp_path / "timed"
    write_partition(root, 0, events(20, time=moments))
    assert register_table(warehouse, "timed", str(root), time_column="time").table.time_column == "time"
    assert register_table(warehouse, "timed", str(root)).table.time_column == "time"


@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 129])
def test_names(warehouse: Warehouse, log: Path, name: str) -> None:
    with pytest.raises(InputError):
        register_table(warehouse, name, str(log))


def test_a_file_changed_behind_our_back(warehouse: Warehouse, log: Path) -> None:
    fragment = manifests(warehouse)[0].fragments[0]
    write_partition(log, 0, events(20, seed=0, price=pa.array([1.0] * 20, pa.float32())))
    assert read_raw(warehouse.storage, fragment, ["title"]).num_rows == 20
    with pytest.raises(ChangedData) as caught:
        read_raw(warehouse.storage, fragment, ["title", "price"])
    assert "column price" in caught.value.where
    assert read_raw(warehouse.storage, fragment, ["price"], verify=False).num_rows == 20
    write_partition(log, 0, events(19))
    with pytest.raises(ChangedData, match="changed since it was registered"):
        read_raw(warehouse.storage, fragment, ["title"])
    with pytest.raises(UnknownColumn):
        read_raw(warehouse.storage, fragment, ["titel"])


def test_list_tables(warehouse: Warehouse, log: Path) -> None:
    (row,) = list_tables(warehouse)
    assert (row.table.name, row.partitions, row.fragments, row.rows) == ("log", 3, 3, 60)
    assert row.bytes > 0


def test_unknown_table_names_the_nearest(warehouse: Warehouse, log: Path) -> None:
    with pytest.raises(UnknownTable) as caught:
        manifests(warehouse, "logs")
    assert caught.value.allowed == "log"
