from __future__ import annotations

import csv
import gzip
import io
import itertools
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import NoLogFiles, TruncatedLog
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.blocks import LineBlock, LongLine, read_blocks
from pipelines.parsing.log import ParsedBlock, parse_log, parse_whole_log
from tests.pipelines.logs import log_schema, tsv_line, write_log
from tests.support.examples import scaled
from transforms.columns.arrow_types import arrow_type
from transforms.errors import DataError


def parse(tmp_path: Path, text: str | bytes, schema: LogSchema, name: str = "log") -> ParsedBlock:
    return parse_whole_log(write_log(tmp_path / name, text), schema)


def test_every_type_is_read(tmp_path: Path) -> None:
    schema = LogSchema.from_document(
        {
            "format": "tsv",
            "null": ["", "NULL"],
            "columns": [
                {"name": "b", "type": "bool"},
                {"name": "i", "type": "int64"},
                {"name": "f", "type": "float32"},
                {"name": "d", "type": "float64"},
                {"name": "s", "type": "string"},
                {"name": "l", "type": "int64", "separator": ","},
                {"name": "seen", "type": "timestamp", "unit": "s"},
                {"name": "t", "type": "timestamp"},
            ],
            "time": {"column": "t", "unit": "iso8601"},
        }
    )
    text = (
        "true\t-7\t0.5\t1e300\tgrün\t1,2,3\t0\t2026-01-01T00:00:00.25Z\n"
        "0\tNULL\t\tNULL\t\t\t\t2026-01-01 02:00:00+02:00\n"
        "1\t9223372036854775807\t-0.0\t3\t'\"x\t5\t10\t2026-01-01\n"
    )
    block = parse(tmp_path, text, schema)
    assert block.rejects == ()
    assert [field.type for field in block.table.schema] == [arrow_type(column.type) for column in schema.columns]
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    rows = block.table.to_pydict()
    assert rows["b"] == [True, False, True]
    assert rows["i"] == [-7, None, 9223372036854775807]
    assert rows["f"] == [0.5, None, 0.0]
    assert rows["d"] == [1e300, None, 3.0]
    assert rows["s"] == ["grün", None, "'\"x"]
    assert rows["l"] == [[1, 2, 3], [], [5]]
    assert rows["seen"] == [datetime(1970, 1, 1, tzinfo=UTC), None, datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)]
    assert rows["t"] == [midnight.replace(microsecond=250_000), midnight, midnight]


@pytest.mark.parametrize(
    ("line", "what", "column", "value"),
    [
        ("1\tq\t1\n", "wrong number of columns", "", "3"),
        (tsv_line(1, 0).rstrip("\n") + "\textra\n", "wrong number of columns", "", "6"),
        (tsv_line("one", 0), "a value cannot be read as its type", "user", "one"),
        (tsv_line(1, 0, price="cheap"), "a value cannot be read as its type", "price", "cheap"),
        (tsv_line("", 0), "a required value is missing", "user", ""),
        ("1\tq\t1\ta\t\n", "a required value is missing", "time", ""),
        ("1\tq\t1\ta\tnoon\n", "a value cannot be read as its type", "time", "noon"),
        ("1\tq\t1\ta\t999999999999999999\n", "a value cannot be read as its type", "time", "999999999999999999"),
        ("1\ta\rb\t1\ta\t0\n", "a carriage return inside the line", "", None),
        (b"1\t\xff\xfe\t1\ta\t0\n", "not UTF-8", "query", "\\xff\\xfe"),
    ],
)
def test_a_bad_row_is_rejected_with_its_reason(
    tmp_path: Path, line: str | bytes, what: str, column: str, value: str | None
) -> None:
    bad = line if isinstance(line, bytes) else line.encode()
    text = tsv_line(1, 0).encode() + bad + b"\n" + tsv_line(2, 1).encode()
    block = parse(tmp_path, text, log_schema())
    assert block.table.column("user").to_pylist() == [1, 2]
    (reject,) = block.rejects
    assert (reject.line, reject.what, reject.column, reject.value) == (2, what, column, value)
    assert reject.raw == bad.rstrip(b"\n")


def test_line_numbers_survive_headers_blank_lines_and_blocks(tmp_path: Path) -> None:
    lines = ["user\tquery\tprice\ttags\ttime\n"]
    for number in range(2, 400):
        lines.append("\n" if number % 50 == 0 else tsv_line("x" if number % 37 == 0 else number, 0))
    path = write_log(tmp_path / "log.tsv.gz", "".join(lines))
    blocks = list(parse_log(path, log_schema(header=True), block_bytes=1000))
    assert len(blocks) > 5
    assert [reject.line for block in blocks for reject in block.rejects] == list(range(37, 400, 37))
    users = [user for block in blocks for user in block.table.column("user").to_pylist()]
    assert users == [n for n in range(2, 400) if n % 50 and n % 37]


def test_a_header_gives_the_order_and_other_columns_are_skipped(tmp_path: Path) -> None:
    text = 'time,note,tags,price,user,query\n0,n,a|b,1,7,"red, ""big"" shoes"\n'
    block = parse(tmp_path, "\ufeff" + text, log_schema("csv", header=True))
    assert block.table.column_names == ["user", "query", "price", "tags", "time"]
    assert block.table.column("query").to_pylist() == ['red, "big" shoes']
    assert block.table.column("user").to_pylist() == [7]


def test_a_header_without_a_column_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="header must name") as caught:
        parse(tmp_path, "user,querry,price,tags,time\n", log_schema("csv", header=True))
    assert caught.value.value == "query"
    assert caught.value.allowed.startswith("querry")


def test_a_quoted_value_that_does_not_end_costs_its_line_only(tmp_path: Path) -> None:
    text = '1,"a\n2,b,1,x,0\n3,"c",1,x,0\n'
    block = parse(tmp_path, text, log_schema("csv"))
    assert block.table.column("user").to_pylist() == [2, 3]
    assert [(reject.line, reject.raw) for reject in block.rejects] == [(1, b'1,"a')]


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_a_file_without_rows_is_an_empty_table(tmp_path: Path, content: bytes) -> None:
    block = parse(tmp_path, content, log_schema())
    assert block.table.num_rows == 0
    assert block.table.schema == log_schema().arrow_schema


def test_windows_line_ends_are_no_part_of_the_last_cell(tmp_path: Path) -> None:
    block = parse(tmp_path, tsv_line(1, 0).replace("\n", "\r\n") * 2, log_schema())
    assert block.table.num_rows == 2
    assert block.rejects == ()


@pytest.mark.parametrize("kept_share", [0.0, 0.3, 0.9])
def test_a_truncated_gzip_file_says_how_much_could_be_read(tmp_path: Path, kept_share: float) -> None:
    path = Path(write_log(tmp_path / "log.tsv.gz", "".join(tsv_line(n * 7919 % 1000, n) for n in range(5000))))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept_share)])
    with pytest.raises(TruncatedLog) as caught:
        parse_whole_log(str(path), log_schema())
    assert caught.value.where == str(path)
    lines = int(caught.value.allowed.split(";")[1].split()[0])
    assert 0.5 * kept_share * 5000 <= lines < 5000


def test_gzip_members_are_read_one_after_the_other(tmp_path: Path) -> None:
    first = Path(write_log(tmp_path / "a.gz", tsv_line(1, 0))).read_bytes()
    second = Path(write_log(tmp_path / "b.gz", tsv_line(2, 0))).read_bytes()
    (tmp_path / "both.gz").write_bytes(first + second + b"\0" * 512)
    block = parse_whole_log(str(tmp_path / "both.gz"), log_schema())
    assert block.table.column("user").to_pylist() == [1, 2]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoLogFiles) as caught:
        parse_whole_log(str(tmp_path / "none.tsv"), log_schema())
    assert caught.value.where == str(tmp_path / "none.tsv")


@given(st.binary(max_size=300), st.integers(1, 50))
@settings(max_examples=scaled(60))
def test_blocks_are_whole_lines_and_lose_nothing(tmp_path: Path, content: bytes, block_bytes: int) -> None:
    path = tmp_path / "log"
    content = b"\n" + content  # the first line end is a line feed
    path.write_bytes(content)
    blocks = [block for block in read_blocks(str(path), block_bytes) if isinstance(block, LineBlock)]
    assert b"".join(block.data for block in blocks) == content
    assert all(block.data.endswith(b"\n") for block in blocks[:-1])
    line = 1
    for block in blocks:
        assert block.first_line == line
        line += block.data.count(b"\n")


@given(st.lists(st.binary(max_size=8).map(lambda line: line.replace(b"\n", b"")), min_size=1), st.booleans(),
       st.integers(1, 5))  # fmt: skip
def test_pieces_are_whole_lines_and_lose_nothing(lines: list[bytes], ended: bool, most_lines: int) -> None:
    block = LineBlock(5, b"\n".join(lines) + b"\n" * ended)
    pieces = list(block.pieces(most_lines))
    assert b"".join(piece.data for piece in pieces) == block.data
    assert sum(piece.lines for piece in pieces) == block.lines
    assert all(1 <= piece.lines <= most_lines for piece in pieces)
    for before, after in itertools.pairwise(pieces):
        assert after.first_line == before.first_line + before.lines


CELLS = st.text(st.characters(blacklist_characters="\n\r\x00", blacklist_categories=["Cs"]), max_size=6)


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=20))
@settings(max_examples=scaled(60))
def test_csv_means_what_the_standard_reader_says(tmp_path: Path, rows: list[list[str]]) -> None:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
    columns = [{"name": name, "type": "string"} for name in "abc"]
    schema = LogSchema.from_document(
        {"format": "csv", "null": [], "columns": [*columns, {"name": "t", "type": "timestamp"}],
         "time": {"column": "t", "unit": "s"}}
    )  # fmt: skip
    text = "".join(line + ",0\n" for line in buffer.getvalue().splitlines(keepends=False) if line)
    if text.count("\n") != len(rows):
        return  # some exotic character ended a line for splitlines
    block = parse(tmp_path, text, schema)
    assert block.table.select(["a", "b", "c"]).to_pylist() == [dict(zip("abc", row, strict=True)) for row in rows]


@given(st.lists(st.one_of(st.integers(0, 99).map(str), st.sampled_from(["", "x", "1.5", "0x1", " 7"])), max_size=60))
@settings(max_examples=scaled(60))
def test_every_line_is_a_row_or_a_reject(tmp_path: Path, users: list[str]) -> None:
    block = parse(tmp_path, "".join(tsv_line(user, 0) for user in users), log_schema())
    assert block.table.num_rows + len(block.rejects) == len(users)
    refused = {reject.line for reject in block.rejects}
    kept = [user for line, user in enumerate(users, 1) if line not in refused]
    assert pa.array(kept, pa.string()).cast(pa.int64()).to_pylist() == block.table.column("user").to_pylist()
    assert all(users[line - 1] in ("", "x", "1.5", " 7", "0x1") for line in refused)


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"")), max_size=12), st.integers(1, 60),
       st.integers(1, 10))  # fmt: skip
def test_which_lines_are_too_long_is_a_matter_of_the_line(
    tmp_path: Path, lines: list[bytes], block_bytes: int, longest: int
) -> None:
    path = tmp_path / "log"
    lines = [b"", *lines]  # the first line end is a line feed
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    read: dict[int, bytes] = {}
    for block in read_blocks(str(path), block_bytes, longest):
        if isinstance(block, LongLine):
            assert block.length_bytes == len(block.start) > longest
            read[block.number] = block.start
        else:
            for number, line in enumerate(block.data.split(b"\n")[: block.lines], block.first_line):
                assert len(line) <= longest
                read[number] = line
    assert read == dict(enumerate(lines, 1))


@pytest.mark.parametrize("log_format", ["tsv", "csv", "jsonl"])
def test_a_line_that_is_too_long_is_one_rejected_row(tmp_path: Path, log_format: str) -> None:
    good = '{"user": 1, "time": 0}\n' if log_format == "jsonl" else tsv_line(1, 0)
    good = good.replace("\t", ",") if log_format == "csv" else good
    path = write_log(tmp_path / "log.gz", good + "ü" * 60_000 + "\n" + good)
    for block_bytes in (100, 100_000, 1 << 20):
        blocks = list(parse_log(path, log_schema(log_format), block_bytes=block_bytes, longest_line_bytes=119_999))
        assert sum(block.table.num_rows for block in blocks) == 2
        (reject,) = (reject for block in blocks for reject in block.rejects)
        assert (reject.line, reject.what, reject.value) == (2, "the line is too long", "120000 bytes")
        assert reject.expected == "at most 119999 bytes"
        assert reject.raw == "ü".encode() * 8000


@pytest.mark.parametrize(
    ("header", "longest"),
    [("user,qu\rery,price,tags,time", 1000), ('user,"query', 1000), ("user,user,query,price,tags,time", 1000),
     ("user,query,price,tags,time," + "x" * 200, 100), ("x," * 100_001, 1 << 20)],
)  # fmt: skip
def test_a_header_that_cannot_be_read_is_refused(tmp_path: Path, header: str, longest: int) -> None:
    path = write_log(tmp_path / "log.csv", header + "\n1,q,1,a,0\n")
    with pytest.raises(DataError, match="the header") as caught:
        list(parse_log(path, log_schema("csv", header=True), longest_line_bytes=longest))
    assert caught.value.where == f"{path}, line 1"


MEMORY = """
import sys
from pathlib import Path
from pipelines.parsing.log import parse_log
from tests.pipelines.logs import log_schema
def held_mib(name):
    return int(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if name in line)) >> 10
schema = log_schema(sys.argv[2])
list(parse_log(sys.argv[3], schema))
Path("/proc/self/clear_refs").write_text("5")
before = held_mib("VmRSS")
blocks = list(parse_log(sys.argv[1], schema))
print(held_mib("VmHWM") - before, sum(block.table.num_rows for block in blocks), [r.line for b in blocks for r in b.rejects])
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux's /proc")
@pytest.mark.parametrize("log_format", ["tsv", "jsonl"])
def test_a_gzip_file_that_is_one_line_takes_bounded_memory(tmp_path: Path, log_format: str) -> None:
    good = tsv_line(1, 0) if log_format == "tsv" else '{"user": 1, "time": 0}\n'
    small = write_log(tmp_path / "small", good)
    member = gzip.compress(b"x" * (16 << 20))
    (tmp_path / "log.gz").write_bytes(gzip.compress(good.encode()) + member * 24 + gzip.compress(b"\n" + good.encode()))
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "log.gz"), log_format, small]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    grown_mib, rest = child.stdout.split(maxsplit=1)
    assert rest.strip() == "2 [2]"
    assert int(grown_mib) < 120  # of 384 MiB that the line has
