"""The encoding of a partition's file."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from pipelines.outputs.partitions import parquet_bytes
from tests.support.examples import scaled


def coded_columns(content: bytes) -> dict[str, bool]:
    """Whether the values of each column have a dictionary."""
    group = parquet.ParquetFile(pa.BufferReader(content)).metadata.row_group(0)
    columns = (group.column(at) for at in range(group.num_columns))
    return {column.path_in_schema: column.has_dictionary_page for column in columns}


def test_numbers_that_rarely_repeat_have_no_dictionary() -> None:
    rows = 10_000
    table = pa.table(
        {
            "id": range(rows),
            "kind": [row % 2048 for row in range(rows)],
            "kinds": [row % 2049 for row in range(rows)],
            "price": pa.array([row / 7 for row in range(rows)], pa.float32()),
            "time": pa.array(range(rows), pa.timestamp("us", tz="UTC")),
            "text": [f"text {row}" for row in range(rows)],
            "ids": [[row, row + 1] for row in range(rows)],
            "words": [["a"]] * rows,
            "pairs": [{"id": row, "kind": row % 3} for row in range(rows)],
            "map": pa.array([[("a", row)] for row in range(rows)], pa.map_(pa.string(), pa.int64())),
        }
    )
    assert coded_columns(parquet_bytes(table)) == {
        "id": False, "kind": True, "kinds": False, "price": False, "time": False, "text": True, "ids.list.element": False,
        "words.list.element": True, "pairs.id": False, "pairs.kind": True, "map.key_value.key": True, "map.key_value.value": True,
    }  # fmt: skip


@settings(max_examples=scaled(40))
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
            st.one_of(st.none(), st.floats(width=32, allow_nan=False)),
            st.one_of(st.none(), st.text(max_size=5)),
            st.one_of(st.none(), st.lists(st.integers(0, 9), max_size=3)),
        ),
        max_size=30,
    ),
    cut=st.integers(0, 30),
)
def test_a_file_holds_its_rows_and_has_the_same_bytes_for_the_same_rows(rows, cut):
    kinds = {"id": pa.int64(), "price": pa.float32(), "text": pa.string(), "ids": pa.list_(pa.int64())}
    columns = {name: [row[at] for row in rows] for at, name in enumerate(kinds)}
    table = pa.table({name: pa.array(columns[name], kind) for name, kind in kinds.items()})
    content = parquet_bytes(table)
    assert parquet.read_table(pa.BufferReader(content)).to_pylist() == table.to_pylist()
    assert parquet_bytes(pa.concat_tables([table.slice(0, cut), table.slice(cut)])) == content
