from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.log_blocks import LineBlock
from pipelines.log_schema import LogSchema
from pipelines.parse_json_lines import fast_block, parse_json_block, slow_block
from tests.pipelines.logs import log_schema

ALL_TYPES = LogSchema.from_document(
    {
        "format": "jsonl",
        "null": ["", "n/a"],
        "columns": [
            {"name": "b", "type": "bool"},
            {"name": "i", "type": "int64"},
            {"name": "f", "type": "float32"},
            {"name": "d", "type": "float64"},
            {"name": "s", "type": "string"},
            {"name": "l", "type": "string", "separator": "|"},
            {"name": "u", "type": "timestamp", "unit": "us"},
            {"name": "t", "type": "timestamp"},
        ],
        "time": {"column": "t", "unit": "iso8601"},
    }
)


def block_of(*lines: str | bytes) -> LineBlock:
    return LineBlock(1, b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))


def test_clean_lines_take_the_fast_way() -> None:
    line = json.dumps({"user": 1, "query": "q", "price": 1.5, "tags": "a|b", "time": 0, "more": {"x": [1]}})
    table = fast_block(block_of(line, line), log_schema("jsonl"))
    assert table is not None
    assert table.num_rows == 2


@pytest.mark.parametrize(
    ("line", "what", "column", "value"),
    [
        ("{", "not a JSON object", "", None),
        ("[1]", "not a JSON object", "", "[1]"),
        ('{"user": 1, "user": 2, "time": 0}', "not a JSON object", "user", "a key appears twice"),
        ('{"user": "1", "time": 0}', "a value cannot be read as its type", "user", '"1"'),
        ('{"user": 1.5, "time": 0}', "a value cannot be read as its type", "user", "1.5"),
        ('{"user": true, "time": 0}', "a value cannot be read as its type", "user", "true"),
        ('{"user": 99999999999999999999, "time": 0}', "a value cannot be read as its type", "user", "9" * 20),
        ('{"user": 1, "query": 5, "time": 0}', "a value cannot be read as its type", "query", "5"),
        ('{"user": 1, "price": "1", "time": 0}', "a value cannot be read as its type", "price", '"1"'),
        ('{"user": 1, "price": NaN, "time": 0}', "a value cannot be read as its type", "price", "NaN"),
        ('{"user": 1}', "a required value is missing", "time", "null"),
        ('{"user": null, "time": 0}', "a required value is missing", "user", "null"),
        (b'{"user": 1, "query": "\xff", "time": 0}', "not UTF-8", "", None),
    ],
)
def test_a_bad_line_is_set_aside_with_its_reason(line: str | bytes, what: str, column: str, value: str | None) -> None:
    good = '{"user": 7, "time": 0}'
    parsed = parse_json_block(block_of(good, "", line, good), log_schema("jsonl"))
    assert parsed.table.column("user").to_pylist() == [7, 7]
    (reject,) = parsed.rejects
    assert (reject.line, reject.what, reject.column) == (3, what, column)
    if value is not None:
        assert reject.value == value


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-1000, 1000),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=5),
    st.sampled_from(["", "n/a", "a|b", "2026-01-01T00:00:00Z", "2026-01-01", "noon", "1"]),
)
RIGHT = {
    "b": st.booleans(),
    "i": st.integers(-(2**63), 2**63 - 1),
    "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "d": st.floats(allow_nan=False, allow_infinity=False),
    "s": st.text(max_size=5),
    "l": st.sampled_from(["a|b", "", "a", "a||b"]),
    "u": st.integers(0, 10**15),
    "t": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5+01:00"]),
}
MIXED = st.fixed_dictionaries(
    {"t": st.one_of(RIGHT["t"], SCALARS)},
    optional={name: st.one_of(value, value, value, SCALARS) for name, value in RIGHT.items() if name != "t"},
)


@given(st.lists(MIXED, min_size=1, max_size=6))
@settings(max_examples=300)
def test_the_fast_way_gives_what_the_slow_way_means(rows: list[dict[str, object]]) -> None:
    block = block_of(*(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") for row in rows))
    fast = fast_block(block, ALL_TYPES)
    slow = slow_block(block, ALL_TYPES)
    assert slow.table.num_rows + len(slow.rejects) == len(rows)
    if fast is not None:
        assert slow.rejects == ()
        assert fast.equals(slow.table)


@given(st.lists(st.fixed_dictionaries(RIGHT), min_size=1, max_size=6))
@settings(max_examples=50)
def test_right_values_come_back(rows: list[dict[str, object]]) -> None:
    parsed = parse_json_block(block_of(*(json.dumps(row) for row in rows)), ALL_TYPES)
    table = parsed.table
    assert parsed.rejects == ()
    assert table.column("i").to_pylist() == [row["i"] for row in rows]
    assert table.column("d").equals(pa.chunked_array([pa.array([row["d"] for row in rows], pa.float64())]))
