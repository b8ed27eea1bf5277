"""Write an inferred schema as a schema file with comments, one line per column."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

from pipelines.inference.infer import Inferred

#: The entries before the columns.
_SYNTAX = ("format", "encoding", "delimiter", "header", "quote", "escape", "preamble", "trailing_delimiter", "null")


def schema_text(inferred: Inferred) -> str:
    """The schema as JSON with ``//`` lines, which :meth:`~pipelines.log_schemas.schema.LogSchema.from_file` reads."""
    return "\n".join(_lines(inferred)) + "\n"


def _lines(inferred: Inferred) -> Iterator[str]:
    document = inferred.schema.to_document()
    columns = cast("list[dict[str, object]]", document.pop("columns"))
    yield "{"
    of = "" if inferred.about_rows is None else f" of about {inferred.about_rows:,}"
    yield f"  // {inferred.rows:,} rows{of} were sampled"
    if inferred.rejected:
        yield f"  // an import rejects {inferred.rejected:,} of them, such as {_plain(inferred.reject)}"
    labels = ", ".join(inferred.shown_labels) or "none found"
    yield f"  // candidates for a model's label: {_plain(labels)}"
    for sentence in inferred.unsure:
        yield f"  // unsure: {_plain(sentence)}"
    for key in _SYNTAX:
        if key in document:
            yield f"  {_entry(key, document.pop(key))},"
    yield '  "columns": ['
    for position, (column, guess) in enumerate(zip(columns, inferred.columns, strict=True)):
        for sentence in guess.unsure:
            yield f"    // unsure: {_plain(sentence)}"
        yield f"    {_json(column)}{',' if position + 1 < len(columns) else ''}"
    rest = list(document.items())
    yield "  ]," if rest else "  ]"
    for position, (key, value) in enumerate(rest):
        yield f"  {_entry(key, value)}{',' if position + 1 < len(rest) else ''}"
    yield "}"


def _entry(key: str, value: object) -> str:
    return f'"{key}": {_json(value)}'


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()


def _plain(sentence: str) -> str:
    """A sentence on one line; values of a file may contain line ends."""
    return "".join(letter if letter.isprintable() else " " for letter in sentence)[:400]
