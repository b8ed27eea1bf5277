"""Reading fragments: memoized, computed and damaged columns give equal values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import select

from tests.warehouse.scenes import REPOSITORY, Clock, events, model, read_of, work, write_partition
from transforms.columns.arrow_types import arrow_type
from transforms.errors import UnknownColumn
from warehouse import (
    LABEL,
    Storage,
    Warehouse,
    damage_recorder,
    explain_model,
    mark_damaged,
    queue_depths,
    read_fragment,
    read_raw,
    read_solution,
    register_table,
    submit_model,
)
from warehouse.catalog import schema
from warehouse.errors import ChangedData, MemoDamaged
from warehouse.solution.solution import ReadSolution
from warehouse.storage.layout import SUFFIX

pytestmark = pytest.mark.usefixtures("log")


def tables(warehouse: Warehouse, solution: ReadSolution) -> list[pa.Table]:
    fragments = [fragment for part in solution.partitions for fragment in part.fragments]
    return [read_fragment(warehouse.storage, solution, fragment) for fragment in fragments]


@pytest.mark.medium
def test_memoized_and_computed_are_the_same(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=5))
    computed = tables(warehouse, read_solution(warehouse, "ctr"))
    work(warehouse)
    solution = read_solution(warehouse, "ctr")
    assert solution.count("compute") == 0
    assert [one.equals(two) for one, two in zip(tables(warehouse, solution), computed, strict=True)] == [True] * 3


def test_rows_are_events_in_order(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=2))
    work(warehouse)
    solution = read_solution(warehouse, "ctr")
    for hour, table in enumerate(tables(warehouse, solution)):
        raw = events(20, seed=hour)
        assert table.column_names == ["input_0", "input_1", "price", LABEL]
        assert table.column(LABEL).equals(raw.column("clicked"))
        assert table.column("price").equals(raw.column("price"))
        for item in solution.inputs:
            assert table.schema.field(item.name).type == arrow_type(item.type)
        words = [len(text.split()) if text else 0 for text in raw.column("query").to_pylist()]
        assert [len(ids) for ids in table.column("input_0").to_pylist()] == words


def test_extra_columns(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=1))
    solution = read_solution(warehouse, "ctr")
    fragment = solution.partitions[0].fragments[0]
    table = read_fragment(warehouse.storage, solution, fragment, columns=["title", "query"])
    assert table.column_names == ["input_0", "price", LABEL, "title", "query"]
    assert table.column("title").equals(events(20).column("title"))
    with pytest.raises(UnknownColumn):
        read_fragment(warehouse.storage, solution, fragment, columns=["titel"])


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped", "other values"])
def test_damaged_memos_are_computed_instead(warehouse: Warehouse, tmp_path: Path, damage: str) -> None:
    submit_model(warehouse, model())
    computed = tables(warehouse, read_solution(warehouse, "ctr"))
    work(warehouse)
    solution = read_solution(warehouse, "ctr")
    (_, read), (_, other) = (read_of(solution, part.fragments[0], "input_0") for part in solution.partitions[:2])
    path = tmp_path / "home" / read
    content = path.read_bytes()
    match damage:
        case "missing":
            path.unlink()
        case "truncated":
            path.write_bytes(content[:-20])
        case "flipped":
            path.write_bytes(bytes(byte ^ 0xFF for byte in content))
        case "other values":
            path.write_bytes((tmp_path / "home" / other).read_bytes())
    seen: list[tuple[str, str, MemoDamaged]] = []
    fragment = solution.partitions[0].fragments[0]
    table = read_fragment(warehouse.storage, solution, fragment, on_damage=lambda *bad: seen.append(bad))
    assert table.equals(computed[0])
    assert len(seen) == 1
    assert seen[0][1] == read
    assert read in seen[0][2].where


def test_damage_is_recorded_and_repaired(warehouse: Warehouse, tmp_path: Path, clock: Clock) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    solution = read_solution(warehouse, "ctr")
    fragment = solution.partitions[0].fragments[0]
    (tmp_path / "home" / read_of(solution, fragment, "input_1")[1]).unlink()
    record = damage_recorder(warehouse)
    for _ in range(2):
        read_fragment(warehouse.storage, solution, fragment, on_damage=record)
    assert queue_depths(warehouse)[0].queued == 1, "recorded once"
    decision = next(one for one in explain_model(warehouse, "ctr") if one.input == "input_1")
    assert (decision.state, decision.reason_code) == ("PENDING", "evicted")
    assert "damaged: the memo file cannot be read" in decision.reason
    assert work(warehouse) == 1
    assert read_solution(warehouse, "ctr").count("compute") == 0
    assert tables(warehouse, read_solution(warehouse, "ctr"))


@pytest.mark.medium
def test_a_damaged_memo_of_a_renamed_file_is_computed_from_where_the_data_is(
    warehouse: Warehouse, log: Path, tmp_path: Path
) -> None:
    submit_model(warehouse, model())
    computed = work(warehouse)
    for path in sorted(log.rglob("*.parquet")):
        path.rename(path.with_name("renamed.parquet"))
    register_table(warehouse, "log", str(log))
    solution = read_solution(warehouse, "ctr")
    assert solution.count("compute") == 0
    for path in (tmp_path / "home/memos").rglob(f"*.{SUFFIX}"):
        path.unlink()
    for partition in solution.partitions:
        read_fragment(warehouse.storage, solution, partition.fragments[0], on_damage=damage_recorder(warehouse))
    assert work(warehouse) == computed
    assert read_solution(warehouse, "ctr").count("compute") == 0


def test_damage_that_no_live_model_reads_is_only_noted(warehouse: Warehouse) -> None:
    submit_model(warehouse, model(inputs=2))
    work(warehouse)
    dropped = read_solution(warehouse, "ctr").inputs[1].fingerprint
    submit_model(warehouse, model(inputs=1))
    with warehouse.catalog.read() as connection:
        of = schema.memos.c
        files = schema.memo_files.c
        query = select(of.memo_key, files.path).join(schema.memo_files, files.id == of.file)
        row = connection.execute(query.where(of.fingerprint == dropped)).first()
    assert row is not None
    assert not mark_damaged(warehouse, row.memo_key, "memos/older.memo", "not there")
    assert mark_damaged(warehouse, row.memo_key, row.path, "bad sector")
    assert not mark_damaged(warehouse, row.memo_key, row.path, "bad sector")
    assert queue_depths(warehouse)[0].queued == 0
    decisions = [one for one in explain_model(warehouse, "ctr", version=1) if one.input == "input_1"]
    assert [one.reason_code for one in decisions].count("evicted") == 1


@pytest.mark.medium
def test_damage_of_replaced_data_queues_nothing(warehouse: Warehouse, log: Path, tmp_path: Path) -> None:
    """A job on older data finds it; no model needs those memos any more, and their raw data may be gone."""
    submit_model(warehouse, model())
    work(warehouse)
    old = read_solution(warehouse, "ctr")
    damage = damage_recorder(warehouse)
    for hour in range(3):
        write_partition(log, hour, events(20, seed=50 + hour))
    register_table(warehouse, "log", str(log))
    submit_model(warehouse, model())
    work(warehouse)
    for path in (tmp_path / "home/memos").rglob(f"*.{SUFFIX}"):
        path.unlink()
    for fragment in old.fragments:
        with pytest.raises(ChangedData):
            read_fragment(warehouse.storage, old, fragment, on_damage=damage)
    assert (queue_depths(warehouse)[0].queued, work(warehouse)) == (0, 0)
    now = read_solution(warehouse, "ctr")
    for fragment in now.fragments:
        read_fragment(warehouse.storage, now, fragment, on_damage=damage)
    assert work(warehouse) == 6


@pytest.mark.medium
def test_a_damaged_memo_is_computed_from_a_file_that_was_written_again(
    warehouse: Warehouse, log: Path, tmp_path: Path
) -> None:
    """Only a column that the model's memos do not read is another one in it."""
    submit_model(warehouse, model())
    computed = work(warehouse)
    for hour in range(3):
        write_partition(log, hour, events(20, seed=hour, price=pa.array([9.0] * 20, pa.float32())), "again.parquet")
        (log / f"date=2026-01-01/hour={hour:02d}/part.parquet").unlink()
    register_table(warehouse, "log", str(log))
    assert submit_model(warehouse, model()).hits == 6
    for path in (tmp_path / "home/memos").rglob(f"*.{SUFFIX}"):
        path.unlink()
    solution = read_solution(warehouse, "ctr")
    for fragment in solution.fragments:
        read_fragment(warehouse.storage, solution, fragment, on_damage=damage_recorder(warehouse))
    assert work(warehouse) == computed
    assert read_solution(warehouse, "ctr").count("compute") == 0


@pytest.mark.medium
def test_raw_data_that_changed_is_never_read_silently(warehouse: Warehouse, log: Path) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    solution = read_solution(warehouse, "ctr")
    write_partition(log, 0, events(20, seed=9))
    with pytest.raises(ChangedData):
        read_fragment(warehouse.storage, solution, solution.partitions[0].fragments[0])


def test_text_that_repeats_may_come_as_a_dictionary(warehouse: Warehouse, tmp_path: Path) -> None:
    write_partition(tmp_path / "big", 0, events(4000))
    register_table(warehouse, "big", str(tmp_path / "big"))
    submit_model(warehouse, model(inputs=5), table="big")
    computed = read_solution(warehouse, "ctr")
    fragment = computed.partitions[0].fragments[0]
    coded = read_raw(warehouse.storage, fragment, ["query", "title", "price"], coded=["query"])
    plain = read_raw(warehouse.storage, fragment, ["query", "title", "price"])
    assert pa.types.is_dictionary(coded.schema.field("query").type)
    assert coded.schema.field("title").type == pa.string()
    assert coded.cast(plain.schema).equals(plain)
    tables_before = tables(warehouse, computed)
    work(warehouse)
    assert tables(warehouse, read_solution(warehouse, "ctr"))[0].equals(tables_before[0])


@pytest.mark.medium
def test_a_reader_needs_neither_catalog_nor_database_toolkit(warehouse: Warehouse, tmp_path: Path) -> None:
    submit_model(warehouse, model())
    work(warehouse, most=3)
    (tmp_path / "solution.json").write_text(json.dumps(read_solution(warehouse, "ctr").to_document()))
    if not warehouse.config.catalog_url:
        (tmp_path / "home/catalog.db").rename(tmp_path / "gone.db")
    code = (
        "import json, sys\n"
        "from warehouse import ReadSolution, Storage, read_fragment\n"
        "solution = ReadSolution.from_document(json.load(open(sys.argv[1])))\n"
        "storage = Storage(sys.argv[2])\n"
        "rows = [read_fragment(storage, solution, f).num_rows for p in solution.partitions for f in p.fragments]\n"
        "assert 'sqlalchemy' not in sys.modules\n"
        "print(rows)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "solution.json"), str(tmp_path / "home")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.stdout.strip() == "[20, 20, 20]"


@pytest.mark.medium
def test_memos_are_found_wherever_the_home_is(warehouse: Warehouse, tmp_path: Path) -> None:
    submit_model(warehouse, model())
    work(warehouse)
    solution = read_solution(warehouse, "ctr")
    (tmp_path / "home/memos").rename(tmp_path / "memos")
    fragment = solution.partitions[0].fragments[0]
    seen: list[object] = []
    read_fragment(Storage(str(tmp_path)), solution, fragment, on_damage=lambda *bad: seen.append(bad))
    assert seen == []
