from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.blocks import LineBlock
from pipelines.parsing.json_lines import fast_block, parse_json_block, slow_block
from tests.pipelines.logs import log_schema
from tests.support.examples import scaled

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
        ('{"user": "1x", "time": 0}', "a value cannot be read as its type", "user", '"1x"'),
        ('{"user": 1.5, "time": 0}', "a value cannot be read as its type", "user", "1.5"),
        ('{"user": true, "time": 0}', "a value cannot be read as its type", "user", "true"),
        ('{"user": 99999999999999999999, "time": 0}', "a value cannot be read as its type", "user", "9" * 20),
        ('{"user": 1, "query": 5, "time": 0}', "a value cannot be read as its type", "query", "5"),
        ('{"user": 1, "price": "1 USD", "time": 0}', "a value cannot be read as its type", "price", '"1 USD"'),
        ('{"user": 1, "price": NaN, "time": 0}', "a value cannot be read as its type", "price", "NaN"),
        ('{"user": 1}', "a required value is missing", "time", "null"),
        ('{"user": null, "time": 0}', "a required value is missing", "user", "null"),
        (b'{"user": 1, "query": "\xff", "time": 0}', "not UTF-8", "", None),
    ],
)
def test_a_bad_line_is_rejected_with_its_reason(line: str | bytes, what: str, column: str, value: str | None) -> None:
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


@pytest.mark.medium
@given(st.lists(MIXED, min_size=1, max_size=6))
@settings(max_examples=scaled(300))
def test_the_fast_way_gives_what_the_slow_way_means(rows: list[dict[str, object]]) -> None:
    block = block_of(*(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass") for row in rows))
    fast = fast_block(block, ALL_TYPES)
    slow = slow_block(block, ALL_TYPES)
    assert slow.table.num_rows + len(slow.rejects) == len(rows)
    if fast is not None:
        assert slow.rejects == ()
        assert fast.equals(slow.table)


@given(st.lists(st.fixed_dictionaries(RIGHT), min_size=1, max_size=6))
@settings(max_examples=scaled(50))
def test_correct_values_are_returned(rows: list[dict[str, object]]) -> None:
    parsed = parse_json_block(block_of(*(json.dumps(row) for row in rows)), ALL_TYPES)
    table = parsed.table
    assert parsed.rejects == ()
    assert table.column("i").to_pylist() == [row["i"] for row in rows]
    assert table.column("d").equals(pa.chunked_array([pa.array([row["d"] for row in rows], pa.float64())]))


NESTED = LogSchema.from_document(
    {
        "format": "jsonl",
        "columns": [
            {"name": "country", "type": "string", "path": "user.geo.country"},
            {"name": "user_id", "type": "int64", "path": "user.id"},
            {"name": "user.id", "type": "string"},
            {"name": "items", "type": "int64", "list": True},
            {"name": "words", "type": "string", "list": True, "path": ["user", "a.b"]},
            {"name": "seen", "type": "timestamp", "list": True},
            {"name": "counts", "type": "timestamp", "list": True, "unit": "ns"},
            {"name": "weights", "type": "float32", "list": True},
            {"name": "t", "type": "timestamp"},
        ],
        "time": {"column": "t", "unit": "ms", "from": "1970-01-01", "until": "2030-01-01"},
    }
)
WITH_TEXT = LogSchema.from_document(
    {
        "format": "jsonl",
        "columns": [
            {"name": "entities", "type": "string", "json": True},
            {"name": "clicked", "type": "bool"},
            {"name": "price", "type": "float64", "thousands": ",", "non_finite": True},
            {"name": "day", "type": "timestamp", "format": ["%Y%m%d", "%d.%m.%Y"]},
        ],
        "time": {"fixed": "2026-01-01"},
    }
)


def values_of(line: str, schema: LogSchema) -> dict[str, object] | str:
    """The row of one line; where it is refused, the column."""
    parsed = parse_json_block(block_of(line), schema)
    (row,) = parsed.table.to_pylist() or [parsed.rejects[0].column]
    return row  # type: ignore[no-any-return]


def test_paths_lists_and_lists_of_times_are_columns() -> None:
    line = (
        '{"user": {"id": 7, "geo": {"country": "NO", "x": [{}]}, "a.b": ["a", ""]}, "user.id": "literal", "t": 5, '
        '"items": [1, -2], "seen": ["2026-01-01", "2026-01-01T00:00:00.5Z"], "counts": [1999], "weights": [0.5, 1e2]}'
    )
    assert fast_block(block_of(line), NESTED) is not None
    row = values_of(line, NESTED)
    assert isinstance(row, dict)
    assert (row["country"], row["user_id"], row["user.id"]) == ("NO", 7, "literal")
    assert (row["items"], row["words"], row["weights"]) == ([1, -2], ["a", ""], [0.5, 100.0])
    assert [str(time) for time in row["seen"]] == ["2026-01-01 00:00:00+00:00", "2026-01-01 00:00:00.500000+00:00"]  # type: ignore[attr-defined]
    assert [time.microsecond for time in row["counts"]] == [1]  # type: ignore[attr-defined]


def test_what_a_path_does_not_reach_is_missing() -> None:
    for line in ('{"t": 0}', '{"t": 0, "user": null}', '{"t": 0, "user": {"geo": null}}'):
        row = values_of(line, NESTED)
        assert isinstance(row, dict)
        assert (row["country"], row["user_id"], row["items"], row["words"]) == (None, None, [], [])


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ('{"t": 0, "user": 1}', "country"), ('{"t": 0, "user": {"geo": []}}', "country"), ('{"t": 0, "items": 1}', "items"),
        ('{"t": 0, "items": [null]}', "items"), ('{"t": 0, "items": ["x"]}', "items"), ('{"t": 0, "items": [[1]]}', "items"),
        ('{"t": 0, "items": {}}', "items"), ('{"t": 0, "user": {"id": 1, "id": 2}}', "user_id"),
        ('{"t": 0, "user": {}, "user": {}}', "country"), ('{"t": 0, "seen": ["noon"]}', "seen"),
        ('{"t": 1893456000000}', "t"), ('{"t": -1}', "t"), ('{"t": 0, "weights": [1e39]}', "weights"),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_rejected(line: str, column: str) -> None:
    assert values_of(line, NESTED) == column


@pytest.mark.parametrize(
    ("line", "column", "value"),
    [
        ('{"entities": {"b": [1.50, true, null], "a": "é\\n", "a": "ø"}}', "entities", '{"a":"ø","b":[1.50,true,null]}'),
        ('{"entities": [ ]}', "entities", "[]"), ('{"entities": "x"}', "entities", '"x"'), ('{"entities": null}', "entities", None),
        ('{"clicked": 1}', "clicked", True), ('{"clicked": 0}', "clicked", False), ('{"clicked": true}', "clicked", True),
        ('{"price": "1,234.5"}', "price", 1234.5), ('{"price": 1234.5}', "price", 1234.5), ('{"price": ""}', "price", None),
        ('{"price": -Infinity}', "price", float("-inf")),
    ],
)  # fmt: skip
def test_a_json_value_is_read_as_its_column_asks(line: str, column: str, value: object) -> None:
    row = values_of(line, WITH_TEXT)
    assert isinstance(row, dict)
    assert row[column] == value


def test_a_day_may_be_a_number_where_a_format_reads_it() -> None:
    days = [values_of(line, WITH_TEXT) for line in ('{"day": 20170702}', '{"day": "2.7.2017"}', '{"day": 2017}')]
    assert [day if isinstance(day, str) else str(day["day"])[:10] for day in days] == [
        "2017-07-02",
        "2017-07-02",
        "day",
    ]


@pytest.mark.parametrize(
    "line", ['{"entities": "\\ud800"}', '{"entities": [NaN]}', '{"clicked": 2}', '{"clicked": "1"}']
)
def test_invalid_json_text_and_booleans_are_rejected(line: str) -> None:
    assert values_of(line, WITH_TEXT) in ("entities", "clicked")


TIMES = st.integers(-10, 2 * 10**12)
LEAVES = st.one_of(
    st.none(), st.integers(-(2**63), 2**63), st.text(max_size=3), st.booleans(), st.floats(allow_nan=False)
)
LISTS = st.one_of(st.lists(LEAVES, max_size=3), st.lists(st.integers(0, 9), max_size=3), st.none(), LEAVES)
GEO = st.one_of(
    st.none(), st.fixed_dictionaries({}, optional={"country": st.one_of(st.text(max_size=3), LEAVES)}), LEAVES
)
USER = st.fixed_dictionaries(
    {},
    optional={"id": st.integers(0, 9), "geo": GEO, "a.b": st.one_of(st.lists(st.text(max_size=2), max_size=2), LISTS)},
)
ROWS = st.fixed_dictionaries(
    {"t": TIMES},
    optional={
        "user": st.one_of(USER, USER, USER, LEAVES), "user.id": st.text(max_size=2), "items": LISTS,
        "seen": st.lists(st.sampled_from(["2026-01-01", "20260101", "2026-01-01T00:00:00.1234567Z", "noon"]), max_size=2),
        "counts": st.lists(st.integers(-(10**10), 10**18), max_size=2), "weights": st.lists(st.floats(width=32), max_size=2),
    },
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(ROWS, min_size=1, max_size=4), st.booleans())
@settings(max_examples=scaled(300))
def test_both_readers_agree_on_paths_and_lists(rows: list[dict[str, object]], doubled: bool) -> None:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    if doubled:
        lines[0] = lines[0].replace('"id":', '"id": 1, "id":').replace('"user":', '"user": {}, "user":', 1)
    block = block_of(*(line.encode("utf-8", "surrogatepass") for line in lines))
    fast, slow = fast_block(block, NESTED), slow_block(block, NESTED)
    assert slow.table.num_rows + len(slow.rejects) == len(rows)
    if fast is not None:
        assert slow.rejects == ()
        assert fast.equals(slow.table)
    assert parse_json_block(block, NESTED).table.equals(slow.table)


QUOTED = LogSchema.from_document(
    {
        "format": "jsonl",
        "null": ["", "NULL"],
        "columns": [
            {"name": "session", "type": "int64"},
            {"name": "price", "type": "float64", "trim": True},
            {"name": "ratio", "type": "float32", "non_finite": True},
            {"name": "ids", "type": "int64", "list": True},
            {"name": "seen", "type": "timestamp", "unit": "s"},
            {"name": "time", "type": "timestamp"},
        ],
        "time": {"column": "time", "unit": "us"},
    }
)


def in_quotes(value: object) -> object:
    """The value with its numbers in quotes, as BigQuery writes every INT64."""
    if isinstance(value, list):
        return [in_quotes(item) for item in value]
    return json.dumps(value) if isinstance(value, (int, float)) else value


def test_numbers_in_quotes_are_numbers() -> None:
    line = {"session": "9007199254740993", "price": " 1.5", "ratio": "NaN", "ids": ["1", "2"], "seen": "1772409605.5",
            "time": "1772409605123456"}  # fmt: skip
    block = block_of(*[json.dumps(line)] * 3)
    assert fast_block(block, QUOTED) is not None
    parsed = parse_json_block(block, QUOTED)
    assert parsed.rejects == ()
    row = parsed.table.to_pylist()[0]
    assert (row["session"], row["price"], str(row["ratio"]), row["ids"]) == (9007199254740993, 1.5, "nan", [1, 2])
    assert [str(row[name]) for name in ("seen", "time")] == [
        "2026-03-02 00:00:05.500000+00:00",
        "2026-03-02 00:00:05.123456+00:00",
    ]


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ('{"session": "1.0", "time": 0}', "session"), ('{"session": " 1", "time": 0}', "session"), ('{"session": "x", "time": 0}', "session"),
        ('{"session": "0x1F", "time": 0}', "session"), ('{"session": "9223372036854775808", "time": 0}', "session"),
        ('{"price": "1e400", "time": 0}', "price"), ('{"price": "NaN", "time": 0}', "price"), ('{"ids": ["1", ""], "time": 0}', "ids"),
        ('{"ids": "1", "time": 0}', "ids"), ('{"time": "now"}', "time"), ('{"time": ""}', "time"), ('{"price": true, "time": 0}', "price"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_number_is_rejected(line: str, column: str) -> None:
    assert values_of(line, QUOTED) == column


def test_a_missing_number_may_be_spelled_in_quotes() -> None:
    row = values_of('{"session": "", "price": "NULL", "seen": "NULL", "time": "0"}', QUOTED)
    assert isinstance(row, dict)
    assert (row["session"], row["price"], row["seen"]) == (None, None, None)


NUMBERS = {"session": st.integers(-(2**63), 2**63 - 1), "price": st.floats(allow_nan=False, allow_infinity=False),
           "ids": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3), "seen": st.integers(0, 10**10),
           "time": st.integers(0, 10**15)}  # fmt: skip


@pytest.mark.medium
@given(st.lists(st.fixed_dictionaries(NUMBERS), min_size=1, max_size=20), st.data())
@settings(max_examples=scaled(150))
def test_the_same_numbers_in_quotes_are_the_same_table(rows: list[dict[str, object]], data: st.DataObject) -> None:
    quoted = data.draw(st.sets(st.sampled_from(sorted(NUMBERS))), "columns in quotes")
    mixed = data.draw(st.booleans(), "in every second row alone")
    written = [
        {name: in_quotes(value) if name in quoted and (at % 2 or not mixed) else value for name, value in row.items()}
        for at, row in enumerate(rows)
    ]
    plain, other = (parse_json_block(block_of(*map(json.dumps, each)), QUOTED) for each in (rows, written))
    assert plain.rejects == other.rejects == ()
    assert other.table.equals(plain.table)
    slow = slow_block(block_of(*map(json.dumps, written)), QUOTED)
    assert slow.table.equals(plain.table)


def test_advice_on_a_time_is_tried_on_its_json_value() -> None:
    def expected(time: str, unit: str) -> str:
        document = {"format": "jsonl", "columns": [{"name": "t", "type": "timestamp", "unit": unit}],
                    "time": {"column": "t", "until": "2030-01-01"}}  # fmt: skip
        parsed = parse_json_block(block_of(f'{{"t": {time}}}'), LogSchema.from_document(document))
        return parsed.rejects[0].expected

    assert expected("20260301", "iso8601") == "an ISO 8601 time"  # no pattern fits, and a number is no ISO 8601 time
    assert expected('"2026-03-01"', "ms") == 'a time in ms since 1970; "unit": "iso8601" would fit'
    assert expected("2026030107", "iso8601") == 'an ISO 8601 time; "format": "%Y%m%d%H" would fit'
    assert expected("2026030107", "s").endswith('time set; "format": "%Y%m%d%H" would fit')
    assert expected('"1772409605"', "iso8601") == 'an ISO 8601 time; "unit": "s" would fit'
