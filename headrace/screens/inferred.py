"""The screens of ``headrace table infer``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType

from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import count_text, many, percent_text

_LABELS_SHOWN = 5
_KAFKA_TIME = "kafka_time, the time that Kafka has for a message"


@dataclass(frozen=True, slots=True)
class InferredColumnRow:
    """One inferred column of a log."""

    name: str
    type: str
    missing_share: float
    distinct: int
    examples: tuple[str, ...]
    unsure: tuple[str, ...]
    label: str


@dataclass(frozen=True, slots=True, repr=False)
class InferredScreen(Shown):
    """A schema that was inferred from a sample and written to ``output``.

    ``labels``: the columns that may be a label; ``label`` of a column is the expression to write.
    """

    output: str
    files: tuple[str, ...]
    rows: int
    rejected: int
    reject: str
    about_rows: int | None
    schema: dict[str, Any]
    columns: tuple[InferredColumnRow, ...]
    labels: tuple[str, ...]
    unsure: tuple[str, ...]

    def render(self) -> RenderableType:
        """Facts, columns, uncertain choices, and the next step."""
        of = "" if self.about_rows is None else f" of about {count_text(self.about_rows)}"
        expressions = {column.name: column.label for column in self.columns}
        is_topic = self.files[0].startswith("kafka://")
        labels = [expressions[name] for name in self.labels[:_LABELS_SHOWN]]
        head = facts(
            (
                (
                    "sampled",
                    f"{many(self.rows, 'row')}{of} of {self.files[0] if is_topic else many(len(self.files), 'file')}",
                ),
                ("rejected", many(self.rejected, "row") + (f", such as {self.reject}" if self.reject else "")),
                ("format", f"{self.schema['format']}, {self.schema.get('encoding', 'utf-8')}"),
                (
                    "event time",
                    _KAFKA_TIME if is_topic and "time" not in self.schema else _time_text(self.schema.get("time")),
                ),
                ("may be a label", ", ".join(f"label={label}" for label in labels) or "-"),
            )
        )
        columns = grid(
            ("column", "type", "missing>", "distinct>", "examples*"),
            (
                (c.name, c.type, percent_text(c.missing_share), count_text(c.distinct), ", ".join(c.examples))
                for c in self.columns
            ),
        )
        doubts = [f"unsure: {sentence}" for sentence in self.unsure]
        doubts += [f"unsure of {c.name}: {sentence}" for c in self.columns for sentence in c.unsure]
        files = " ".join(self.files[:2]) + (" …" if len(self.files) > 2 else "")
        if is_topic:
            command = f"add NAME {files}"
        else:
            command = f"import NAME {files}" if "time" in self.schema else f"overlay NAME {files} --on KEY"
        after = [f"wrote {self.output}; next: check it, then headrace table {command} --schema {self.output}"]
        return Group(head, "", columns, *(["", *doubts] if doubts else []), "", *after)


@dataclass(frozen=True, slots=True)
class SchemaText:
    """The text of the schema file only, for a pipe."""

    text: str

    def line(self) -> str:
        """The lines of the file, which may have any length."""
        return self.text.rstrip("\n")


def _time_text(time: dict[str, Any] | None) -> str:
    if time is None:
        return "none: the files hold values for events of a table"
    for key in ("fixed", "file_name", "row_order"):
        if key in time:
            made = {
                "fixed": "one time for all rows",
                "file_name": "the day in the file's name",
                "row_order": "generated from the order of rows",
            }
            return f"{time['column']}, {made[key]}"
    form = time.get("format") or time.get("unit", "iso8601")
    return f"{time['column']}, {' or '.join(form) if isinstance(form, list) else form}"
