"""A text has one value, alone or with other lines, in each reader and at each block boundary."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.cells.typed_cells import typed_cells
from pipelines.log_schemas.schema import LogColumn, LogSchema
from pipelines.parsing.blocks import LineBlock
from pipelines.parsing.cell_syntax import Syntax
from pipelines.parsing.delimited_lines import quoted_plainly, split_line
from pipelines.parsing.json_lines import fast_block, slow_block
from pipelines.parsing.log import parse_log, parse_whole_log
from tests.pipelines.logs import log_schema, write_log
from tests.support.examples import scaled
from transforms.types import DType

COLUMNS = [{"name": "v", "type": "float32"}, {"name": "s", "type": "string"}, {"name": "t", "type": "timestamp"}]


def schema_of(log_format: str) -> LogSchema:
    return LogSchema.from_document({"format": log_format, "columns": COLUMNS, "time": {"column": "t", "unit": "s"}})


def meaning(text: str, column: LogColumn) -> object:
    """What ``typed_cells`` makes of one text; ``refused`` where it is no value."""
    array, bad = typed_cells(pa.array([text], pa.string()), column)
    return "refused" if bad[0] else array[0].as_py()


FORMS = [
    (DType.INT64, "007", 7), (DType.INT64, "-0", 0), (DType.INT64, "0x1F", "refused"), (DType.INT64, "+1", "refused"),
    (DType.INT64, " 1", "refused"), (DType.INT64, "1_0", "refused"), (DType.INT64, "1.0", "refused"),
    (DType.INT64, "9223372036854775808", "refused"), (DType.INT64, "-0X1f", "refused"),
    (DType.FLOAT32, "16777217", 16777216.0), (DType.FLOAT32, ".5", 0.5), (DType.FLOAT32, "5.", 5.0),
    (DType.FLOAT32, "+1E+2", 100.0), (DType.FLOAT32, "1e-46", 0.0), (DType.FLOAT32, "1e39", "refused"),
    (DType.FLOAT64, "9" * 400, "refused"), (DType.FLOAT64, "-1e400", "refused"), (DType.FLOAT64, "-Inf", "refused"),
    (DType.FLOAT64, "nan", "refused"), (DType.FLOAT64, "0x10", "refused"), (DType.FLOAT64, "1,5", "refused"),
    (DType.BOOL, "TRUE", True), (DType.BOOL, "0", False), (DType.BOOL, "yes", "refused"), (DType.STRING, " a ", " a "),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "text", "value"), FORMS)
def test_a_text_has_the_value_that_the_docs_say(dtype: DType, text: str, value: object) -> None:
    assert meaning(text, LogColumn("c", dtype)) == value


OPTIONS: list[tuple[DType, dict[str, Any], str, object]] = [
    (DType.INT64, {"hexadecimal": True}, "0x1F", 31), (DType.INT64, {"hexadecimal": True}, "0xFFFFFFFFFFFFFFFF", -1),
    (DType.FLOAT64, {"non_finite": True}, "-Inf", float("-inf")), (DType.FLOAT64, {"non_finite": True}, "1e400", float("inf")),
    (DType.INT64, {"thousands": ","}, "-1,234,567", -1234567), (DType.INT64, {"thousands": ","}, "1234", 1234),
    (DType.INT64, {"thousands": ","}, "12,34", "refused"), (DType.INT64, {"thousands": ","}, ",123", "refused"),
    (DType.INT64, {"thousands": "."}, "1.234", 1234), (DType.INT64, {"thousands": " "}, "1 234", 1234),
    (DType.FLOAT64, {"thousands": ".", "decimal": ","}, "1.234,5", 1234.5),
    (DType.FLOAT64, {"decimal": ","}, "-0,5e1", -5.0), (DType.FLOAT64, {"decimal": ","}, "0.5", "refused"),
    (DType.FLOAT64, {"decimal": ","}, "1,5,5", "refused"), (DType.FLOAT64, {"thousands": ","}, "1,234.5", 1234.5),
    (DType.FLOAT64, {"thousands": ","}, "1.234,567", "refused"), (DType.FLOAT64, {"thousands": ","}, "", "refused"),
    (DType.FLOAT64, {"decimal": ",", "non_finite": True}, "inf", float("inf")),
    (DType.FLOAT64, {"decimal": ","}, "inf", "refused"),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "options", "text", "value"), OPTIONS)
def test_a_column_may_ask_for_other_forms(dtype: DType, options: dict[str, Any], text: str, value: object) -> None:
    assert meaning(text, LogColumn("c", dtype, **options)) == value


def test_surrounding_spaces_are_dropped_where_asked(tmp_path: Path) -> None:
    for log_format, line in (
        ("csv", " 1.5 ,  \u00a0a b ,0\n , ,0"),
        ("jsonl", '{"s": " a b\\t", "t": 0}\n{"s": " ", "t": 0}'),
    ):
        columns = [{**column, "trim": True} for column in COLUMNS]
        document = {"format": log_format, "columns": columns, "time": {"column": "t", "unit": "s"}}
        parsed = parse_whole_log(write_log(tmp_path / "log", line), LogSchema.from_document(document))
        assert parsed.rejects == ()
        assert parsed.table.column("s").to_pylist() == ["a b", None]


@pytest.mark.parametrize(
    ("text", "year"),
    [
        ("2026-01-01", 2026), ("2026-01-01 00:00+14", 2025), ("0001-01-01", 1), ("9999-12-31T23:59:59.999999", 9999),
        ("0000-12-31", None), ("0001-01-01T00:00:00+01:00", None), ("9999-12-31T23:59:59-00:01", None),
        ("2026-01-01T00:00:60Z", None), ("2026-01-01T24:00", None), ("20260101", 2026), ("2026-02-29", None),
        ("2026-1-1 7:50", 2026), ("20260101T075000.5+01:00", 2026), ("2026010107", None), ("2026-01-01 07:50 UTC", 2026),
        ("2026-01-01Z", None), ("2026-01-01T07:5", None), ("２０２６-01-01", None), ("2026-01-01T00:00+24", None),
    ],
)  # fmt: skip
def test_a_time_is_a_day_of_the_years_1_to_9999(text: str, year: int | None) -> None:
    column = LogColumn("c", DType.TIMESTAMP, unit="iso8601")
    array, bad = typed_cells(pa.array([text, "2026-01-01", "2026-01-01Z", text], pa.string()), column)
    assert list(bad[[0, 3]]) == [year is None] * 2
    if year is not None:
        assert array[0].as_py().year == year


def test_a_float_is_rounded_once_from_its_digits() -> None:
    # Between two float32: as float64 first it would round to the middle, and from there to the even neighbour.
    digits = "1.00000017881393432617187499"
    lines = [f'{{"v": {digits}, "t": 0}}', "bad"]
    for company in (lines[:1], lines):
        read = [
            value
            for block in (slow_block, fast_block)
            if (parsed := block(LineBlock(1, "\n".join(company).encode()), schema_of("jsonl"))) is not None
            for value in (parsed if isinstance(parsed, pa.Table) else parsed.table).column("v").to_pylist()
        ]
        assert set(read) == {meaning(digits, LogColumn("v", DType.FLOAT32))} == {1.00000011920928955078125}


NUMBERS = ["-0", "-0.0", "1e400", "9" * 400, "-" + "9" * 400, "1e-400", "3.4028236e38", "0.1", "16777217"]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("log_format", ["jsonl", "csv", "tsv"])
def test_a_number_is_the_same_in_bad_company(tmp_path: Path, log_format: str, number: str) -> None:
    line = f'{{"v": {number}, "t": 0}}' if log_format == "jsonl" else f"{number}\ta\t0"
    line = line.replace("\t", ",") if log_format == "csv" else line
    seen = set()
    for company in ("", "x\n", "x\n" * 300):
        parsed = parse_whole_log(write_log(tmp_path / "log", line + "\n" + company), schema_of(log_format))
        seen.add((repr(parsed.table.column("v").to_pylist()), tuple(r.value for r in parsed.rejects if r.line == 1)))
    assert len(seen) == 1


@pytest.mark.parametrize(
    "line",
    [
        b'1,"a"b,0', b'1,a"b,0', b'1,"a""b",0', b'1,"' + b"x" * 200_000 + b'",0', b'1,"a,0', b'1,"",0', b'1,"a" ,0',
        b'1,a""b,0', b'1, "a",0', b"\xef\xbb\xbf1,a,0", b'1,"a\0",0', b'1,"""",0', b'1,""",0', b'1,a,0\r', b"1,a\r,0",
    ],
)  # fmt: skip
def test_a_quoted_line_is_the_same_in_any_company(tmp_path: Path, line: bytes) -> None:
    seen = set()
    good = b'5,"c",0\n'
    for before in (b"", good, b"x\n", b'1,"x"y\n', b"\n", b'5,"c\n""d",0\n'):
        for after in (b"", good, b"x\n"):
            text = b"\n" + before + line + b"\n" + after
            parsed = parse_whole_log(write_log(tmp_path / "log", text), schema_of("csv"))
            number = 2 + before.count(b"\n")
            rows = [row for row in parsed.table.to_pylist() if row["v"] != 5]
            seen.add((repr(rows), tuple((r.what, r.value) for r in parsed.rejects if r.line == number)))
    assert len(seen) == 1, seen


CSV_TEXT = st.text(st.sampled_from(list('",a\r\n\0é ')), max_size=9)


def record_at(text: bytes, at: int) -> list[bytes] | None:
    """The record that begins at ``at``, as its cells and its own length; by single characters, as RFC 4180 has it."""
    cells, cell, state, start = [], b"", "start", at
    while at < len(text):
        byte, at = text[at : at + 1], at + 1
        ends_line = byte == b"\n" or (byte == b"\r" and text[at : at + 1] in (b"\n", b""))
        if state == "quoted":
            state, cell = ("closing", cell) if byte == b'"' else (state, cell + byte)
        elif state == "closing" and byte == b'"':
            state, cell = "quoted", cell + byte
        elif ends_line:
            at += byte == b"\r" and text[at : at + 1] == b"\n"
            return [*cells, cell, text[start:at]]
        elif byte == b",":
            cells, cell, state = [*cells, cell], b"", "start"
        elif state == "closing":
            return None
        elif state == "start" and byte == b'"':
            state = "quoted"
        else:
            state, cell = "bare", cell + (b"\xff" if byte == b"\r" else byte)
    return None if state == "quoted" else [*cells, cell, text[start:at]]


def rows_of(text: bytes) -> tuple[list[tuple[str, str]], int]:
    """The good rows of a CSV log of three columns, and how many are bad."""
    rows, bad, at = [], 0, 0
    while at < len(text):
        found = record_at(text, at)
        if found is None:
            found = [text[at : (text.find(b"\n", at) + 1) or len(text)]]
        *cells, whole = found
        at += len(whole)
        if len(cells) == 3 and cells[0] == b"0" and not any(b"\xff" in cell for cell in cells):
            rows.append((cells[1].decode(), cells[2].decode()))
        elif whole not in (b"\n", b"\r\n", b"\r"):
            bad += 1
    return rows, bad


@pytest.mark.slow
@given(st.lists(CSV_TEXT, min_size=1, max_size=5), st.integers(1, 40))
@settings(max_examples=scaled(400))
def test_records_are_cut_as_the_rule_says(tmp_path: Path, lines: list[str], block_bytes: int) -> None:
    columns = [{"name": "a", "type": "string"}, {"name": "b", "type": "string"}]
    times = {"name": "t", "type": "timestamp"}
    schema = LogSchema.from_document(
        {"format": "csv", "null": [], "columns": [times, *columns], "time": {"column": "t", "unit": "s"}}
    )
    content = b"\n" + b"\n".join(b"0," + line.encode() for line in lines)
    path = write_log(tmp_path / "log", content)
    for cut in (block_bytes, 1 << 20):
        blocks = list(parse_log(path, schema, block_bytes=cut))
        found = [(row["a"], row["b"]) for block in blocks for row in block.table.to_pylist()]
        assert (found, sum(len(block.rejects) for block in blocks)) == rows_of(content)


@given(st.lists(CSV_TEXT.map(lambda text: text.replace("\r", "").replace("\n", "")), min_size=1, max_size=4))
def test_what_is_quoted_plainly_has_only_whole_quoted_cells(lines: list[str]) -> None:
    if quoted_plainly("\n".join(lines).encode()):
        for line in lines:
            cells = split_line(line.encode(), Syntax(",", True))
            assert cells is not None
            assert not any(b'"' in cell for cell in line.encode().split(b",") if b'"' not in (cell[:1], cell[-1:]))


JSON_LINES = st.sampled_from(
    [
        '{"v": 1, "t": 0}', '{"v": -0, "t": 0, "x": [{}]}', "null", "", " ", '{"t": 0}{"t": 0}', '{"t":', "0}", "{}",
        '{"t": 0, "x": 1, "x": 2}', '{"t": 0, "t": 0}', '{"v": null, "v": 1, "t": 0}', '{"t": 0, "s": "\\ud800"}',
        '{"t": 0, "s": "\\u0000"}', '{"t": 0, "s": "\0"}', '{"t": 0}\0', '{"t": 0, "x": "\\udc00"}', '\ufeff{"t": 0}',
        '{"t": 0, "x": ' + "[" * 99 + "]" * 99 + "}", '{"t": 0, "x": ' + "[" * 100 + "]" * 100 + "}", '{"t": 0}\r',
        '{"t": 0, "v": 1e400}', '{"t": 0, "\\u0076": 2}', '{"t": 0, "s": "' + "[" * 200 + '"}', '{"t": 0, "v": NaN}',
        '{"t": 0, "s": "a\tb"}', '{"t": 0,}', '{"t": 00}', '{"t": 0} // end', '{"t": 0, "s": {"v": 1}}', '{"t": 0.0}',
    ]
)  # fmt: skip


def described(table: pa.Table, rejects: tuple[object, ...] = ()) -> str:
    return repr((table.to_pylist(), rejects))


@pytest.mark.medium
@given(st.lists(JSON_LINES, min_size=1, max_size=6), st.integers(1, 400))
@settings(max_examples=scaled(200))
def test_both_readers_of_json_agree_on_any_lines(tmp_path: Path, lines: list[str], block_bytes: int) -> None:
    content = "\n".join(["", *lines]).encode()
    schema = schema_of("jsonl")
    slow = slow_block(LineBlock(1, content), schema)
    path = write_log(tmp_path / "log", content)
    for cut in (block_bytes, 1 << 20):
        blocks = list(parse_log(path, schema, block_bytes=cut))
        table = pa.concat_tables([schema.arrow_schema.empty_table(), *(block.table for block in blocks)])
        rejects = tuple(reject for block in blocks for reject in block.rejects)
        assert described(table, rejects) == described(slow.table, slow.rejects)


NULLS = """
import sys
from tests.pipelines.ingest.test_one_meaning import schema_of
from pipelines.parsing.log import parse_whole_log
for path in sys.argv[1:]:
    rejects = parse_whole_log(path, schema_of("jsonl")).rejects
    print(rejects[-1].line, rejects[-1].what)
"""


@pytest.mark.slow
def test_a_bare_null_is_a_rejected_line(tmp_path: Path) -> None:
    texts = {"null\n": 1, "null": 1, "null\n" * 100_000: 100_000, '{"t": 0}\nnull\n': 2, 'null{"t": 0}\n': 1}
    paths = [write_log(tmp_path / f"{at}.jsonl", text) for at, text in enumerate(texts)]
    child = subprocess.run([sys.executable, "-c", NULLS, *paths], capture_output=True, text=True, check=False)
    expected = [f"{line} not a JSON object" for line in texts.values()]
    assert (child.returncode, child.stdout.splitlines()) == (0, expected)


def test_a_required_list_is_missing_in_every_format(tmp_path: Path) -> None:
    columns = [{"name": "l", "type": "int64", "separator": "|", "required": True}, {"name": "t", "type": "timestamp"}]
    for log_format, line in (("tsv", "\t0"), ("csv", ",0"), ("jsonl", json.dumps({"t": 0}))):
        schema = LogSchema.from_document(
            {"format": log_format, "columns": columns, "time": {"column": "t", "unit": "s"}}
        )
        (reject,) = parse_whole_log(write_log(tmp_path / "log", line + "\n"), schema).rejects
        assert (reject.what, reject.column) == ("a required value is missing", "l")


def test_a_byte_order_mark_is_skipped_at_the_start_of_a_file_only(tmp_path: Path) -> None:
    for log_format, line in (("tsv", "1\ta\t0\n"), ("jsonl", '{"v": 1, "t": 0}\n')):
        path = write_log(tmp_path / "log", "\ufeff" + line + line + "\ufeff" + line)
        for block_bytes in (1, len(line), 1 << 20):
            blocks = list(parse_log(path, schema_of(log_format), block_bytes=block_bytes))
            assert [reject.line for block in blocks for reject in block.rejects] == [3]


def test_log_schema_null_spellings_do_not_touch_json_numbers(tmp_path: Path) -> None:
    schema = log_schema("jsonl", null=["1"])
    parsed = parse_whole_log(write_log(tmp_path / "log", '{"user": 1, "query": "1", "time": 1}\n'), schema)
    assert parsed.table.select(["user", "query"]).to_pylist() == [{"user": 1, "query": None}]
