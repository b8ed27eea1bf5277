"""The same rows in other spellings are inferred and imported as the same table."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.inference.event_time import TimeOptions
from pipelines.inference.infer import Inferred, infer_schema
from pipelines.inference.schema_file import schema_text
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.log import parse_log, parse_whole_log
from tests.support.examples import scaled
from transforms.errors import HeadraceError

NOW = datetime(2026, 11, 1, tzinfo=UTC)
Row = dict[str, Any]
NAMES = ["event_time", "user", "session", "price", "clicked", "note"]


def rows_of(random: Random, count: int) -> list[Row]:
    """Rows with times of whole seconds, ids beyond float64, numbers with fractions, words, and missing values."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    notes = [
        "red, round",
        'a "good" one',
        "grün; teuer",
        "C:\\dir",
        "a | b & more things than a list",
        "",
        "two\nlines",
    ]
    return [
        {
            "event_time": start + timedelta(seconds=random.randrange(80_000_000)),
            "user": f"user {random.choice('abcdefgh')}",
            "session": random.choice((2**53 + 1, 2**62, 17, None)) if at else 2**53 + 1,
            "price": random.randrange(10_000) + random.choice((0.25, 0.5)),
            "clicked": at % 3 == 0,
            "note": ('a "good" one', "two\nlines")[at]
            if at < 2
            else random.choice(notes) + (f" {at}" if random.random() < 0.5 else "") or None,
        }
        for at in range(count)
    ]


TIMES: dict[str, Callable[[datetime], str]] = {
    "iso": lambda time: time.isoformat(), "iso without zone": lambda time: f"{time:%Y-%m-%d %H:%M:%S}",
    "german": lambda time: f"{time:%d.%m.%Y %H:%M:%S}", "digits": lambda time: f"{time:%Y%m%d%H%M%S}",
    "s": lambda time: str(int(time.timestamp())), "ms": lambda time: str(int(time.timestamp()) * 1_000),
    "us": lambda time: str(int(time.timestamp()) * 10**6), "ns": lambda time: str(int(time.timestamp()) * 10**9),
}  # fmt: skip
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress,
    "zstd": lambda content: _by_arrow("zstd", content), "lz4": lambda content: _by_arrow("lz4", content),
}  # fmt: skip


def _by_arrow(name: str, content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, name) as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Spelling:
    """How rows are written."""

    delimiter: str = ","
    quoting: int = csv.QUOTE_MINIMAL
    escapes: bool = False
    time: str = "iso"
    compression: str = "none"
    name: str = "log"
    encoding: str = "utf-8"
    line_end: str = "\n"
    opening: str = ""
    trailing: bool = False
    quoted_numbers: bool = False

    def written(self, rows: list[Row]) -> bytes:
        text = self.json_lines(rows) if self.delimiter == "{" else self.cells(rows)
        return COMPRESSIONS[self.compression](text.encode(self.encoding))

    def cells(self, rows: list[Row]) -> str:
        buffer = io.StringIO()
        escape: dict[str, Any] = {"escapechar": "\\", "doublequote": False} if self.escapes else {}
        writer = csv.writer(
            buffer, delimiter=self.delimiter, quoting=self.quoting, lineterminator=self.line_end, **escape
        )  # type: ignore[arg-type]
        more = [""] if self.trailing else []
        writer.writerow(NAMES + more)
        for row in rows:
            cells = {name: "" if value is None else str(value) for name, value in row.items()}
            cells |= {"event_time": TIMES[self.time](row["event_time"]), "clicked": str(int(row["clicked"]))}
            writer.writerow([cells[name] for name in NAMES] + more)
        return self.opening.replace("\n", self.line_end) + buffer.getvalue()

    def json_lines(self, rows: list[Row]) -> str:
        lines = []
        for row in rows:
            time = TIMES[self.time](row["event_time"])
            counted = self.time in ("s", "ms", "us", "ns", "digits")
            line = {**row, "event_time": int(time) if counted else time}
            if self.quoted_numbers:
                quoted = ("session", "price", *(("event_time",) if counted else ()))
                line |= {name: str(line[name]) for name in quoted if line[name] is not None}
            lines.append(json.dumps({name: value for name, value in line.items() if value is not None}))
        return "".join(line + self.line_end for line in lines)


SPELLINGS = st.builds(
    Spelling,
    delimiter=st.sampled_from([",", ";", "|", "\t", "{"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    escapes=st.booleans(),
    time=st.sampled_from(sorted(TIMES)),
    compression=st.sampled_from(sorted(COMPRESSIONS)),
    name=st.sampled_from(["log", "log.csv", "log.CSV.GZ", "log.txt.zst"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "cp1252"]),
    line_end=st.sampled_from(["\n", "\r\n"]),
    opening=st.sampled_from(["", "\n\n", "# exported 2026-03-01, by hand\n#\n", "sep=;\n"]),
    trailing=st.booleans(),
    quoted_numbers=st.booleans(),
)


def imported(folder: Path, spelling: Spelling, rows: list[Row]) -> tuple[Inferred, pa.Table]:
    """What is inferred from the rows in this spelling, and the table that an import makes of them."""
    path = folder / spelling.name
    path.write_bytes(spelling.written(rows))
    found = infer_schema([str(path)], clock=lambda: NOW)
    (folder / "schema.json").write_text(schema_text(found), encoding="utf-8")
    schema = LogSchema.from_file(str(folder / "schema.json"))
    assert schema == found.schema
    parsed = parse_whole_log(str(path), schema.bounded(NOW))
    assert parsed.rejects == ()
    assert (found.rows, found.rejected) == (len(rows), 0)
    return found, parsed.table


@pytest.mark.medium
@given(spelling=SPELLINGS, seed=st.integers(0, 2**32), count=st.integers(20, 60))
@settings(max_examples=scaled(150))
def test_the_same_rows_in_another_spelling_are_the_same_table(
    tmp_path_factory: pytest.TempPathFactory, spelling: Spelling, seed: int, count: int
) -> None:
    rows = rows_of(Random(seed), count)
    folder = tmp_path_factory.mktemp("log")
    _, plain = imported(folder, Spelling(), rows)
    assert [row["session"] for row in plain.to_pylist()] == [row["session"] for row in rows]
    assert [row["event_time"] for row in plain.to_pylist()] == [row["event_time"] for row in rows]
    found, table = imported(folder, spelling, rows)
    assert table.equals(plain)
    expected = sum(row["session"] is None for row in rows) / count
    shares = {guess.column.name: guess.missing_share(found.schema.null) for guess in found.columns}
    assert shares["session"] == pytest.approx(expected)
    assert shares["note"] == pytest.approx(table.column("note").null_count / count)


BAD = {"wide": ["x"] * 7, "narrow": ["2026-01-01"], "time": ["unknown", "u", "1", "1.5", "0", "n"], "late": ["2093-01-01", "u", "1", "1.5", "0", "n"],
       "number": ["2026-01-01", "u", "1", "one", "0", "n"]}  # fmt: skip


@pytest.mark.slow
@given(
    bad=st.lists(st.sampled_from(sorted(BAD)), max_size=3),
    seed=st.integers(0, 2**32),
    time=st.sampled_from(sorted(TIMES)),
)
@settings(max_examples=scaled(50))
def test_an_import_rejects_the_rows_that_are_bad_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, bad: list[str], seed: int, time: str
) -> None:
    random = Random(seed)
    lines = Spelling(time=time).cells(rows_of(random, 400)).replace("two\nlines", "two lines").splitlines()
    places = sorted(random.sample(range(1, len(lines)), len(bad)))
    for place, kind in zip(places, bad, strict=True):
        cells = list(BAD[kind])
        if kind == "number":
            cells[0] = TIMES[time](datetime(2026, 1, 1, tzinfo=UTC))
        lines[place] = ",".join(cells)
    path = tmp_path_factory.mktemp("log") / "log.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = infer_schema([str(path)], clock=lambda: NOW)
    assert found.schema.time is not None
    assert (found.schema.time.column, found.rejected) == ("event_time", len(bad))
    rejects = [reject for block in parse_log(str(path), found.schema.bounded(NOW)) for reject in block.rejects]
    assert [reject.line - 1 for reject in rejects] == places


CELLS = {
    "words": lambda draw: draw.choice(("red", "blue sky", "", "NA", "-")),
    "numbers": lambda draw: draw.choice(("1", "007", "-3", "9" * 20, "1.5", "1e400", "NaN", "1,000", " 7", "x")),
    "ids": lambda draw: str(draw.randrange(10**19, 10**20)),
    "days": lambda draw: draw.choice(("2026-03-01", "01.03.2026", "9999-12-31", "unknown", "")),
    "hours": lambda draw: draw.choice(("2026030100", "26030123", "2026")),
    "counts": lambda draw: str(draw.choice((0, 315_532_800, 1_772_409_605, 4_000_000_000))),
    "answers": lambda draw: draw.choice(("yes", "no")),
    "lists": lambda draw: draw.choice(("a|b", "1;2", "x", "")),
    "quotes": lambda draw: draw.choice(('"', 'a"b', "\\", 'x\\"', "a,b", "\t")),
}  # fmt: skip


@pytest.mark.slow
@given(
    kinds=st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=5),
    odd=st.sampled_from([0.0, 0.004, 0.02, 0.2]),
    log_format=st.sampled_from(["csv", "tsv", "jsonl", "raw"]),
    options=st.sampled_from([TimeOptions(), TimeOptions(by_row_order=True)]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=scaled(150))
def test_what_is_inferred_from_any_log_is_what_an_import_does(
    tmp_path_factory: pytest.TempPathFactory,
    kinds: list[str],
    odd: float,
    log_format: str,
    options: TimeOptions,
    seed: int,
) -> None:
    draw = Random(seed)
    every = sorted(CELLS)
    rows = [
        [CELLS[draw.choice(every) if draw.random() < odd else kind](draw) for kind in kinds]
        for _ in range(draw.choice((5, 300)))
    ]
    names = [f"{kind}_{at}_time" if draw.random() < 0.3 else f"{kind}_{at}" for at, kind in enumerate(kinds)]
    path = tmp_path_factory.mktemp("log") / "log"
    path.write_text(_written(names, rows, log_format), encoding="utf-8")
    try:
        found = infer_schema([str(path)], time=options, clock=lambda: NOW)
    except HeadraceError:
        return
    blocks = list(parse_log(str(path), found.schema.bounded(NOW)))
    rejects = [reject for block in blocks for reject in block.rejects]
    assert (sum(block.table.num_rows for block in blocks) + len(rejects), len(rejects)) == (found.rows, found.rejected)
    # Of other columns than the event time an import rejects few values; the event time may lack one in a hundred rows.
    assert sum(bool(reject.column) for reject in rejects) <= max(0.035 * found.rows, 0)


def _written(names: list[str], rows: list[list[str]], log_format: str) -> str:
    if log_format == "jsonl":
        return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows)
    if log_format == "raw":
        return "\n".join(map(",".join, [names, *rows])) + "\n"
    buffer = io.StringIO()
    csv.writer(buffer, delimiter="," if log_format == "csv" else "\t", lineterminator="\n").writerows([names, *rows])
    return buffer.getvalue()
