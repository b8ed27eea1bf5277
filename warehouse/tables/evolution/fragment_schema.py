"""How the fragments of a table are read by its current schema. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from transforms.joins.column_names import is_joined
from warehouse.tables.table import ColumnSchema, Fragment, Overlay, absent_digest


class FragmentSchema:
    """The columns of a table, as its fragments have them.

    A column that a fragment has no values of is null for all of its events, but for a joined one, which has none until they are
    computed. A column that files hold in several types is read as the widest of them.
    """

    def __init__(self, columns: Iterable[ColumnSchema]) -> None:
        listed = tuple(columns)
        self._first_types = {column.name: column.first_type for column in listed if not is_joined(column.name)}
        self._types = {column.name: column.arrow_type for column in listed if column.stored_types}

    def of(self, fragment: Fragment) -> Fragment:
        """``fragment`` with an overlay of nulls for each column that it has no values of, and the types of columns."""
        if self._types and fragment.types != self._types:
            fragment = replace(fragment, types=self._types)
        if self._first_types.keys() <= fragment.digests.keys():
            return fragment
        absent = [
            Overlay(column, "", absent_digest(self._first_types[column], fragment.rows), self._first_types[column])
            for column in sorted(self._first_types.keys() - fragment.digests.keys())
        ]
        if not absent:
            return fragment
        digests = {**fragment.digests, **{one.column: one.checksum for one in absent}}
        overlays = sorted((*fragment.overlays, *absent), key=lambda one: one.column)
        return replace(fragment, digests=digests, overlays=tuple(overlays))
