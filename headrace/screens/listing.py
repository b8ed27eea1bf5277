"""A screen that is one table, and so can be printed as CSV."""

from __future__ import annotations

from typing import ClassVar

from headrace.screens.shown import Shown
from headrace.terminal.csv_rows import csv_text


class Listing(Shown):
    """A screen whose rows are one field of its document.

    Attributes:
        rows_field: the field that holds the rows.
        columns: the fields of a row in order: the columns of the CSV, also of one without rows. A later release may add columns at the end.
    """

    __slots__ = ()
    rows_field: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]

    def csv_text(self) -> str:
        """The rows as CSV; see :mod:`headrace.terminal.csv_rows`."""
        return csv_text(self.columns, self.to_dict()[self.rows_field])
