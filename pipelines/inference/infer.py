"""Infer a log's schema from samples of its files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.errors import UnknownFormat
from pipelines.inference.dialect import Dialect, detect_dialect, is_json_lines, split_rows
from pipelines.inference.json_values import guess_json_columns, json_rows
from pipelines.inference.sample import Sample, read_sample
from pipelines.inference.text_encoding import decoded_lines, detect_encoding
from pipelines.inference.values import ColumnGuess, guess_column
from pipelines.log_schemas.columns import LogColumn, LogTime, MadeUpTime
from pipelines.log_schemas.schema import LogSchema
from pipelines.log_schemas.time_formats import ISO_8601, read_times, time_pattern
from pipelines.outputs.partitions import suited_partitions
from pipelines.parsing.sources import expand_files
from transforms.errors import InputError
from transforms.types import DType

SAMPLE_ROWS = 20_000
_MOST_FILES = 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_IN_NAME = (("%Y-%m-%d", r"\d{4}-[01]\d-[0-3]\d"), ("%Y%m%d", r"(?<!\d)20[0-4]\d[01]\d[0-3]\d(?!\d)"),
                ("%Y_%m_%d", r"\d{4}_[01]\d_[0-3]\d"))  # fmt: skip
_ROWS_PER_HOUR = 100_000


@dataclass(frozen=True)
class Inferred:
    """An inferred schema.

    Attributes:
        schema: the schema, ready for an import.
        columns: a guess for each column, in order.
        files: the sampled files.
        rows: the number of sampled rows.
        about_rows: the estimated rows of all files; None if unknown.
        labels: columns that may be a model's label.
        unsure: sentences about uncertain choices.
    """

    schema: LogSchema
    columns: tuple[ColumnGuess, ...]
    files: tuple[str, ...]
    rows: int
    about_rows: int | None
    labels: tuple[str, ...]
    unsure: tuple[str, ...]


def infer_schema(patterns: Sequence[str], *, rows: int = SAMPLE_ROWS) -> Inferred:
    """Infer the schema of these files from at most ``rows`` rows of the first 20 files.

    Raises :class:`NoLogFiles`, :class:`UnknownFormat` for files that are not text logs, and
    :class:`~transforms.errors.StorageError`.
    """
    if rows < 1:
        raise InputError("the number of rows must be positive", where="--rows", value=rows,
                         next_step="give --rows such as 10000")  # fmt: skip
    paths = expand_files(patterns)
    samples = [read_sample(path) for path in paths[:_MOST_FILES]]
    filled = [sample for sample in samples if sample.head.strip()]
    if not filled:
        raise UnknownFormat("a log must hold rows, got empty files", where=", ".join(paths[:3]),
                            next_step="check the program that writes them")  # fmt: skip
    for sample in filled:
        _refuse_binary(sample)
    encoding, guessed = detect_encoding([part for sample in filled for part in (sample.head, *sample.pieces)])
    first = decoded_lines(filled[0].head, encoding, first=True)
    unsure = _encoding_notes(encoding, guessed=guessed)
    if is_json_lines(first, filled[0].path):
        return _inferred_json(filled, paths, encoding, rows, unsure)
    return _inferred_cells(filled, paths, encoding, rows, unsure, first)


def _encoding_notes(encoding: str, *, guessed: bool) -> tuple[str, ...]:
    if not guessed:
        return ()
    return (f"the text is not UTF-8 and is read as {encoding}: check some words of it",)


def _refuse_binary(sample: Sample) -> None:
    head = sample.head
    if head.startswith(b"PAR1"):
        raise UnknownFormat("a log must be text, got a Parquet file", where=sample.path,
                            next_step="import it by its time column: headrace table import NAME FILE --time-column COLUMN; "
                            "or add its rows to a table: headrace table append NAME FILE")  # fmt: skip
    known = {b"\x1f\x8b": "gzip: its name must end in .gz", b"PK\x03\x04": "zip: unpack it", b"BZh": "bzip2: unpack it",
             b"\xfd7zXZ": "xz: unpack it", b"\x28\xb5\x2f\xfd": "zstd: unpack it", b"Obj\x01": "Avro: convert it to JSON lines",
             b"ORC": "ORC: convert it to Parquet"}  # fmt: skip
    for magic, what in known.items():
        if head.startswith(magic):
            raise UnknownFormat("a log must be text", where=sample.path, value=what.partition(":")[0],
                                allowed="TSV, CSV or JSON lines; gzip with the suffix .gz",
                                next_step=what.partition(": ")[2])  # fmt: skip
    control = sum(head[: 1 << 16].count(bytes([code])) for code in range(9) if code not in (0, 1, 2))
    if control * 20 > len(head[: 1 << 16]):
        raise UnknownFormat("a log must be text, got a binary file", where=sample.path, value=head[:16],
                            allowed="TSV, CSV or JSON lines", next_step="convert it to text or Parquet")  # fmt: skip


def _texts(samples: Sequence[Sample], encoding: str) -> Iterator[tuple[str, bool]]:
    """The decoded parts of the samples, beginnings of files first, and whether each is a beginning."""
    for sample in samples:
        yield decoded_lines(sample.head, encoding, first=True), True
    for sample in samples:
        for piece in sample.pieces:
            yield decoded_lines(piece, encoding, first=False), False


def _inferred_json(
    samples: Sequence[Sample], paths: Sequence[str], encoding: str, most_rows: int, unsure: tuple[str, ...]
) -> Inferred:
    found = []
    share = _share(samples, most_rows)
    for text, _ in _texts(samples, encoding):
        found += json_rows(text.splitlines()[:share])
    found = found[:most_rows]
    guesses = guess_json_columns(found)
    if not guesses:
        raise UnknownFormat("a log must have a column, got objects without keys", where=samples[0].path,
                            next_step="name a file with rows")  # fmt: skip
    base = LogSchema("jsonl", (), None, encoding=encoding)
    return _finish(base, guesses, samples, paths, len(found), unsure)


def _share(samples: Sequence[Sample], most_rows: int) -> int:
    """The number of rows per part, equal for all parts."""
    parts = sum(1 + len(sample.pieces) for sample in samples)
    return max(most_rows // parts, 1)


def _inferred_cells(
    samples: Sequence[Sample], paths: Sequence[str], encoding: str, most_rows: int, unsure: tuple[str, ...], first: str
) -> Inferred:
    dialect = detect_dialect(first)
    found = _cell_rows(samples, encoding, dialect, most_rows)
    if not found:
        raise UnknownFormat("a log must hold rows, got a header alone", where=samples[0].path,
                            next_step="name a file with rows")  # fmt: skip
    width = len(found[0])
    names = dialect.header or tuple(f"column_{at + 1}" for at in range(width))
    guesses = [guess_column(name, [row[at] for row in found]) for at, name in enumerate(names) if name]
    base = LogSchema(
        dialect.format, (), None, header=dialect.header is not None, encoding=encoding,
        delimiter="" if dialect.delimiter in (",", "\t") else dialect.delimiter,
        quote=True if dialect.format == "tsv" and dialect.quoted else None,
    )  # fmt: skip
    notes = dialect.unsure
    if dialect.header is None:
        notes += ("the log has no header: rename column_1 and the others",)
    return _finish(base, guesses, samples, paths, len(found), (*unsure, *notes))


def _cell_rows(samples: Sequence[Sample], encoding: str, dialect: Dialect, most_rows: int) -> list[list[str]]:
    share, found = _share(samples, most_rows), list[list[str]]()
    width = 0 if dialect.header is None else len(dialect.header)
    for text, is_start in _texts(samples, encoding):
        rows = split_rows(text, dialect.delimiter or ",", quoted=dialect.quoted)
        rows = rows[1:] if is_start and dialect.header is not None else rows
        if not width and rows:
            lengths = [len(row) for row in rows]
            width = max(set(lengths), key=lengths.count)
        found += [row for row in rows if len(row) == width][:share]
    return found[:most_rows]


def _finish(
    base: LogSchema,
    guesses: Sequence[ColumnGuess],
    samples: Sequence[Sample],
    paths: Sequence[str],
    rows: int,
    unsure: tuple[str, ...],
) -> Inferred:
    """Choose the event time and build the result."""
    best = max(guesses, key=lambda guess: guess.time_rank)
    nulls = sorted({spelling for guess in guesses for spelling in guess.nulls})
    rivals = [guess.column.name for guess in guesses if guess.time_rank and guess is not best]
    if best.time_rank:
        time = LogTime(best.column.name, best.column.unit)
        guesses = [replace(one, column=replace(one.column, required=True)) if one is best else one for one in guesses]
        if rivals:
            unsure += (f"the event time may be another column: {', '.join(rivals[:5])}",)
        if best.missing_share:
            unsure += (f"{best.missing_share:.1%} of the event times are missing: those rows are rejected",)
    else:
        time, note = _made_up_time(paths, {guess.column.name for guess in guesses})
        unsure += (note,)
    schema = replace(base, columns=tuple(guess.column for guess in guesses), time=time, null=("", *nulls))
    if best.time_rank:
        about = _about_rows(samples, paths, rows)
        schema = replace(schema, partition_by=suited_partitions(_span(best), rows if about is None else about))
    if nulls:
        unsure += (f"a missing value may be spelled {', '.join(map(repr, nulls))}, in every column",)
    labels = tuple(guess.column.name for guess in guesses if guess.may_be_label)
    return Inferred(schema, tuple(guesses), tuple(paths), rows, _about_rows(samples, paths, rows), labels, unsure)


def _made_up_time(paths: Sequence[str], names: set[str]) -> tuple[LogTime, str]:
    """The time for a log without times: the day in the files' names, or the order of rows."""
    name = next(
        one for one in ("time", "event_time", *(f"time_{at}" for at in range(len(names) + 1))) if one not in names
    )
    for form, regex in _DAY_IN_NAME:
        if all(len(re.findall(regex, Path(path).name)) == 1 for path in paths):
            found = [re.findall(regex, Path(path).name)[0] for path in paths]
            if read_times(_strings(found), (time_pattern(form),)).read.all():
                made_up = MadeUpTime(file_name=f"*{form}*")
                return LogTime(name, None, made_up=made_up), "no column holds a time: it is the day in the file's name"
    made_up = MadeUpTime(start=datetime(2000, 1, 1, tzinfo=UTC), rows_per_hour=_ROWS_PER_HOUR)
    return LogTime(name, None, made_up=made_up), (
        f"no column holds a time: it is made up from the order of rows, {_ROWS_PER_HOUR:,} per hour from 2000-01-01"
    )


def _strings(texts: Sequence[str]) -> object:
    import pyarrow as pa

    return pa.array(texts, pa.string())


def _span(best: ColumnGuess) -> timedelta:
    """The span of the event times."""
    moments = [moment for text in best.times if (moment := _moment(text, best.column)) is not None]
    return max(moments) - min(moments) if moments else timedelta(0)


def _moment(text: str, column: LogColumn) -> datetime | None:
    if column.dtype is not DType.TIMESTAMP:
        return None
    if column.unit in (None, "iso8601"):
        patterns = tuple(map(time_pattern, column.formats)) or ISO_8601
        times = read_times(_strings([text]), patterns)
        return _EPOCH + timedelta(microseconds=int(times.microseconds[0])) if times.read[0] else None
    scale = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[str(column.unit)]
    return _EPOCH + timedelta(seconds=float(text) / scale)


def _about_rows(samples: Sequence[Sample], paths: Sequence[str], rows: int) -> int | None:
    """The estimated rows of all files, from the first bytes of each; None if all were read, or any is compressed."""
    if len(samples) < len(paths) or any(sample.packed and not sample.is_whole for sample in samples):
        return None
    if all(sample.is_whole for sample in samples):
        return None
    return int(sum(sample.head.count(b"\n") * max(sample.size_bytes / max(len(sample.head), 1), 1.0)
                   if not sample.is_whole else sample.head.count(b"\n") for sample in samples))  # fmt: skip
