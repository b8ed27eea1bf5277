"""Detect the format of a text: JSON lines or delimited cells, the delimiter, quotes and the header."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.errors import UnknownFormat
from pipelines.log_schemas.columns import LogFormat

_DELIMITERS = ("\t", ",", ";", "|", "\x01", "^", " ")
_SCORED_ROWS = 500
_NAME = re.compile(r"[^\W\d][\w .:/()%#-]{0,63}")
_VALUE = re.compile(r"[-+]?[0-9][0-9.,:/| TZ+-]*|(?i:true|false)")
_NO_NAMES = frozenset({"true", "false", "null", "none", "nan", "na", "n/a", "nil"})
_MOST_COLUMNS = 5_000
_LONGEST_CELL = 1 << 20


@dataclass(frozen=True)
class Dialect:
    """The syntax of rows.

    Attributes:
        format: tsv, csv or jsonl.
        delimiter: the character between cells; empty for JSON lines.
        quoted: whether cells are quoted.
        header: the names in the first line; None if it is a row.
        unsure: sentences about other possibilities.
    """

    format: LogFormat
    delimiter: str
    quoted: bool
    header: tuple[str, ...] | None
    unsure: tuple[str, ...] = ()


def is_json_lines(text: str, where: str) -> bool:
    """Whether most lines are JSON objects. Raises :class:`UnknownFormat` for a JSON document of many lines."""
    lines = [line for line in text[: 1 << 18].splitlines()[:200] if line.strip()]
    if not lines:
        return False
    if lines[0].lstrip().startswith("[") and not _is_object(lines[0]) and _looks_like_json(lines):
        raise UnknownFormat("a JSON log must hold one object per line, got one list", where=where, value=lines[0][:60],
                            allowed="JSON lines", next_step=f"rewrite it: jq -c '.[]' {where} > rows.jsonl")  # fmt: skip
    objects = sum(_is_object(line) for line in lines)
    if lines[0].strip() == "{" and objects == 0:
        raise UnknownFormat("a JSON log must hold one object per line, got one document", where=where, value="{",
                            allowed="JSON lines", next_step=f"rewrite it: jq -c '.' {where} > rows.jsonl")  # fmt: skip
    return objects * 2 > len(lines)


def _is_object(line: str) -> bool:
    if not line.lstrip().startswith("{"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _looks_like_json(lines: Sequence[str]) -> bool:
    rest = lines[0].strip().lstrip("[").strip() or (lines[1].strip() if len(lines) > 1 else "")
    return rest.startswith(("{", "]"))


def detect_dialect(text: str) -> Dialect:
    """The dialect of a delimited text, from its first rows."""
    scores = {}
    for delimiter in _DELIMITERS:
        quoted = _is_quoted(text, delimiter)
        widths = Counter(len(row) for row in split_rows(text, delimiter, quoted=quoted)[:_SCORED_ROWS] if row)
        width, count = max(widths.items(), key=lambda item: (item[1], item[0]), default=(1, 0))
        if width > 1:
            scores[delimiter] = (
                count / max(widths.total(), 1),
                delimiter != " ",
                -_DELIMITERS.index(delimiter),
                quoted,
            )
    good = {key: score for key, score in scores.items() if score[0] >= 0.6}
    if not good:
        return _with_header(text, Dialect("csv", ",", _is_quoted(text, ","), None, (
            "no delimiter splits the lines into equally many cells: each line is read as one column",)))  # fmt: skip
    # Of delimiters that fit equally many rows, the one with the most columns.
    delimiter = max(good, key=lambda key: (round(good[key][0], 2), *good[key][1:3]))
    return _with_header(text, Dialect("tsv" if delimiter == "\t" else "csv", delimiter, good[delimiter][3], None))


def _is_quoted(text: str, delimiter: str) -> bool:
    """Whether any cell begins and ends with a quote."""
    mark = re.escape(delimiter)
    return re.search(rf'(?:^|{mark})"(?:[^"]|"")*"(?=\r?$|{mark})', text[: 1 << 17], re.MULTILINE) is not None


def split_rows(text: str, delimiter: str, *, quoted: bool) -> list[list[str]]:
    """The rows of a text as lists of cells, without blank lines and an unfinished last row."""
    text = text.replace("\0", " ")
    try:
        csv.field_size_limit(_LONGEST_CELL)
        reader = csv.reader(
            io.StringIO(text, newline=""), delimiter=delimiter,
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, doublequote=True,
        )  # fmt: skip
        return [row[:_MOST_COLUMNS] for row in reader if row]
    except csv.Error:
        return [line.split(delimiter)[:_MOST_COLUMNS] for line in text.splitlines() if line]


def _with_header(text: str, dialect: Dialect) -> Dialect:
    rows = split_rows(text[: 1 << 18], dialect.delimiter, quoted=dialect.quoted)[:_SCORED_ROWS]
    if not rows:
        return dialect
    first, rest = rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]
    names = [cell.strip() for cell in first]
    # A column of row numbers often has no name.
    named = all(_NAME.fullmatch(name) for name in names[not names[0] :]) and len(set(names)) == len(names)
    named = named and any(names) and not _NO_NAMES.intersection(name.lower() for name in names)
    if not named:
        return dialect
    typed = [at for at in range(len(first)) if rest and _share_of_values([row[at] for row in rest]) > 0.8]
    if typed:
        return Dialect(dialect.format, dialect.delimiter, dialect.quoted, tuple(first), dialect.unsure)
    again = any(row[at] == name for row in rest for at, name in enumerate(first))
    known = any(re.search(r"(?i)(^|_)(id|name|time|date|label|query|title|url|type|count)$", name) for name in names)
    if rest and (again or not known):
        unsure = 'the first line may be a header: then write "header": true, and correct the names'
        return Dialect(dialect.format, dialect.delimiter, dialect.quoted, None, (*dialect.unsure, unsure))
    unsure = 'the first line is read as a header; if it is a row, write "header": false'
    return Dialect(dialect.format, dialect.delimiter, dialect.quoted, tuple(first), (*dialect.unsure, unsure))


def _share_of_values(cells: Sequence[str]) -> float:
    """The share of filled cells that are numbers, times or booleans, unlike names."""
    filled = [cell for cell in cells if cell.strip() and cell.strip().lower() not in _NO_NAMES - {"true", "false"}]
    return sum(bool(_VALUE.fullmatch(cell.strip())) for cell in filled) / len(filled) if filled else 0.0
