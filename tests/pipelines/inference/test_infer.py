"""Schemas from samples: known kinds of logs, and damaged logs that must not crash."""

from __future__ import annotations

import gzip
import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import LogSchemaError, NoLogFiles, UnclearEventTime, UnknownFormat
from pipelines.inference.event_time import TimeOptions
from pipelines.inference.infer import Inferred, infer_schema
from pipelines.inference.json_values import guess_json_columns, json_rows
from pipelines.inference.sample import HEAD_BYTES, PIECE_BYTES, PIECES, read_sample
from pipelines.inference.schema_file import schema_text
from pipelines.inference.text_encoding import decoded_lines, detect_encoding
from pipelines.inference.values import ColumnGuess, guess_column
from pipelines.log_schemas.columns import plausible_range_us
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.log import parse_log, parse_whole_log
from tests.support.examples import scaled
from transforms.errors import HeadraceError
from transforms.types import DType

ROWS = range(80)


def search_log() -> bytes:
    """A search log with relevance grades, quoted line breaks, CP1252."""
    rows = [f'{i},"Winkel {i}° ""Stahl""{chr(10) if i % 5 == 0 else " "}für Regale","winkel {i % 7}",{("1", "2.33", "3")[i % 3]}'
            for i in ROWS]  # fmt: skip
    return "\r\n".join(['"id","product_title","search_term","relevance"', *rows, ""]).encode("cp1252")


def coupon_log() -> bytes:
    """Coupon ads with local times of one digit for the hour."""
    rows = [f"s{i:03x},{int(i % 9 == 0)},2011-07-0{1 + i % 8} {7 + i % 3}:5{i % 10},{i}" for i in ROWS]
    return "\n".join(["SESSION_ID,PURCHASE_FLG,I_DATE,PAGE_SERIAL", *rows, ""]).encode()


def install_log() -> bytes:
    """App-install ads: no header, fractions of epoch seconds, lists, a spelled null."""
    rows = [
        f"{i % 11}\t{1_300_000_000 + i * 7.25}\t{i % 50}|{i % 3}\t{int(i % 7 == 0)}\t{'NULL' if i % 3 else 2.5}"
        for i in ROWS
    ]
    return "\n".join([*rows, ""]).encode()


def web_log() -> bytes:
    """Chinese web search in GB18030."""
    rows = [
        f"20080601{i % 24:02d}{i % 60:02d}00\tu{i % 9}\t[汉语 搜索 {i}]\t{i % 10} {i % 3}\twww.x.cn/{i}" for i in ROWS
    ]
    return "\n".join([*rows, ""]).encode("gb18030")


def news_log() -> bytes:
    """News clicks with nested objects and arrays."""
    rows = [{"ts": 1_700_000_000_000 + i * 60_000, "user": {"id": f"u{i % 7}", "geo": {"country": "NO"}}, "clicked": bool(i % 2),
             "topics": ["a", "b"][: i % 3], "seen_at": ["2023-11-14T22:13:20Z"] * (i % 3), "liked": i % 2 if i % 3 else True, "ids": [1, 2], "seen": [{"id": 1}], "dwell": i / 3 if i % 4 else None}
            for i in ROWS]  # fmt: skip
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


LOGS = {"search.csv": search_log, "coupons.csv": coupon_log, "installs.tsv": install_log, "web.tsv": web_log,
        "news.jsonl": news_log}  # fmt: skip


#: The logs without a column of times.
WITHOUT_TIME = frozenset({"search.csv"})
NOW = datetime(2026, 11, 1, tzinfo=UTC)
LIMITS = plausible_range_us(NOW)


def inferred(tmp_path: Path, name: str, content: bytes, **options: Any) -> Inferred:
    (tmp_path / name).write_bytes(content)
    order = TimeOptions(by_row_order=name.removesuffix(".gz") in WITHOUT_TIME)
    return infer_schema([str(tmp_path / name)], clock=lambda: NOW, **{"time": order, **options})


def guess(name: str, values: list[str | None]) -> ColumnGuess:
    return guess_column(name, values, LIMITS)


def kinds(found: Inferred) -> dict[str, str]:
    return {column.name: str(column.type) for column in found.schema.columns}


def test_a_search_log(tmp_path: Path) -> None:
    found = inferred(tmp_path, "search.csv", search_log())
    assert kinds(found) == {"id": "Dense[int64]", "product_title": "Dense[string]", "search_term": "Dense[string]",
                            "relevance": "Dense[float64]"}  # fmt: skip
    assert (found.schema.encoding, found.schema.header, found.labels) == ("cp1252", True, ("relevance",))
    assert found.rows == len(ROWS)
    assert found.schema.time is not None
    assert found.schema.time.made_up is not None


def test_coupon_ads(tmp_path: Path) -> None:
    found = inferred(tmp_path, "coupons.csv", coupon_log())
    assert kinds(found)["I_DATE"] == "Dense[timestamp]"
    assert found.schema.time is not None
    assert (found.schema.time.column, found.schema.time.unit, found.labels) == ("I_DATE", "iso8601", ("PURCHASE_FLG",))
    assert "have no zone" in schema_text(found)


def test_install_ads(tmp_path: Path) -> None:
    found = inferred(tmp_path, "installs.tsv", install_log())
    assert list(kinds(found).values()) == ["Dense[int64]", "Dense[timestamp]", "Ragged[int64]", "Dense[bool]",
                                           "Dense[float64]"]  # fmt: skip
    assert found.schema.null == ("", "NULL")
    assert found.schema.columns[1].unit == "s"
    assert found.columns[4].missing_share(found.schema.null) > 0.6


def test_chinese_web_search(tmp_path: Path) -> None:
    found = inferred(tmp_path, "web.tsv", web_log())
    assert (found.schema.format, found.schema.encoding) == ("tsv", "gb18030")
    assert found.schema.columns[0].formats == ("%Y%m%d%H%M%S",)
    assert "汉语" in found.columns[2].examples[0]


def test_news_clicks(tmp_path: Path) -> None:
    found = inferred(tmp_path, "news.jsonl", news_log())
    assert kinds(found) == {
        "ts": "Dense[timestamp]", "user_id": "Dense[string]", "user_geo_country": "Dense[string]",
        "clicked": "Dense[bool]", "topics": "Ragged[string]", "seen_at": "Ragged[timestamp]", "liked": "Dense[bool]", "ids": "Ragged[int64]", "seen": "Dense[string]",
        "dwell": "Dense[float64]",
    }  # fmt: skip
    by_name = {column.name: column for column in found.schema.columns}
    assert by_name["user_geo_country"].path == ("user", "geo", "country")
    assert by_name["seen"].is_json
    assert (by_name["ts"].unit, found.labels) == ("ms", ("clicked", "liked"))


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("packed", [False, True])
def test_the_schema_file_says_what_was_found_packed_or_not(tmp_path: Path, name: str, packed: bool) -> None:
    content = LOGS[name]()
    found = inferred(tmp_path, f"{name}.gz" if packed else name, gzip.compress(content) if packed else content)
    (tmp_path / "schema.json").write_text(schema_text(found), encoding="utf-8")
    assert LogSchema.from_file(str(tmp_path / "schema.json")) == found.schema


def test_comments_are_lines_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    columns = '"columns": [{"name": "http://a", "type": "int64"},\n\t// the time\n{"name": "t", "type": "timestamp"}]'
    path.write_text(
        f'// first\n{{"format": "csv",\n  // unsure: "quoted", and a }} brace\n{columns}, "time": {{"column": "t"}}}}'
    )
    assert LogSchema.from_file(str(path)).names == ("http://a", "t")
    path.write_text('{"format": "csv", // no line of its own\n"columns": []}')
    with pytest.raises(LogSchemaError, match="must be JSON") as caught:
        LogSchema.from_file(str(path))
    assert "line 1" in caught.value.where


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2", "-3"], "Dense[int64]"),
        (["0", "1", "1"], "Dense[bool]"),
        (["true", "False"], "Dense[bool]"),
        (["1.5", "2", "1e3"], "Dense[float64]"),
        (["1,234", "12,345,678"], "Dense[int64]"),
        (["1.234,50", "7,25"], "Dense[float64]"),
        (["007", "012", "130"], "Dense[string]"),
        (["12345678901234567890123", "98765432109876543210987"], "Dense[string]"),
        (["a|b", "c", "d|e|f"], "Ragged[string]"),
        (["1;2", "3;4"], "Ragged[int64]"),
        (["red, green", "see | here: this and that and more"], "Dense[string]"),
        (["2017-07-02", "2017-07-03"], "Dense[timestamp]"),
        (["2017-07-02T07:50:11.25+02:00"], "Dense[timestamp]"),
        (["31/12/2017 10:00", "01/02/2017 11:00"], "Dense[timestamp]"),
        (["-", "4", "?"], "Dense[int64]"),
        (["", None], "Dense[string]"),
    ],
    ids=str,
)
def test_a_column_is_what_its_values_are(values: list[str | None], kind: str) -> None:
    assert str(guess("x", values).column.type) == kind


def test_days_and_months_in_either_order_are_said() -> None:
    found = guess("day", ["01/02/2017", "03/04/2017"])
    assert found.column.formats == ("%d/%m/%Y",)
    assert any("%m/%d/%Y" in sentence for sentence in found.unsure)


def test_a_few_odd_values_are_said_and_the_type_stays() -> None:
    found = guess("n", [*map(str, range(400)), "oops"])
    assert found.column.dtype is DType.INT64
    assert found.unsure == ("1 of 401 values are no int64, such as 'oops': those rows are rejected",)


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        ("é".encode(), "utf-8"),
        (b"plain", "utf-8"),
        ("é,ü,ß; größer\n".encode("cp1252"), "cp1252"),
        ("naïve café\x85\n".encode("latin-1"), "cp1252"),
        (b"a\x81b caf\xe9 \n", "iso8859-1"),
        ("北京天气预报\n".encode("gb18030"), "gb18030"),
        ("id,é\n1,2\n".encode("utf-16"), "utf-16"),
        ("id,name\n1,anna\n".encode("utf-16-le"), "utf-16-le"),
        ("id,name\n1,anna\n".encode("utf-16-be"), "utf-16-be"),
        ("\ufeffid,é\n".encode(), "utf-8"),
    ],
    ids=str,
)
def test_the_encoding_is_found_by_the_stated_rule(content: bytes, encoding: str) -> None:
    assert detect_encoding([content])[0] == encoding
    assert "\ufffd" not in decoded_lines(content, encoding, first=True)
    assert not decoded_lines(content, encoding, first=True).startswith("\ufeff")


@pytest.mark.parametrize(
    ("name", "content", "step"),
    [
        ("a.parquet", b"PAR1....", "table import"),
        ("a.csv", gzip.compress(b"PAR1....", mtime=0), "table import"),
        ("a.csv", b"PK\x03\x04....", "unpack"),
        ("a.json", b'[{"a": 1},\n {"a": 2}]', "jq -c '.[]'"),
        ("a.json", b'{\n "a": 1\n}', "jq -c '.'"),
        ("a.csv", b"", "check the program that writes them"),
        ("a.csv", b"\n\n", "check the program that writes them"),
        ("a.bin", bytes(range(3, 9)) * 50, ""),
        ("a.csv", b"id,label\n", ""),
    ],
)
def test_what_is_no_text_log_is_refused_with_what_to_do(tmp_path: Path, name: str, content: bytes, step: str) -> None:
    with pytest.raises(UnknownFormat) as caught:
        inferred(tmp_path, name, content)
    assert step in caught.value.next_step


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NoLogFiles):
        infer_schema([str(tmp_path / "no.csv")])


def test_the_sample_is_bounded_and_reaches_the_end(tmp_path: Path) -> None:
    path = tmp_path / "big.csv"
    line = b"1,2,3\n"
    with path.open("wb") as file:
        for _ in range(30):
            file.write(line * 100_000)
        file.write(b"x,y,z\n" * 30_000)
    sample = read_sample(str(path))
    assert len(sample.head) == HEAD_BYTES
    assert sum(map(len, sample.pieces)) <= (PIECES + 1) * PIECE_BYTES
    assert any(b"x" in piece for piece in sample.pieces)
    packed = tmp_path / "big.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes(), 1))
    found = read_sample(str(packed))
    assert len(found.head) == HEAD_BYTES
    assert sum(map(len, found.pieces)) <= PIECES * PIECE_BYTES


@pytest.mark.parametrize("over_bytes", [-PIECE_BYTES * PIECES, -1, 0, 1, 5_000, PIECE_BYTES, 3 << 20])
@pytest.mark.parametrize("packed", [False, True])
def test_no_row_is_sampled_twice(tmp_path: Path, over_bytes: int, packed: bool) -> None:
    size_bytes = HEAD_BYTES + PIECES * PIECE_BYTES + over_bytes
    content = b"".join(b"%08d\n" % at for at in range(size_bytes // 9 + 1))[:size_bytes]
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(content, 1) if packed else content)
    sample = read_sample(str(path))
    assert sample.is_whole == (over_bytes <= 0) == (sample.head == content)
    lines = [line for part in (sample.head, *sample.pieces) for line in part.split(b"\n") if len(line) == 8]
    assert len(lines) == len(set(lines))
    assert content.split(b"\n")[-2] in lines or packed


def test_figures_of_missing_values_are_those_of_an_import(tmp_path: Path) -> None:
    lines = [
        f"2026-03-01 0{at % 9}:00,{'NA' if at % 4 else at},{('NA', 'DE', '', ' ')[at % 4]},{'-' if at % 2 else ''}"
        for at in range(80)
    ]
    found = inferred(tmp_path, "log.csv", ("time,price,country,gone\n" + "\n".join(lines) + "\n").encode())
    table = parse_whole_log(str(tmp_path / "log.csv"), found.schema.bounded(NOW)).table
    shares = {guess.column.name: guess.missing_share(found.schema.null) for guess in found.columns}
    assert shares == {name: table.column(name).null_count / 80 for name in table.column_names}
    assert shares == {"time": 0.0, "price": 0.75, "country": 0.5, "gone": 0.5}
    assert found.columns[3].unsure == ("every value in the sample is empty or '-', which may mean a missing one",)
    assert (found.columns[2].distinct, found.columns[2].examples) == (2, ("DE", ""))


@pytest.mark.parametrize(
    ("values", "kind", "doubt"),
    [
        ([str(10**19 + at) for at in range(50)] + ["123456789012345678"] * 50, "string", "integers are beyond int64, up to 20 digits"),
        ([str(2**63 + at) for at in range(1)] + [str(2**62 + at) for at in range(500)], "string", "1 of 501 integers are beyond int64"),
        (["9" * 20, *map(str, range(200))], "int64", "1 of 201 values are no int64"),
        (["12345678901234567890.5", "1.5"], "float64", "have more digits than float64 keeps"),
        (["0.1000000014901161", "1e-7", "3"], "float64", ""),
        ([f"{1_000_000_000 + at}.{1_700_000_000 + at * 7}" for at in range(99)], "string", "as ids do: they are kept as text"),
        ([*map(str, range(100, 199)), "007"], "int64", "1 of 100 integers have leading zeros, which int64 drops"),
        (["1e999", *["1.5"] * 200], "float64", "1 of 201 values are no float64, such as '1e999'"),
    ],
)  # fmt: skip
def test_numbers_that_their_type_does_not_hold_are_said(values: list[str | None], kind: str, doubt: str) -> None:
    found = guess("n", values)
    assert str(found.column.dtype) == kind
    assert doubt in "".join(found.unsure)
    assert bool(found.unsure) == bool(doubt)


START_SECS = 1_772_323_200  # 2026-03-01


def times_of(*columns: list[str], names: str = "event_time,signup_date") -> bytes:
    return "\n".join([names, *map(",".join, zip(*columns, strict=True)), ""]).encode()


def days(count: int, odd: int = 0) -> list[str]:
    return ["unknown" if at < odd else f"2026-03-{1 + at % 28:02d}" for at in range(count)]


def test_a_column_that_looks_more_like_the_event_time_is_not_passed_over(tmp_path: Path) -> None:
    with pytest.raises(UnclearEventTime) as caught:
        inferred(tmp_path, "log.csv", times_of(days(200, 6), days(200)))
    assert str(caught.value.value).startswith(
        "event_time: 97.0% of the rows are times as ISO 8601 (such as 'unknown'); signup_date: 100.0%"
    )
    assert "--time-column event_time rejects 6 of the 200 sampled rows" in caught.value.next_step
    chosen = inferred(tmp_path, "log.csv", times_of(days(200, 6), days(200)), time=TimeOptions("signup_date"))
    assert chosen.schema.time is not None
    assert (chosen.schema.time.column, chosen.rejected, kinds(chosen)["event_time"]) == (
        "signup_date",
        0,
        "Dense[string]",
    )
    assert "194 of 200 values are times" in chosen.columns[0].unsure[0]


def test_times_that_an_import_finds_implausible_are_no_event_time(tmp_path: Path) -> None:
    late = [f"209{at % 10}-03-01" for at in range(100)]
    with pytest.raises(UnclearEventTime) as caught:
        inferred(tmp_path, "log.csv", times_of(late, ["x"] * 100, names="time,word"))
    assert '"from" and "until"' in caught.value.next_step
    found = inferred(tmp_path, "log.csv", times_of([*days(199), "9999-12-31"], ["x"] * 200, names="time,word"))
    assert (found.rejected, found.reject.rpartition("log.csv, ")[2][:55]) == (
        1,
        "line 201, column time: the event time is outside the pl",
    )


@pytest.mark.parametrize(
    ("numbers", "name", "form"),
    [
        ([START_SECS + 977 * (at * 7919 % 1000) for at in range(300)], "created_at", "s"),
        ([(START_SECS + at) * 1_000 for at in range(300)], "column_1", "ms"),  # ascending
        ([(START_SECS + at) * 10**9 for at in range(300)], "ts", "ns"),
        ([20260301 + at % 28 for at in range(300)], "dt", "%Y%m%d"),
        ([260301 + at % 28 for at in range(300)], "day", "%y%m%d"),
        ([2026030100 + at % 24 for at in range(300)], "column_1", "%Y%m%d%H"),
        ([20260301000000 + at % 60 for at in range(300)], "column_1", "%Y%m%d%H%M%S"),
        ([20260301 + at % 28 for at in range(300)], "column_1", None),  # days only if the name says so
        ([START_SECS + 977 * (at * 7919 % 1000) for at in range(300)], "column_1", None),  # ids, as likely
        ([START_SECS + at for at in range(300)], "order_id", None),
        ([at % 24 for at in range(300)], "hour", None),
        ([at * 60 for at in range(300)], "time_spent", None),
    ],
)  # fmt: skip
def test_numbers_are_the_event_time_if_form_or_name_say_so(
    tmp_path: Path, numbers: list[int], name: str, form: str | None
) -> None:
    content = times_of([str(number) for number in numbers], ["x"] * len(numbers), names=f"{name},word")
    if form is None:
        with pytest.raises(UnclearEventTime):
            inferred(tmp_path, "log.csv", content)
        found = inferred(tmp_path, "log.csv", content, time=TimeOptions(by_row_order=True))
        assert kinds(found)[name] == "Dense[int64]"
        return
    found = inferred(tmp_path, "log.csv", content)
    column = found.schema.columns[0]
    assert (column.unit or column.formats[0], found.rejected) == (form, 0)


def test_ascending_numbers_stay_numbers_beside_an_event_time(tmp_path: Path) -> None:
    numbers = [str(START_SECS + at) for at in range(200)]
    found = inferred(tmp_path, "log.csv", times_of(days(200), numbers, names="event_time,ticket"))
    assert kinds(found) == {"event_time": "Dense[timestamp]", "ticket": "Dense[int64]"}


def test_columns_that_some_headers_lack_are_left_out_and_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(times_of(days(50), ["x"] * 50, names="time,word"))
    (tmp_path / "b.csv").write_bytes(times_of(["1"] * 50, ["x"] * 50, days(50), names="score,word,time"))
    found = infer_schema([str(tmp_path)], clock=lambda: NOW)
    assert (list(kinds(found)), found.rows, found.rejected) == (["time", "word"], 100, 0)
    assert any(f"has score ({tmp_path / 'b.csv'})" in sentence for sentence in found.unsure)


def test_a_column_that_too_many_rows_contradict_becomes_text(tmp_path: Path) -> None:
    columns = [
        ["oops" if at == 10 * column or at == 10 * column + 1 else str(at) for at in range(200)] for column in range(8)
    ]
    names = ",".join(["time", *(f"n{column}" for column in range(8))])
    found = inferred(tmp_path, "log.csv", times_of(days(200), *columns, names=names))
    assert found.rejected <= 0.025 * 200
    said = [guess.column.name for guess in found.columns if any("kept as text" in one for one in guess.unsure)]
    assert [name for name, kind in kinds(found).items() if kind == "Dense[string]"] == said != []


def test_the_day_in_the_names_of_files_becomes_the_time(tmp_path: Path) -> None:
    for day in ("2017-07-02", "2017-07-03"):
        (tmp_path / f"log-{day}.csv").write_text("user_id,clicked\n" + "".join(f"{i},{i % 2}\n" for i in range(9)))
    found = infer_schema([str(tmp_path)])
    assert found.schema.time is not None
    assert found.schema.time.made_up is not None
    assert found.schema.time.made_up.file_name == "*%Y-%m-%d*"


VALUES = {
    "int64": lambda draw: str(draw.randrange(-(10**9), 10**9)),
    "float64": lambda draw: repr(draw.uniform(-1e3, 1e3)),
    "bool": lambda draw: draw.choice(("true", "false")),
    "string": lambda draw: " ".join(draw.choice(("roter", "Schuh", "für", "Kinder", "x1")) for _ in range(4)),
    "timestamp": lambda draw: (datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=draw.randrange(10**7))).isoformat(),
    "int64|": lambda draw: "|".join(str(draw.randrange(99)) for _ in range(draw.randrange(2, 5))),
}


@settings(max_examples=scaled(12))
@given(
    types=st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=7),
    log_format=st.sampled_from(["csv", "tsv", "csv;"]),
    header=st.booleans(),
    nulls=st.sampled_from(["", "NULL"]),
    seed=st.integers(0, 2**32),
)
def test_the_types_of_a_generated_log_are_recovered(
    tmp_path_factory: pytest.TempPathFactory, types: list[str], log_format: str, header: bool, nulls: str, seed: int
) -> None:
    draw = random.Random(seed)
    delimiter = {"csv": ",", "tsv": "\t", "csv;": ";"}[log_format]
    rows = [[nulls if draw.random() < 0.1 else VALUES[kind](draw) for kind in types] for _ in range(120)]
    names = [f"field_{at}" for at in range(len(types))]
    lines = [delimiter.join(row) for row in ([names] if header else []) + rows]
    path = tmp_path_factory.mktemp("log") / "log.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = infer_schema([str(path)], time=TimeOptions(by_row_order=True))
    assert (found.schema.format, found.schema.cell_delimiter) == ("tsv" if log_format == "tsv" else "csv", delimiter)
    plain = [f"{column.dtype}{column.separator or ''}" for column in found.schema.columns]
    assert plain == types
    if set(types) != {"string"}:
        assert found.schema.header is header


@pytest.mark.parametrize("name", LOGS)
def test_damaged_logs_give_a_schema_or_one_error(tmp_path: Path, name: str) -> None:
    draw, content = random.Random(7), LOGS[name]()
    for _ in range(8):
        damaged = bytearray(content)
        for _ in range(draw.randrange(1, 30)):
            at = draw.randrange(len(damaged))
            match draw.randrange(4):
                case 0:
                    damaged[at] = draw.randrange(256)
                case 1:
                    del damaged[at : at + draw.randrange(1, 200)]
                case 2:
                    damaged[at:at] = bytes(draw.choices(b'"\n\r\x00\xff,;\t{}[]', k=5))
                case _:
                    damaged[at:at] = damaged[: draw.randrange(200)]
            if not damaged:
                damaged = bytearray(b"x")
        try:
            found = inferred(tmp_path, name, bytes(damaged))
        except HeadraceError:
            continue
        (tmp_path / "schema.json").write_text(schema_text(found), encoding="utf-8")
        assert LogSchema.from_file(str(tmp_path / "schema.json")) == found.schema


def test_distinct_values_of_lists_and_objects_are_counted_once(tmp_path):
    lines = [{"topics": ["a", "b"], "geo": {"at": [{"x": n % 2}]}, "n": n} for n in range(10)]
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    found = inferred(tmp_path, "news.jsonl", content, time=TimeOptions(by_row_order=True))
    assert {guess.column.name: guess.distinct for guess in found.columns} == {"topics": 2, "geo_at": 2, "n": 10}


@pytest.mark.parametrize(
    ("values", "kind", "doubt"),
    [
        (["4.9", "4.10", "4.1"], "string", "may be versions"), (["1.50", "2.25", "10.00"], "float64", "in quotes"),
        (["1.0", "2.25", "7"], "float64", "in quotes"), (["007", "12"], "string", "leading zeros"),
        (["10115"] * 299 + ["K1A 0B1"], "string", "1 of 300 strings are no int64"), (["17", "NULL", ""], "int64", "in quotes"),
        (["3", " 4 "], "int64", "in quotes"), ([str(2**63), "1"], "string", "beyond int64"), (["NaN", "oops"], "string", ""),
        (["1", "0"], "int64", "in quotes"), (["true", "false"], "string", ""), ([1, "2"], "int64", "in quotes"),
        ([1, "two"], "string", "several types"), (["1000000001.1700000001", "7.5"], "string", "more digits than float64"),
    ],
)  # fmt: skip
def test_strings_are_numbers_if_a_writer_of_numbers_may_have_written_them(
    values: list[object], kind: str, doubt: str
) -> None:
    rows = json_rows([json.dumps({"x": value}).encode() for value in values])
    (found,) = guess_json_columns(rows, LIMITS)
    assert str(found.column.dtype) == kind
    assert doubt in "".join(found.unsure)
    texts = [None if value in ("", "NULL") else value for value in values]
    assert found.missing_rows(tuple(found.nulls)) == texts.count(None)


def test_files_without_a_common_time_column_are_said_to_differ(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(times_of(days(50), ["x"] * 50, names="time,word"))
    (tmp_path / "b.csv").write_bytes(b"word,weight\n" + b"x,2\n" * 9)
    with pytest.raises(UnclearEventTime) as caught:
        infer_schema([str(tmp_path)], clock=lambda: NOW)
    assert f"columns word; the header of some files alone has time ({tmp_path / 'a.csv'})" in str(caught.value.value)


@pytest.mark.parametrize(
    ("header", "row", "delimiter", "width"),
    [
        ("time,user,clicked", "2026-03-01 00:{at:02d},u{at},1", ",", 3),  # every time holds a space
        ("time,tags,clicked", "2026-03-01,a|b|c,{at}", ",", 3),  # every row holds two pipes
        ("zeit;preis;menge", "2026-03-01;{at},5;1,25", ";", 3),  # every row holds two commas
        ("", "2026-03-01;{at},5;1,25", ";", 3),
        ("", "2026-03-01T00:{at:02d} u{at} 5", " ", 3),
        ("time\tnote", "2026-03-01\ta, b and c, {at}", "\t", 2),
    ],
)
def test_a_few_damaged_rows_do_not_change_the_delimiter(
    tmp_path: Path, header: str, row: str, delimiter: str, width: int
) -> None:
    lines = [row.format(at=at % 60) + f"{delimiter}x" * (at % 50 == 49) for at in range(400)]
    content = "\n".join([*filter(None, [header]), *lines, ""]).encode()
    found = inferred(tmp_path, "log", content)
    assert (found.schema.cell_delimiter, len(found.schema.columns), found.rejected) == (delimiter, width, 8)


def test_times_that_are_0_are_said(tmp_path: Path) -> None:
    seconds = [str(0 if at % 100 == 0 else START_SECS + at) for at in range(300)]
    found = inferred(tmp_path, "log.csv", times_of(seconds, ["x"] * 300, names="event_ts,word"))
    assert any('"from": "1971-01-01"' in sentence for sentence in found.unsure)
    assert found.schema.time is not None
    document = found.schema.to_document() | {"time": {"column": "event_ts", "unit": "s", "from": "1971-01-01"}}
    blocks = parse_log(str(tmp_path / "log.csv"), LogSchema.from_document(document).bounded(NOW))
    assert sum(len(block.rejects) for block in blocks) == 3
    later = inferred(tmp_path, "log.csv", times_of(seconds[1:100], ["x"] * 99, names="event_ts,word"))
    assert not any("1970" in sentence for sentence in later.unsure)


def test_objects_without_keys_are_no_log(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text("{}\n" * 20)
    with pytest.raises(UnknownFormat, match="must have a column"):
        infer_schema([str(log)])


@pytest.mark.parametrize(("junk", "kind"), [(0, DType.TIMESTAMP), (50, DType.INT64)])
def test_digits_are_times_only_where_nearly_all_of_them_are(tmp_path: Path, junk: int, kind: DType) -> None:
    """20260301 is a day, 20261301 is none."""
    days = [f"2026{13 if at < junk else 3:02d}{1 + at % 28:02d}" for at in range(200)]
    log = tmp_path / "log.csv"
    lines = [f"2026-03-01T00:{at % 60:02d}:00Z,{day},u{at % 9}" for at, day in enumerate(days)]
    log.write_text("\n".join(["time,day,user", *lines, ""]))
    found = infer_schema([str(log)])
    assert found.schema.time is not None
    assert found.schema.time.column == "time"
    assert {guess.column.name: guess.column.dtype for guess in found.columns}["day"] is kind
