"""Infer a log's schema from samples of its files, by the rules with which an import parses them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pipelines.errors import UnknownFormat
from pipelines.inference.dialect import Dialect, detect_dialect, is_json_lines
from pipelines.inference.event_time import EventTime, TimeOptions, choose_event_time
from pipelines.inference.json_values import guess_json_columns, json_rows
from pipelines.inference.sample import Sample, read_sample
from pipelines.inference.sampled_rows import SampledPart, common_names, sample_parts, text_columns
from pipelines.inference.text_encoding import decoded_lines, detect_encoding, utf8_lines
from pipelines.inference.trial import Trial, try_schema
from pipelines.inference.values import ColumnGuess, guess_column
from pipelines.log_schemas.columns import LogColumn, plausible_range_us
from pipelines.log_schemas.schema import LogSchema
from pipelines.outputs.partitions import many_partitions_warning, suited_partitions
from pipelines.parsing.sources import expand_files
from transforms.errors import InputError
from transforms.types import DType

SAMPLE_ROWS = 20_000
_BOM = b"\xef\xbb\xbf"
_MOST_FILES = 20
_NAMES_SHOWN = 5
#: An import refuses more than 5 % by default.
_FEW_REJECTED_SHARE = 0.04


@dataclass(frozen=True)
class Inferred:
    """An inferred schema.

    Attributes:
        schema: the schema, ready for an import.
        columns: a guess for each column, in order.
        files: the sampled files.
        rows: the number of sampled rows.
        rejected: how many of them an import rejects.
        reject: one of them, as a sentence; empty if there is none.
        about_rows: the estimated rows of all files; None if unknown.
        labels: columns that may be a model's label.
        unsure: sentences about uncertain choices.
    """

    schema: LogSchema
    columns: tuple[ColumnGuess, ...]
    files: tuple[str, ...]
    rows: int
    rejected: int
    reject: str
    about_rows: int | None
    labels: tuple[str, ...]
    unsure: tuple[str, ...]

    @property
    def shown_labels(self) -> tuple[str, ...]:
        """The expressions of the first candidates for a label."""
        return tuple(guess.label for guess in _candidates(self.columns))[:_NAMES_SHOWN]


def _candidates(guesses: Sequence[ColumnGuess]) -> list[ColumnGuess]:
    """The columns that may be a label, those of two values first."""
    return sorted((guess for guess in guesses if guess.label), key=lambda guess: guess.distinct > 2)


def utc_now() -> datetime:
    """This machine's time in UTC."""
    return datetime.now(UTC)


def infer_schema(
    patterns: Sequence[str],
    *,
    rows: int = SAMPLE_ROWS,
    time: TimeOptions | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> Inferred:
    """Infer the schema of these files from at most ``rows`` rows of the first 20 files.

    Event times are plausible from 1970 until a year after ``clock``, as in an import.

    Raises :class:`NoLogFiles`, :class:`UnknownFormat` for files that are not text logs,
    :class:`~pipelines.errors.UnclearEventTime` where the user must choose the event time, and
    :class:`~transforms.errors.StorageError`.
    """
    if rows < 1:
        raise InputError(
            "the number of rows must be positive", where="--rows", value=rows, next_step="give --rows such as 10000"
        )
    paths = expand_files(patterns)
    samples = [read_sample(path) for path in paths[:_MOST_FILES]]
    filled = [sample for sample in samples if sample.head.strip()]
    if not filled:
        raise UnknownFormat("a log must hold rows, got empty files", where=", ".join(paths[:3]),
                            next_step="check the program that writes them")  # fmt: skip
    for sample in filled:
        _refuse_binary(sample)
    encoding, guessed = detect_encoding([part for sample in filled for part in (sample.head, *sample.pieces)])
    log = _Log(tuple(filled), paths, encoding, rows, time or TimeOptions(), clock())
    unsure = (f"the text is not UTF-8 and is read as {encoding}: check some words of it",) if guessed else ()
    if is_json_lines(decoded_lines(filled[0].head, encoding, first=True), filled[0].path):
        return _inferred_json(log, unsure)
    return _inferred_cells(log, unsure)


def _refuse_binary(sample: Sample) -> None:
    head = sample.head
    control = sum(head[: 1 << 16].count(bytes([code])) for code in range(9) if code not in (0, 1, 2))
    if control * 20 > len(head[: 1 << 16]):
        raise UnknownFormat("a log must be text, got a binary file", where=sample.path, value=head[:16],
                            allowed="TSV, CSV or JSON lines", next_step="convert it to text or Parquet")  # fmt: skip


@dataclass(frozen=True)
class _Log:
    """The samples of the files, and the options."""

    samples: tuple[Sample, ...]
    paths: tuple[str, ...]
    encoding: str
    most_rows: int
    time: TimeOptions
    now: datetime


def _inferred_json(log: _Log, unsure: tuple[str, ...]) -> Inferred:
    base = LogSchema("jsonl", (), None, encoding=log.encoding)
    parts = sample_parts(log.samples, base, log.most_rows)
    found = [row for part in parts for row in json_rows(part.block.each())]
    guesses = guess_json_columns(found, plausible_range_us(log.now), log.time.column)
    if not guesses:
        raise UnknownFormat("a log must have a column, got objects without keys", where=log.samples[0].path,
                            next_step="name a file with rows")  # fmt: skip
    return _finish(log, base, guesses, parts, unsure)


def _inferred_cells(log: _Log, unsure: tuple[str, ...]) -> Inferred:
    first = log.samples[0]
    text = b"".join(utf8_lines(first.head, log.encoding, first=True, last=first.is_whole)).removeprefix(_BOM)
    dialect = detect_dialect(text, first.path)
    base = _base_schema(dialect, log.encoding)
    names, notes = _column_names(log, dialect, base)
    texts = replace(base, columns=tuple(LogColumn(name, DType.STRING) for name in names), null=())
    parts = sample_parts(log.samples, texts, log.most_rows)
    columns, _ = text_columns(parts, texts)
    if not any(columns.values()):
        raise UnknownFormat(
            "a log must hold rows, got a header alone", where=first.path, next_step="name a file with rows"
        )
    limits = plausible_range_us(log.now)
    guesses = [guess_column(name, columns[name], limits, is_named_time=name == log.time.column) for name in names]
    return _finish(log, base, guesses, parts, (*unsure, *dialect.unsure, *notes))


def _base_schema(dialect: Dialect, encoding: str) -> LogSchema:
    syntax = dialect.syntax
    return LogSchema(
        dialect.format, (), None, header=dialect.header is not None, encoding=encoding,
        delimiter="" if syntax.delimiter in (",", "\t") else syntax.delimiter,
        quote=True if dialect.format == "tsv" and syntax.quoted else None, escape=syntax.escape, preamble=dialect.preamble,
        trailing_delimiter=dialect.trailing,
    )  # fmt: skip


def _column_names(log: _Log, dialect: Dialect, base: LogSchema) -> tuple[list[str], tuple[str, ...]]:
    """The names of the columns, and doubts about them."""
    if dialect.header is not None:
        names, others = common_names(log.samples, base)
        if not names:
            raise UnknownFormat("the files of a log must share columns", where=log.samples[0].path,
                                value=f"no name that all headers have: {', '.join(list(others)[:_NAMES_SHOWN])}",
                                next_step="infer a schema for each kind of file")  # fmt: skip
        left_out = [f"{name} ({path})" for name, path in list(others.items())[:_NAMES_SHOWN]]
        note = f"the header of some files alone has {', '.join(left_out)}, which the schema leaves out"
        return names, (note,) if left_out else ()
    if dialect.commented is not None:
        return list(dialect.commented), ("the names are those of a comment before the first row",)
    return [f"column_{at + 1}" for at in range(dialect.width)], (
        "the log has no header: rename column_1 and the others",
    )


def _finish(
    log: _Log, base: LogSchema, guesses: Sequence[ColumnGuess], parts: Sequence[SampledPart], unsure: tuple[str, ...]
) -> Inferred:
    """Choose the event time, try the schema, and build the result."""
    event = choose_event_time(guesses, log.paths, log.time, unsure)
    guesses = [_as_event(guess, event) if guess is event.guess else guess for guess in guesses]
    nulls = sorted({spelling for guess in guesses for spelling in guess.nulls})
    guesses = [guess.without(nulls) for guess in guesses]
    schema = replace(base, columns=tuple(guess.column for guess in guesses), time=event.time, null=("", *nulls))
    trial = try_schema(parts, schema, guesses, log.now)
    about = _about_rows(log.samples, log.paths)
    if event.reading is not None:
        span = timedelta(microseconds=event.reading.last_us - event.reading.first_us)
        partition_by = suited_partitions(span, trial.rows if about is None else about)
        trial = replace(trial, schema=replace(trial.schema, partition_by=partition_by))
        if warning := many_partitions_warning(span // timedelta(days=1), "day"):
            unsure += (f"up to {warning}",)
    if nulls:
        unsure += (f"a missing value may be spelled {', '.join(map(repr, nulls))}, in every column",)
    labels = tuple(guess.column.name for guess in _candidates(trial.guesses))
    unsure = (*event.unsure, *unsure, *_rejects_note(trial))
    return Inferred(
        trial.schema, trial.guesses, tuple(log.paths), trial.rows, trial.rejected, trial.example, about, labels, unsure
    )


def _as_event(guess: ColumnGuess, event: EventTime) -> ColumnGuess:
    """The column as the event time; what is unsure about it is said once, for the log."""
    assert event.reading is not None
    timed, own = event.reading.column, guess.column
    column = LogColumn(
        own.name, timed.dtype, required=True, unit=timed.unit, formats=timed.formats, path=own.path, trim=own.trim
    )
    return replace(guess, column=column, label="", unsure=())


def _rejects_note(trial: Trial) -> tuple[str, ...]:
    """The option that an import needs if it rejects many rows, with a margin: the log may have more than the sample."""
    share = trial.rejected / max(trial.rows, 1)
    if share <= _FEW_REJECTED_SHARE:
        return ()
    option = min(math.ceil(share * 150) / 100, 1.0)
    return (f"{share:.0%} of the sampled rows are rejected: import with --max-reject-share {option}",)


def _about_rows(samples: Sequence[Sample], paths: Sequence[str]) -> int | None:
    """The estimated rows of all files, from the first bytes of each; None if all were read, or any is compressed."""
    if len(samples) < len(paths) or any(sample.packed and not sample.is_whole for sample in samples):
        return None
    if all(sample.is_whole for sample in samples):
        return None
    return int(sum(sample.head.count(b"\n") * max(sample.size_bytes / max(len(sample.head), 1), 1.0)
                   if not sample.is_whole else sample.head.count(b"\n") for sample in samples))  # fmt: skip
