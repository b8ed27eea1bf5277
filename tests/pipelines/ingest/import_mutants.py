"""Reads damaged logs, Parquet files and schema files; runs as a child, since a reader may crash.

``python -m tests.pipelines.ingest.import_mutants KIND FIRST COUNT`` reads the mutants of ``COUNT`` seeds under a limit of memory
and prints one JSON line: how many were read, how many refused, and every mutant that did what none may.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.inference.event_time import TimeOptions
from pipelines.inference.infer import infer_schema
from pipelines.inference.schema_file import schema_text
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.blocks import LineBlock, LongLine, read_blocks
from pipelines.parsing.json_lines import slow_block
from pipelines.parsing.log import parse_log
from pipelines.parsing.openings import syntax_of
from pipelines.parsing.quoted_records import whole_records
from pipelines.parsing.typed_rows import ParsedBlock
from tests.support.mutations import mutated
from transforms.errors import HeadraceError
from warehouse import Warehouse, WarehouseConfig, register_table
from warehouse.storage.storage import Storage
from warehouse.tables.parquet import read_fragments, read_schema
from warehouse.tables.raw import read_raw
from warehouse.tables.table import Fragment

#: More than reading a small file may need beyond what the process holds after its imports.
MEMORY_BYTES = 1 << 30
NOW = datetime(2026, 11, 1, tzinfo=UTC)
TIME_OPTIONS = (TimeOptions(), TimeOptions(by_row_order=True), TimeOptions(is_none=True))

COLUMNS: list[dict[str, Any]] = [
    {"name": "i", "type": "int64", "required": True},
    {"name": "s", "type": "string"},
    {"name": "f", "type": "float32"},
    {"name": "d", "type": "float64"},
    {"name": "b", "type": "bool"},
    {"name": "l", "type": "float32", "separator": "|"},
    {"name": "m", "type": "string", "separator": ";"},
    {"name": "t", "type": "timestamp"},
    {"name": "u", "type": "timestamp", "unit": "ms"},
]
#: The same columns as a schema may read them otherwise.
WILD: dict[str, dict[str, Any]] = {
    "i": {"thousands": "'"},
    "s": {"trim": True},
    "f": {"decimal": ","},
    "d": {"non_finite": True, "thousands": "_"},
    "l": {"trim": True},
    "t": {"format": ["%Y-%m-%d %H:%M", "%d/%b/%Y:%H:%M:%S %z", "%Y%m%d"], "zone": "Europe/Berlin"},
    "u": {"unit": "ns"},
}
WILD_WORDS = {
    "i": ["1", "-7'000", "1'000'000", "007"],
    "f": ["1,5", "-0", "0,1e2", ""],
    "d": ["inf", "1_000.5", "NaN", "1e400", ""],
    "s": [" red ", "", "\u00a0a", '""'],
    "t": ["2026-01-01 7:50", "01/Mar/2026:02:30:00 +0100", "20260329", "2026-03-29 02:30"],
    "u": ["1767225600000000001", "-1", ""],
}
WORDS = {
    "i": ["1", "-7", "0", "9223372036854775807", "007", "-0"],
    "s": ["", "red", "grün", "n/a", "a b", "-"],
    "f": ["1.5", "0.1", "-0", "3.4028235e38", "1e-46", "16777217", ""],
    "d": ["2.5", "1e300", "-0.0", "4.9e-324", "0.1", ""],
    "b": ["true", "0", "1", "FALSE", ""],
    "l": ["1|2", "0.1", "", "-0|1e5"],
    "m": ["a;b", ";", "", "x"],
    "t": ["2026-01-01T00:00:00Z", "2026-01-01", "2026-01-01 02:00:00.25+02:00"],
    "u": ["0", "1767225600000", ""],
}
ESCAPED_WORDS = ['a\\"b', "\\\\", "\\,", "x\\\ty", "\\N", "C:\\dir", "\\\n", "é\\\r\n", ""]
TEXT_TOKENS = [
    b"\\", b'\\"', b"\\\n", b"\\,", b"\\\t", b"\\\r\n", b"\\\\", b'\\""',
    b'"', b'""', b'"a"b', b'a"b', b",", b"\t", b"\n", b"\r", b"\r\n", b"\0", b"\xef\xbb\xbf", b"\xff", b"\xed\xa0\x80",
    b"-0", b"+1", b"0x1F", b" 1", b"1_0", b"nan", b"-inf", b"1e400", b"9" * 400, b"0000-01-01", b"9999-12-31T23:59:59-12",
    b"0001-01-01T00:00:00+14:00", b"1" * 40, b"\xe2\x80\xa8", b"|", b";", b"n/a", b"\xc3", b"." , b"e", b"0.1000000014901161",
]  # fmt: skip
JSON_TOKENS = [
    *TEXT_TOKENS, b"null", b"null\n", b"\nnull\n", b"true", b"{}", b"[]", b"{", b"}", b"[", b"]", b":", b"\\", b"\\u0000",
    b"\\ud800", b"\\udc00", b"\\ud83d\\ude00", b"NaN", b"Infinity", b"[" * 120, b"[" * 90 + b"]" * 90, b'"i":1,', b'"x":1,',
    b'{"i":1}', b"}{", b'{"\\u0069":2}', b"/**/", b"//", b"1e999", b"1.0", b"\x7f", b'"s":"\\n",', b'"f":16777217,',
]  # fmt: skip
JSON_VALUES = [
    "NaN", "-NaN", "Inf", "-Inf", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 400, "01", "1.", ".5", "+1", "-", "1e",
    "0x1", "True", "nul", "null", "'a'", '"\\u0000"', '"\\ud800"', '"\\ud83d\\ude00"', '"\\x41"', '"a\\/b"', "{}", "[1]",
    "1_0", "1e-400", "-0", "-0.0", "-0e5", "1E+2", "true", '"NaN"', '"Inf,"', '"\t"', "1.0", "1e2", '"0x1F"', "undefined",
]  # fmt: skip
SCHEMA_TOKENS = [
    b"null", b"{}", b"[]", b'"', b"\\ud800", b"\\u0000", b"NaN", b"1e999", b"9" * 5000, b"[" * 3000, b'{"a":' * 3000,
    b"true", b"-1", b",", b'"string"', b'"int64"', b'"timestamp"', b'"time"', b'"csv"', b'"jsonl"', b'"iso8601"', b'""',
    b'"format": ["%Y", "%H"],', b'"zone": "UTC",', b'"encoding": "utf-16",', b'"fixed": "2026-01-01"', b'"list": true,',
    b'"separator": "\\u00e9"', b'"separator": "|",', b'"unit": "us",', b"\xff", b"\xef\xbb\xbf", b'"null": ["1", "\\udfff"],',
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Seen:
    """What one mutant came to: ``read`` or ``refused``, or, where it did what none may, the problem."""

    outcome: str
    problem: str = ""


def log_schema(kind: str, header: bool = False) -> LogSchema:
    wild, escaped, log_format = kind.startswith("wild_"), kind.startswith("escaped_"), kind.rpartition("_")[2]
    columns = [{**column, **(WILD.get(column["name"], {}) if wild else {})} for column in COLUMNS]
    time = {"column": "t"} | ({"from": "2000-01-01", "until": "2030-01-01"} if wild else {"unit": "iso8601"})
    document = {"format": log_format, "header": header, "null": ["", "n/a"], "columns": columns, "time": time}
    document |= {"escape": "\\", "trailing_delimiter": True} if escaped else {}
    return LogSchema.from_document(document | ({"delimiter": ";"} if kind == "wild_csv" else {}))


def sound_log(kind: str, random: Random) -> bytes:
    lines = []
    words = WORDS | (WILD_WORDS if kind.startswith("wild_") else {})
    words |= {"s": ESCAPED_WORDS} if kind.startswith("escaped_") else {}
    delimiter = ";" if kind == "wild_csv" else ","
    trailing = random.choice((0.0, 0.5, 1.0)) if kind.startswith("escaped_") else 0.0
    for _ in range(random.choice((1, 2, 4, 8))):
        row = {name: random.choice(choices) for name, choices in words.items()}
        if kind.endswith("jsonl"):
            lines.append(_json_line(row, random))
        elif kind.endswith("tsv"):
            lines.append("\t".join(row.values()) + "\t" * (random.random() < trailing))
        else:
            broken = {"s": random.choice(("", "\n", "\r\n"))}
            lines.append(delimiter.join(f'"{broken.get(name, "")}{cell}"' if random.random() < 0.3 else cell
                                        for name, cell in row.items()) + "," * (random.random() < trailing))  # fmt: skip
    return ("\n".join(lines) + random.choice(("\n", "", "\r\n"))).encode()


def _json_line(row: dict[str, str], random: Random) -> str:
    quoted = {"s", "l", "m", "t"}
    cells = {name: json.dumps(cell, ensure_ascii=False) if name in quoted else cell for name, cell in row.items()}
    cells["b"] = {"1": "true", "0": "false", "FALSE": "false"}.get(cells["b"], cells["b"])
    cells = {name: json.dumps(cell) if cell.strip("-0123456789.e") else cell for name, cell in cells.items()} | {
        name: cells[name] for name in quoted | {"b"}
    }
    cells["i"] = cells["i"].replace("007", "7")
    cells["x"] = random.choice(("1", "{}", '[{"i": 2}]', '"y"'))
    names = [name for name in cells if cells[name] and random.random() < 0.95]
    if random.random() < 0.1:
        cells[random.choice(names)] = random.choice(JSON_VALUES)
    random.shuffle(names)
    return "{" + ", ".join(f'"{name}": {cells[name]}' for name in names) + "}"


def read_log(kind: str, seed: int, folder: Path) -> Seen:
    """A damaged log: every line must come to what it comes to alone, however blocks are cut."""
    random = Random(f"{kind} {seed}")
    content = mutated(sound_log(kind, random), random, JSON_TOKENS if kind.endswith("jsonl") else TEXT_TOKENS)
    path = folder / "log"
    path.write_bytes(content)
    longest = random.choice((1 << 20, 1 << 20, 200))
    schema = log_schema(kind)
    whole = [_described(block) for block in parse_log(str(path), schema, longest_line_bytes=longest)]
    cut = [
        _described(block)
        for block in parse_log(
            str(path),
            schema,
            block_bytes=random.randint(len(content) // 4 + 1, len(content) + 1),
            longest_line_bytes=longest,
        )
    ]
    content = line_feeds(content)
    alone = list(_alone(content, schema, folder / "line", longest))
    if not _joined(whole) == _joined(cut) == _joined(alone):
        return Seen("read", f"depends on neighbours: {content!r}")
    if schema.format == "jsonl":
        slow = slow_block(LineBlock(1, content.removeprefix(b"\xef\xbb\xbf")), schema)
        if longest > len(content) and _joined([_described(slow)]) != _joined(whole):
            return Seen("read", f"the two readers differ: {content!r}")
    if schema.format != "jsonl":
        path.write_bytes(content)
        with contextlib.suppress(HeadraceError):
            list(parse_log(str(path), log_schema(kind, header=True)))
    return Seen("read" if any(rows for rows, _ in whole) else "refused")


Described = tuple[list[str], list[tuple[object, ...]]]


def _described(block: ParsedBlock) -> Described:
    block.table.validate(full=True)
    rows = [repr(row) for row in block.table.to_pylist()]
    return rows, [(one.line, one.what, one.column, one.value, one.raw) for one in block.rejects]


def _joined(blocks: list[Described]) -> Described:
    return [row for rows, _ in blocks for row in rows], [reject for _, rejects in blocks for reject in rejects]


_ALONE: dict[tuple[str, bytes, int], Described] = {}  # of one kind a process


def _alone(content: bytes, schema: LogSchema, path: Path, longest: int) -> Iterator[Described]:
    for number, line in _lines(content, schema, longest):
        key = (schema.format, b"\n" * (number > 1) + line, longest)
        if key not in _ALONE:
            path.write_bytes(
                key[1]
            )  # after a blank line, where it was not first: only a file's first line may have a BOM
            _ALONE[key] = _joined([_described(one) for one in parse_log(str(path), schema, longest_line_bytes=longest)])
        rows, rejects = _ALONE[key]
        yield rows, [(number, *reject[1:]) for reject in rejects]


def line_feeds(content: bytes) -> bytes:
    """The content as a reader takes it whose first line end is a carriage return alone."""
    first = content.find(b"\r")
    if first < 0 or b"\n" in content[: first + 2]:
        return content
    at_end = first + 1 == len(content)
    return content if at_end else content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _lines(content: bytes, schema: LogSchema, longest: int) -> Iterator[tuple[int, bytes]]:
    """Each line with its number; of CSV, each record."""
    if not (schema.quoted or schema.escape):
        yield from enumerate(content.split(b"\n"), start=1)
        return
    mark = b"\xef\xbb\xbf"
    marked = content.startswith(mark)
    path_blocks = read_log_blocks(content.removeprefix(mark), longest)
    for block in whole_records(path_blocks, syntax_of(schema), longest):
        if isinstance(block, LongLine):
            yield block.number, content.split(b"\n")[block.number - 1].removeprefix(mark)
            continue
        for number, record in zip(block.numbers.tolist(), block.each(), strict=True):
            yield number, mark * (marked and number == 1) + record


def read_log_blocks(content: bytes, longest: int) -> Iterator[LineBlock | LongLine]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(content)
        yield from read_blocks(str(path), longest_line_bytes=longest)


def read_schema_file(seed: int, folder: Path) -> Seen:
    """A damaged schema file, and a log read by what it says."""
    random = Random(f"schema {seed}")
    columns = [dict(column) for column in random.sample(COLUMNS[:7] + COLUMNS[8:], 3)] + [
        {"name": "t", "type": "timestamp"}
    ]
    for column in columns if random.random() < 0.5 else []:
        column |= {key: value for key, value in WILD.get(column["name"], {}).items() if random.random() < 0.5}
    time = random.choice(TIME_ENTRIES)
    columns = columns if "column" in time else columns[:-1]
    document = {"format": random.choice(("tsv", "csv", "jsonl")), "header": random.random() < 0.3, "null": ["", "-"],
                "encoding": random.choice(("utf-8", "utf-16", "gb18030", "cp1252")),
                "columns": columns, "time": dict(time), "partition_by": "day"}  # fmt: skip
    if random.random() < 0.7:
        _replace_a_value(document, random)
    content = json.dumps(document).encode()
    path, log = folder / "schema.json", folder / "log"
    path.write_bytes(mutated(content, random, SCHEMA_TOKENS, most=2) if random.random() < 0.5 else content)
    try:
        schema = LogSchema.from_file(str(path))
    except HeadraceError:
        return Seen("refused")
    schema.digest()
    if LogSchema.from_document(json.loads(json.dumps(schema.to_document()))) != schema:
        return Seen("read", f"written otherwise than read: {document}")
    log.write_bytes(sound_log(schema.format, random))
    with contextlib.suppress(HeadraceError):
        list(parse_log(str(log), schema))
    return Seen("read")


TIME_ENTRIES: list[dict[str, Any]] = [
    {"column": "t", "unit": "ms"}, {"column": "t", "format": "%Y-%m-%d", "zone": "Asia/Tokyo", "from": "1990-01-01"},
    {"fixed": "2026-01-01"}, {"file_name": "log%Y"}, {"row_order": {"start": "2026-01-01", "rows_per_hour": 3}},
]  # fmt: skip
SCHEMA_VALUES = [
    "%Y", "%", "%Q", "%s", "%Y-%m-%d" * 30, "9999-12-31", "2026-01-01T00:00Z", "Europe/Berlin", "../x", 10**9, "utf-16-be",
    "rot13", "ns", ["%Y", "%y"], ["a", "b"], "a.b", ".", '"', ";", "x",
    None, True, 0, -1, 1.5, 10**400, "", "t", "i", "string", "timestamp", "ms", "iso8601", "csv", "|", ",", "\t", "\n", "\0",
    "\ud800", "é" * 500, [], [""], ["", "1", "\0"], [None], ["\udfff"], {}, {"column": "t"}, [[]], "float32", "day", "n/a",
]  # fmt: skip


def _replace_a_value(document: dict[str, Any], random: Random) -> None:
    """Put another value, or another key's, in some place of the document; or leave an entry out."""
    place: Any = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = random.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and random.random() < 0.8:
            place = place[key]
            continue
        if random.random() < 0.2:
            del place[key]
        else:
            place[key] = random.choice(SCHEMA_VALUES)
        return


def parquet_seeds() -> list[bytes]:
    rows = 120
    table = pa.table(
        {
            "i": pa.array(range(rows)),
            "f": pa.array(np.arange(rows, dtype=np.float32)),
            "s": [f"x{row % 7}" for row in range(rows)],
            "l": [[row, row + 1] if row % 3 else [] for row in range(rows)],
            "b": [row % 2 == 0 if row % 5 else None for row in range(rows)],
            "t": pa.array(range(rows), pa.timestamp("us", "UTC")),
            "c": pa.array([str(row % 9) for row in range(rows)]).dictionary_encode(),
            "m": [["a"] * (row % 3) for row in range(rows)],
        }
    )
    seeds = []
    for compression in ("none", "snappy", "zstd", "gzip", "lz4"):
        for dictionary in (True, False):
            for version in ("1.0", "2.0"):
                sink = io.BytesIO()
                pq.write_table(table, sink, compression=compression, use_dictionary=dictionary,
                               data_page_version=version, row_group_size=70)  # fmt: skip
                seeds.append(sink.getvalue())
    return seeds


@dataclass(slots=True)
class ParquetScene:
    """Sound files, what was registered of them, and a warehouse of which every tenth mutant becomes a table."""

    folder: Path
    seeds: list[bytes]
    fragments: list[tuple[Fragment, ...]]
    warehouse: Warehouse

    @classmethod
    def build(cls, folder: Path) -> ParquetScene:
        seeds, fragments = parquet_seeds(), []
        for content in seeds:
            (folder / "sound.parquet").write_bytes(content)
            fragments.append(read_fragments(Storage(str(folder)), str(folder / "file.parquet"), 1000)
                             if _put(folder / "file.parquet", content) else ())  # fmt: skip
        return cls(folder, seeds, fragments, Warehouse.open(WarehouseConfig(str(folder / "home"))))

    def read(self, seed: int) -> Seen:
        """Damage a file before it is registered, and after: it is refused, or what it holds is what was registered."""
        random = Random(f"parquet {seed}")
        which = random.randrange(len(self.seeds))
        content = _damaged_parquet(self.seeds[which], random)
        path = str(self.folder / "file.parquet")
        _put(Path(path), content)
        storage = Storage(str(self.folder))
        outcome = "refused"
        for fragment in self.fragments[which]:
            names = sorted(fragment.digests)
            try:
                read_raw(storage, fragment, names, coded=names)
                outcome = "read"
            except HeadraceError:
                pass
        try:
            columns = read_schema(storage, path)
            for fragment in read_fragments(storage, path, 1000):
                read_raw(storage, fragment, [column.name for column in columns])
            if seed % 10 == 0:
                root = self.folder / f"t{seed}"
                _put(root / "date=2026-01-01" / "a.parquet", content)
                register_table(self.warehouse, root.name, str(root))
        except HeadraceError:
            return Seen("refused")
        return Seen(outcome)


def _put(path: Path, content: bytes) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return True


def _damaged_parquet(content: bytes, random: Random) -> bytes:
    """Half of the mutants are damaged in the footer only, where a reader is steered; its length stays right."""
    if random.random() < 0.5:
        return mutated(content, random, most=3)
    size = int.from_bytes(content[-8:-4], "little")
    body, footer = content[: -8 - size], content[-8 - size : -8]
    footer = mutated(footer, random, most=3)
    return body + footer + len(footer).to_bytes(4, "little") + content[-4:]


def infer_log(seed: int, folder: Path) -> Seen:
    """Infer the schema of a damaged log: an import by it rejects what was said, and few rows unless more was said."""
    random = Random(f"infer {seed}")
    kind = random.choice(("csv", "tsv", "jsonl", "wild_csv", "wild_jsonl", "escaped_csv", "escaped_tsv"))
    content = b"".join(sound_log(kind, random) for _ in range(random.choice((1, 4, 30))))
    if not kind.endswith("jsonl") and random.random() < 0.5:
        delimiter = {"tsv": "\t", "wild_csv": ";"}.get(kind.removeprefix("escaped_"), ",")
        content = (
            random.choice((b"", b"# exported\n", b"\n\n", b"sep=,\n"))
            + delimiter.join(WORDS).encode()
            + b"\n"
            + content
        )
    if random.random() < 0.8:
        content = mutated(content, random, JSON_TOKENS if kind.endswith("jsonl") else TEXT_TOKENS)
    path = folder / "log"
    path.write_bytes(random.choice((bytes, gzip.compress))(content))
    try:
        found = infer_schema([str(path)], time=random.choice(TIME_OPTIONS), clock=lambda: NOW)
    except HeadraceError:
        return Seen("refused")
    (folder / "schema.json").write_text(schema_text(found), encoding="utf-8")
    if LogSchema.from_file(str(folder / "schema.json")) != found.schema:
        return Seen("read", f"written otherwise than inferred: {content!r}")
    blocks = list(parse_log(str(path), found.schema.bounded(NOW)))
    rows, rejected = sum(block.table.num_rows for block in blocks), sum(len(block.rejects) for block in blocks)
    if (rows + rejected, rejected) != (found.rows, found.rejected):
        return Seen(
            "read", f"{rows} rows and {rejected} rejects instead of {found.rows} with {found.rejected}: {content!r}"
        )
    values = sum(
        bool(reject.column) and not reject.what.startswith("not ") for block in blocks for reject in block.rejects
    )
    if values > 2 + 0.035 * found.rows:  # a few values are bad as texts too
        return Seen("read", f"{values} of {found.rows} rows are rejected for a value: {content!r}")
    return Seen("read")


def reader_of(kind: str, folder: Path) -> Callable[[int], Seen]:
    if kind == "infer":
        return lambda seed: infer_log(seed, folder)
    if kind == "parquet":
        return ParquetScene.build(folder).read
    if kind == "schema":
        return lambda seed: read_schema_file(seed, folder)
    return lambda seed: read_log(kind, seed, folder)


def main(kind: str, first: int, count: int) -> None:
    outcomes = {"read": 0, "refused": 0}
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        read = reader_of(kind, Path(name))
        _limit_memory()
        for seed in range(first, first + count):
            print(seed, flush=True)
            try:
                seen = read(seed)
                outcomes[seen.outcome] += 1
                problems += [f"seed {seed}: {seen.problem}"] if seen.problem else []
            except Exception:
                problems.append(f"seed {seed}: {traceback.format_exc()}")
    print(json.dumps({"outcomes": outcomes, "problems": problems}))


def _limit_memory() -> None:
    status = Path("/proc/self/status").read_text()
    held_kib = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmData")))
    limit = held_kib * 1024 + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
