"""Rows as CSV (RFC 4180): a header, commas, quotes where they are needed, CRLF line ends.

A spreadsheet runs a cell that begins with one of :data:`FORMULA_STARTS` as a formula. A text that begins so gets an apostrophe before it; a
number stays as it is.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.terminal.printable import json_printable, printable

#: First characters of formulas in spreadsheets, also in their wide forms.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A header of ``columns``, then the values of each row in this order.

    Args:
        columns: names of fields.
        rows: JSON values by field; fields that are no columns are left out, and one that a row lacks is empty.
    """
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([cell(row.get(name)) for name in columns] for row in rows)
    return written.getvalue()


def cell(value: Any) -> str:
    """The text of a JSON value: empty for null, JSON for a list or an object, no formula, and no invisible character."""
    if value is None:
        return ""
    if isinstance(value, str):
        return printable(f"'{value}" if value.startswith(FORMULA_STARTS) else value)
    return json_printable(json.dumps(value, ensure_ascii=False))
