"""Shapes of TSV and CSV files: preambles, blank first lines, escapes, delimiters after the last cell."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import LogSchemaError
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.log import count_records, parse_log
from pipelines.parsing.rejects import Reject
from tests.support.examples import scaled
from transforms.errors import DataError

Rows = list[tuple[str | None, ...]]


def schema_of(**document: Any) -> LogSchema:
    columns = [{"name": name, "type": "string"} for name in "abc"]
    return LogSchema.from_document({"format": "csv", "columns": columns, "time": {"fixed": "2026-01-01"}, **document})


def read(path: Path, content: bytes, **document: Any) -> tuple[Rows, list[Reject]]:
    """The rows and rejects of a log, which must not depend on where it is cut into blocks."""
    path.write_bytes(content)
    schema = schema_of(**document)
    found = []
    for block_bytes in (1 << 20, 7, 1):
        blocks = list(parse_log(str(path), schema, block_bytes=block_bytes))
        rows = [tuple(row[name] for name in "abc") for block in blocks for row in block.table.to_pylist()]
        found.append((rows, [reject for block in blocks for reject in block.rejects]))
    assert found[0] == found[1] == found[2]
    rows, rejects = found[0]
    assert count_records(str(path), schema) >= len(rows) + len(rejects)
    return rows, rejects


@pytest.mark.parametrize("header", [b"a,b,c\n", b"a,b,c,\n", b""])
@pytest.mark.parametrize("body", [b"1,2,3,\n4,5,6,\n", b"1,2,3,\n4,5,6\n", b'1,"2",3,\r\n\n"4",5,"6",\r\n'])
def test_a_delimiter_may_follow_the_last_cell(tmp_path: Path, header: bytes, body: bytes) -> None:
    rows, rejects = read(tmp_path / "log", header + body, header=bool(header), trailing_delimiter=True)
    assert rows == [("1", "2", "3"), ("4", "5", "6")]
    assert rejects == []


def test_only_an_empty_cell_may_follow_the_last_one(tmp_path: Path) -> None:
    content = b"1,2,3,\n1,2,3,4\n,,,\n1,2\n1,2,3,,\n"
    rows, rejects = read(tmp_path / "log", content, trailing_delimiter=True)
    assert rows == [("1", "2", "3"), (None, None, None)]
    assert [(reject.line, reject.value, reject.expected) for reject in rejects] == [
        (2, "4", "3"),
        (4, "2", "3"),
        (5, "5", "3"),
    ]


def test_a_row_that_is_wider_than_the_header_names_both_widths_and_what_would_fit(tmp_path: Path) -> None:
    rows, rejects = read(tmp_path / "log", b"a,b,c\n1,2,3,\n1,2,3,4\n", header=True)
    assert rows == []
    assert [(reject.value, reject.expected) for reject in rejects] == [
        ("4", '3; "trailing_delimiter": true would fit'),
        ("4", "3"),
    ]


def test_a_preamble_is_skipped_at_the_start_alone(tmp_path: Path) -> None:
    content = b'\xef\xbb\xbf# exported by "x\n#\n\n# 3 columns\n\na,b,c\n1,2,3\n#,5,6\n'
    rows, rejects = read(tmp_path / "log", content, header=True, preamble="#")
    assert (rows, rejects) == ([("1", "2", "3"), ("#", "5", "6")], [])
    rows, rejects = read(tmp_path / "log", b"sep=,\r\n1,2,3\r\n", preamble="sep=")
    assert (rows, rejects) == ([("1", "2", "3")], [])
    assert read(tmp_path / "log", b"# all of it\n#\n", header=True, preamble="#") == ([], [])


def test_lines_before_the_header_without_a_value_are_skipped(tmp_path: Path) -> None:
    rows, rejects = read(tmp_path / "log", b"\n \t\r\n,,\na,b,c\n1,2,3\n\n4,5\n", header=True)
    assert rows == [("1", "2", "3")]
    assert [reject.line for reject in rejects] == [7]
    with pytest.raises(DataError, match="the header must name every column") as caught:
        read(tmp_path / "log", b"\n\na,b\n", header=True)
    assert caught.value.where == f"{tmp_path / 'log'}, line 3"


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b'"a \\"q\\" b",1,2\n', [('a "q" b', "1", "2")]),
        (b"x\\,y,1,2\n", [("x,y", "1", "2")]),
        (b'"C:\\\\dir\\\\",1,2\n', [("C:\\dir\\", "1", "2")]),
        (b"\\N,C:\\dir,\\t\n", [("\\N", "C:\\dir", "\\t")]),
        (b'u\\\nv,"w\nx",2\n', [("u\nv", "w\nx", "2")]),
        (b'u\\\r\nv,"w""x",2\r\n', [("u\r\nv", 'w"x', "2")]),
        (b'"a",1,2\\', [("a", "1", "2\\")]),
        (b'\\"a,b\\",c\n', [('"a', 'b"', "c")]),
    ],
)
def test_an_escape_makes_the_next_character_a_part_of_the_value(tmp_path: Path, content: bytes, rows: Rows) -> None:
    assert read(tmp_path / "log", content + b"\n3,4,5\n" if content.endswith(b"\n") else content, escape="\\") == (
        [*rows, ("3", "4", "5")] if content.endswith(b"\n") else rows,
        [],
    )


def test_tsv_without_quotes_may_have_escapes(tmp_path: Path) -> None:
    content = b'a\tx\\\ty\tq"\nu\\\nv\t"2\t3\n'
    rows, rejects = read(tmp_path / "log", content, format="tsv", escape="\\")
    assert (rows, rejects) == ([("a", "x\ty", 'q"'), ("u\nv", '"2', "3")], [])


def test_a_record_that_an_escape_would_make_whole_says_so(tmp_path: Path) -> None:
    rows, rejects = read(tmp_path / "log", b'"a \\"q\\" b",1,2\nx\\,y,1,2\n"a\\" b,1\n')
    assert rows == []
    assert [reject.expected.endswith('; "escape": "\\\\" would fit') for reject in rejects] == [True, True, False]


VALUES = st.text(st.sampled_from(list('",\\\n aé;\t#')), max_size=6)


@pytest.mark.slow
@given(
    st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=8),
    st.booleans(),
    st.sampled_from([",", ";", "\t"]),
)
@settings(max_examples=scaled(300))
def test_what_a_writer_with_escapes_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: Rows, quoted: bool, delimiter: str
) -> None:
    buffer = io.StringIO()
    quoting = csv.QUOTE_ALL if quoted else csv.QUOTE_NONE
    options: dict[str, Any] = {"quoting": quoting, "quotechar": '"' if quoted else None, "doublequote": False}
    writer = csv.writer(buffer, delimiter=delimiter, escapechar="\\", lineterminator="\n", **options)
    writer.writerows(rows)
    document = {"format": "tsv"} if delimiter == "\t" else {"delimiter": delimiter}
    found, rejects = read(
        tmp_path_factory.mktemp("log") / "log",
        b"\n" + buffer.getvalue().encode(),
        null=[],
        escape="\\",
        quote=quoted,
        **document,
    )
    assert rejects == []
    assert found == rows


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"escape": "\\\\"}, "one character"), ({"escape": "n"}, "an escape must be"), ({"escape": ","}, "an escape must be"),
        ({"escape": '"'}, "one character"), ({"preamble": ""}, "a preamble must be"), ({"preamble": " "}, "a preamble must be"),
        ({"preamble": "#" * 21}, "a preamble must be"), ({"preamble": "#\n"}, "a preamble must be"), ({"trailing_delimiter": 1}, "true or false"),
        ({"format": "jsonl", "escape": "\\"}, "escape must be given for TSV and CSV only"),
        ({"format": "jsonl", "preamble": "#"}, "preamble must be given for TSV and CSV only"),
        ({"format": "jsonl", "trailing_delimiter": True}, "trailing_delimiter must be given for TSV and CSV only"),
    ],
)  # fmt: skip
def test_an_entry_of_the_syntax_that_cannot_be_is_refused(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(LogSchemaError, match=message):
        schema_of(**entries)


def test_the_entries_are_written_as_they_are_read() -> None:
    schema = schema_of(escape="\\", preamble="#", trailing_delimiter=True)
    assert LogSchema.from_document(schema.to_document()) == schema
    assert schema_of().to_document().keys().isdisjoint({"escape", "preamble", "trailing_delimiter"})
