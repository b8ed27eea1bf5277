"""Finding events by key columns, vectorised."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Ints
from transforms.errors import DataError


class KeyIndex:
    """The row of each combination of key values in a file. Raises :class:`DataError` for nulls and duplicates.

    ``columns``: the key columns by name, of equal length. Values are coded column by column as small integers, and the codes
    combined into one, so a lookup is a few array operations for keys of any type.
    """

    def __init__(self, columns: Mapping[str, pa.Array], where: str) -> None:
        for name, column in columns.items():
            if column.null_count:
                raise DataError("a key must not be null", where=f"{where}, column {name}", value=f"null in {column.null_count} of {len(column)}",
                                next_step="leave out the rows without a key")  # fmt: skip
        self.names = tuple(columns)
        self._values = [pc.unique(column) for column in columns.values()]
        self._levels: list[Ints] = []
        folded = np.zeros(len(next(iter(columns.values()))), np.int64)
        for values, column in zip(self._values, columns.values(), strict=True):
            folded = folded * len(values) + _codes(column, values)
            self._levels.append(np.unique(folded))
            folded = np.searchsorted(self._levels[-1], folded).astype(np.int64)
        self._rows_by_code = np.argsort(folded, kind="stable")
        self.size = len(self._levels[-1])
        if self.size < len(folded):
            twice = folded[self._rows_by_code][1:][np.diff(folded[self._rows_by_code]) == 0][0]
            row = int(self._rows_by_code[np.searchsorted(folded[self._rows_by_code], twice)])
            raise DataError("a key must be unique", where=f"{where}, {', '.join(columns)}",
                            value=f"duplicate rows: {len(folded) - self.size}; one of them: "
                            + ", ".join(repr(column[row].as_py()) for column in columns.values()),
                            next_step="keep one row for each key")  # fmt: skip
        self._matched = np.zeros(self.size, np.bool_)

    def find(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """For every event the row of the file with its keys, int64; null if there is none or a key is null."""
        folded = np.zeros(len(next(iter(columns.values()))), np.int64)
        missing = np.zeros(len(folded), np.bool_)
        for values, level, name in zip(self._values, self._levels, self.names, strict=True):
            codes = _codes(columns[name], values)
            missing |= codes < 0
            folded = folded * len(values) + np.where(codes < 0, 0, codes)
            found = np.minimum(np.searchsorted(level, folded), max(len(level) - 1, 0))
            missing |= level[found] != folded if len(level) else True
            folded = found.astype(np.int64)
        self._matched[folded[~missing]] = True
        rows = self._rows_by_code[folded] if self.size else folded
        return pa.array(rows, pa.int64(), mask=missing)

    @property
    def unmatched(self) -> int:
        """Keys of the file that no looked-up event had."""
        return int(self.size - self._matched.sum())


def _codes(column: pa.Array, values: pa.Array) -> Ints:
    """The index of each value in ``values``; -1 for unknown values and nulls."""
    codes = pc.index_in(column, value_set=values, skip_nulls=True)
    return np.asarray(pc.fill_null(codes, -1)).astype(np.int64)
