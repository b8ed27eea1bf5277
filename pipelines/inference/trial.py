"""Parse the sample with the inferred schema by the rules of an import, and correct the schema until the import accepts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pipelines.inference.sampled_rows import SampledPart
from pipelines.inference.values import ColumnGuess
from pipelines.log_schemas.columns import LogColumn
from pipelines.log_schemas.schema import LogSchema
from pipelines.parsing.rejects import Reject
from transforms.types import DType

#: An import refuses more than 5 % of rejected rows; a log may have more of them than its sample.
_MOST_REJECTED_SHARE = 0.025


@dataclass(frozen=True)
class Trial:
    """The sample as an import would parse it.

    Attributes:
        schema: the schema, with columns as text whose values it rejects too often.
        guesses: the columns, with a sentence for each that became text.
        rows: the records of the sample.
        rejected: how many of them are rejected.
        example: one of them, as a sentence; empty if none is.
    """

    schema: LogSchema
    guesses: tuple[ColumnGuess, ...]
    rows: int
    rejected: int
    example: str


def try_schema(parts: Sequence[SampledPart], schema: LogSchema, guesses: Sequence[ColumnGuess], now: datetime) -> Trial:
    """Parse the sample, and again with the column as text that most rejected rows have in common, while too many are."""
    guesses = list(guesses)
    while True:
        rows, found = _parsed(parts, schema.bounded(now))
        reasons = Counter(reject.column for _, reject in found)
        worst = _worst_column(schema, reasons) if len(found) > _MOST_REJECTED_SHARE * rows else None
        if worst is None:
            example = found[0][1].sentence(found[0][0]) if found else ""
            return Trial(schema, tuple(guesses), rows, len(found), example)
        at = schema.names.index(worst)
        text = _as_text(schema.columns[at], schema)
        unsure = (
            f"{reasons[worst]:,} of {rows:,} values are no {schema.columns[at].expected}: the column is kept as text"
        )
        guesses[at] = replace(
            guesses[at], column=text, label="", unsure=(*_without_rejects(guesses[at].unsure), unsure)
        )
        schema = replace(schema, columns=(*schema.columns[:at], text, *schema.columns[at + 1 :]))


def _parsed(parts: Sequence[SampledPart], schema: LogSchema) -> tuple[int, list[tuple[str, Reject]]]:
    rows, rejects = 0, list[tuple[str, Reject]]()
    for part in parts:
        parsed = part.parse(schema)
        rows += parsed.table.num_rows + len(parsed.rejects)
        rejects += ((part.path, reject) for reject in parsed.rejects)
    return rows, rejects


def _worst_column(schema: LogSchema, reasons: Counter[str]) -> str | None:
    """The column that most rejects name, if it may become text: not the event time, and no text already."""
    event = None if schema.time is None or schema.time.made_up is not None else schema.time.column
    typed = {column.name for column in schema.columns if column != _as_text(column, schema)} - {event}
    return next((name for name, _ in reasons.most_common() if name in typed), None)


def _as_text(column: LogColumn, schema: LogSchema) -> LogColumn:
    return LogColumn(column.name, DType.STRING, path=column.path, is_json=schema.format == "jsonl")


def _without_rejects(unsure: Sequence[str]) -> tuple[str, ...]:
    return tuple(sentence for sentence in unsure if not sentence.endswith("rows are rejected"))
