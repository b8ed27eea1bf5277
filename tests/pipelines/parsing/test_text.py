"""Encodings, line ends and records give equal rows for every way to write and split a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.errors import TruncatedLog, UnknownFormat
from pipelines.log_schemas.schema import LogSchema
from pipelines.log_schemas.syntax import ENCODINGS
from pipelines.parsing.log import count_records, parse_log, parse_whole_log
from tests.pipelines.logs import write_log
from tests.support.examples import scaled
from transforms.errors import DataError

NUMBERED = [{"name": "n", "type": "int64", "required": True}, {"name": "s", "type": "string"}]
CLOCK = {"fixed": "2026-01-01"}


def schema_of(log_format: str = "csv", **more: object) -> LogSchema:
    return LogSchema.from_document({"format": log_format, "columns": NUMBERED, "time": CLOCK, **more})


def rows_of(path: str, schema: LogSchema, **how: int) -> tuple[list[tuple[int, str]], list[int]]:
    blocks = list(parse_log(path, schema, **how))
    rows = [(row["n"], row["s"]) for block in blocks for row in block.table.to_pylist()]
    return rows, [reject.line for block in blocks for reject in block.rejects]


WORDS = {"utf-8": "grün 天气 𠮷", "utf-16": "grün 天气 𠮷", "utf-16-le": "天\u0a0a气", "utf-16-be": "\u0a0d𠮷", "latin-1": "café",
         "cp1252": "€ – 3", "gb18030": "𠮷野家 天气", "big5": "天氣", "shift_jis": "表示 ソ", "euc-jp": "表示", "euc-kr": "날씨",
         "cp1251": "погода", "koi8-r": "погода", "utf-32": "天"}  # fmt: skip


@pytest.mark.parametrize(("encoding", "word"), WORDS.items())
@pytest.mark.parametrize("log_format", ["csv", "tsv", "jsonl"])
def test_a_log_is_read_in_its_encoding_wherever_it_is_cut(
    tmp_path: Path, log_format: str, encoding: str, word: str
) -> None:
    cell = {"csv": '{},"{}"\n', "tsv": "{}\t{}\n", "jsonl": '{{"n": {}, "s": "{}"}}\n'}[log_format]
    text = "".join(cell.format(place, word * (place % 3 + 1)) for place in range(20))
    path = write_log(tmp_path / "log", text.encode(encoding))
    expected = [(place, word * (place % 3 + 1)) for place in range(20)]
    for block_bytes in (1, 7, 64, 1 << 20):
        assert rows_of(path, schema_of(log_format, encoding=encoding), block_bytes=block_bytes) == (expected, [])


@pytest.mark.parametrize(
    ("encoding", "bad", "shown"),
    [("cp1252", b"a\x81b", "a\\x81b"), ("gb18030", b"\xff\xfe", "\\xff\\xfe"), ("shift_jis", b"\x81", "\\x81"),
     ("ascii", b"\xc3\xa9", "\\xc3\\xa9"), ("utf-16-le", b"\x41\xd8", "\\x41\\xd8")],
)  # fmt: skip
def test_undecodable_rows_are_rejected_with_their_bytes(tmp_path: Path, encoding: str, bad: bytes, shown: str) -> None:
    lines = [f"{place}\tx".encode(encoding) for place in range(3)]
    end = "\n".encode(encoding)
    path = write_log(tmp_path / "log", lines[0] + end + lines[1] + bad + end + lines[2] + end)
    parsed = parse_whole_log(path, schema_of("tsv", encoding=encoding))
    assert parsed.table.column("n").to_pylist() == [0, 2]
    (reject,) = parsed.rejects
    assert (reject.line, reject.column, reject.value) == (2, "s", f"x{shown}")
    assert json.loads(reject.to_json("log"))["raw"] == f"1\tx{shown}"


@pytest.mark.slow
@given(st.binary(max_size=40), st.sampled_from(sorted(ENCODINGS)), st.integers(1, 9))
@example(b"\x04\x22\x4d\x18", "ascii", 1)
@example(b"Obj\x01,x\n", "utf-8", 1)
@settings(max_examples=scaled(300))
def test_any_bytes_are_rows_or_rejects_in_any_encoding(
    tmp_path: Path, content: bytes, encoding: str, block_bytes: int
) -> None:
    path = write_log(tmp_path / "log", content)
    schema = schema_of("csv", encoding=encoding)
    try:
        expected = rows_of(path, schema)
    except (TruncatedLog, UnknownFormat):  # bytes that begin as a compressed file or an archive do
        with pytest.raises((TruncatedLog, UnknownFormat)):
            rows_of(path, schema, block_bytes=block_bytes)
        return
    assert rows_of(path, schema, block_bytes=block_bytes) == expected


def test_a_bad_lead_byte_takes_no_line_end_with_it(tmp_path: Path) -> None:
    for encoding in ("gb18030", "gbk", "big5", "shift_jis", "euc_kr", "euc_jp", "johab", "cp932", "utf-8"):
        path = write_log(tmp_path / "log", b"1\tx\n2\t\x81\n3\tx\n")
        assert rows_of(path, schema_of("tsv", encoding=encoding))[0] == [(1, "x"), (3, "x")]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("log_format", ["csv", "tsv", "jsonl"])
def test_lines_end_as_the_first_one_does(tmp_path: Path, log_format: str, end: str) -> None:
    cell = {"csv": "{},x", "tsv": "{}\tx", "jsonl": '{{"n": {}, "s": "x"}}'}[log_format]
    path = write_log(tmp_path / "log", end.join(["", *(cell.format(place) for place in range(9)), ""]))
    for block_bytes in (1, 2, 3, 1 << 20):
        assert rows_of(path, schema_of(log_format), block_bytes=block_bytes)[0] == [(n, "x") for n in range(9)]


def test_a_quoted_value_holds_line_breaks_whole_and_in_order(tmp_path: Path) -> None:
    values = ["a\nb", "", "\n", 'say ""hi""\n', "x,\r\ny", "\n\n\n", "plain"]
    text = "".join(f'{place},"{value}"\n' for place, value in enumerate(values))
    path = write_log(tmp_path / "log", text + 'x,"bad\nrow"\n')
    expected = [(place, value.replace('""', '"') or None) for place, value in enumerate(values)]
    for block_bytes in (1, 5, 1 << 20):
        rows, rejects = rows_of(path, schema_of(), block_bytes=block_bytes)
        assert (rows, rejects) == (expected, [15])
    (reject,) = parse_whole_log(path, schema_of()).rejects
    assert (reject.line, reject.last_line) == (15, 16)
    assert json.loads(reject.to_json("log"))["last_line"] == 16


@pytest.mark.parametrize("block_bytes", [1, 50, 1 << 20])
@pytest.mark.parametrize("rest", ["", '3,"c"d\n'])
def test_a_stray_quote_costs_its_line_and_not_the_file(tmp_path: Path, block_bytes: int, rest: str) -> None:
    lines = ['1,"a stray quote\n', *(f"{place},text of a row\n" for place in range(100)), rest]
    path = write_log(tmp_path / "log", "".join(lines))
    for longest in (200, 1 << 20):
        rows, rejects = rows_of(path, schema_of(), block_bytes=block_bytes, longest_line_bytes=longest)
        assert [n for n, _ in rows] == list(range(100))
        assert rejects == [1, *([102] if rest else [])]


def test_a_record_is_at_most_the_longest_line(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", '1,"' + "a\n" * 30 + '"\n2,b\n')
    for longest, rows in ((64, [1, 2]), (63, [2])):
        assert [n for n, _ in rows_of(path, schema_of(), longest_line_bytes=longest)[0]] == rows


def test_other_delimiters_and_quoted_tsv(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", 'n;s\n1;"a;b\nc"\n2;a,b\n')
    assert rows_of(path, schema_of(delimiter=";", header=True))[0] == [(1, "a;b\nc"), (2, "a,b")]
    path = write_log(tmp_path / "log", '1\t"a\tb"\n')
    assert rows_of(path, schema_of("tsv", quote=True))[0] == [(1, "a\tb")]
    path = write_log(tmp_path / "log", '1,"a\n')
    assert rows_of(path, schema_of(quote=False))[0] == [(1, '"a')]


def test_a_name_that_the_header_has_twice_is_refused_with_both_places(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", "n,s,x,n\n1,a,b,2\n")
    with pytest.raises(DataError, match="the header must have") as caught:
        parse_whole_log(path, schema_of(header=True))
    assert caught.value.value == "n at 1 and 4 of 4"


def test_every_record_is_counted_once(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log", 'n,s\n1,"a\nb"\n\nx,y\n' + "2," + "z" * 300 + "\n3,c\n")
    assert count_records(path, schema_of(header=True), longest_line_bytes=200) == 5


def test_a_file_name_gives_the_time_of_its_rows(tmp_path: Path) -> None:
    time = {"file_name": "clicks_*_%Y%m%d.csv", "zone": "Asia/Shanghai", "column": "day"}
    schema = schema_of(time=time)
    path = write_log(tmp_path / "clicks_eu_20260214.csv.gz", "1,a\n")
    (row,) = parse_whole_log(path, schema).table.to_pylist()
    assert row["day"].isoformat() == "2026-02-13T16:00:00+00:00"
    with pytest.raises(DataError, match="file's name") as caught:
        parse_whole_log(write_log(tmp_path / "clicks.csv", "1,a\n"), schema)
    assert (caught.value.value, caught.value.allowed) == ("clicks.csv", "a name such as clicks_*_%Y%m%d.csv")
