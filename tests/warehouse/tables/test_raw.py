"""Raw columns of merged fragments."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.warehouse.scenes import write_partition
from transforms.execution.plan import compile_plan
from transforms.expressions.expression import text
from warehouse import Warehouse, read_raw, register_table
from warehouse.tables.manifests import current_fragments
from warehouse.tables.table import Fragment, merge_fragments


def _merged(warehouse: Warehouse, root: Path, *files: list[str | None]) -> Fragment:
    for hour, texts in enumerate(files):
        write_partition(root, hour, pa.table({"t": pa.array(texts, pa.string())}))
    register_table(warehouse, "log", str(root))
    with warehouse.catalog.read() as connection:
        return merge_fragments([placed.fragment for placed in current_fragments(connection, "log")])


@pytest.mark.parametrize(
    "files",
    [
        (["a", None, "b"], ["b", None, "c"]),
        (["a", None, "b"], ["b", "c"]),
        ([None], ["b", None, "c"], [None, "a"]),
        (["a", "b"], ["b", "a"]),
    ],
)
def test_codes_of_merged_fragments(warehouse: Warehouse, tmp_path: Path, files: tuple[list[str | None], ...]) -> None:
    whole = [texts * 400 for texts in files]
    fragment = _merged(warehouse, tmp_path / "log", *whole)
    plain = read_raw(warehouse.storage, fragment, ["t"])
    coded = read_raw(warehouse.storage, fragment, ["t"], coded=["t"])
    assert pa.types.is_dictionary(coded.schema.field("t").type)
    assert plain.column("t").to_pylist() == [text for texts in whole for text in texts]
    assert coded.column("t").cast(pa.string()).to_pylist() == plain.column("t").to_pylist()
    plan = compile_plan({"n": text("t").lower().node, "h": text("t").fill_null("").hash_buckets(1000).node})
    results = [plan.run(table) for table in (plain, coded)]
    assert not results[1].failures
    assert results[0].columns == results[1].columns


def test_texts_with_and_without_codes_become_texts(warehouse: Warehouse, tmp_path: Path) -> None:
    long = [f"a text of its own, number {i}" for i in range(1200)]
    fragment = _merged(warehouse, tmp_path / "log", ["a", None, "b"] * 400, [*long, None])
    coded = read_raw(warehouse.storage, fragment, ["t"], coded=["t"])
    assert coded.schema.field("t").type == pa.string()
    assert coded.column("t").to_pylist() == [*["a", None, "b"] * 400, *long, None]


def test_times_that_spark_writes_as_int96_are_read_whatever_their_year(warehouse: Warehouse, tmp_path: Path) -> None:
    years = [datetime(year, 12, 31, 23, 59, 59, 999_999, UTC) for year in (1, 1677, 2026, 2263, 9999)] * 300
    rows = pa.table({"at": pa.array(years, pa.timestamp("us", "UTC")), "t": pa.array([str(at.year) for at in years])})
    place = tmp_path / "log" / "date=2026-03-01"
    place.mkdir(parents=True)
    pq.write_table(rows, place / "part.parquet", use_deprecated_int96_timestamps=True)
    registered = register_table(warehouse, "log", str(tmp_path / "log"))
    assert registered.table.column("at").arrow_type.startswith("timestamp[us")
    with warehouse.catalog.read() as connection:
        (placed,) = current_fragments(connection, "log")
    read = read_raw(warehouse.storage, placed.fragment, ["at", "t"], coded=["t"])
    assert [at.replace(tzinfo=UTC) for at in read.column("at").to_pylist()] == years
