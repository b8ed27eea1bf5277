"""The rows of fragments that have some keys, read alone.

A fragment that is read for the first time for the columns of some keys is read whole, and a file of its rows in the order of these keys is left
in the home (:mod:`warehouse.files.rows_by_key`), from which the rows of some keys are read the next time. The file is named by the content of
what is in it. It can always be made again: one that is damaged, or was removed, changes no value; ``headrace gc`` removes those that were not used
for a day. Homes in buckets have none: there a thousand short reads take longer than the columns.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.errors import StorageError
from transforms.graphs.encoding import digest
from warehouse.files.rows_by_key import (
    FORMAT,
    ROW,
    DamagedRows,
    are_hashes_of,
    is_stored,
    open_rows_by_key,
    rows_by_key_writer,
)
from warehouse.storage.layout import ROWS, ROWS_SUFFIX
from warehouse.storage.storage import Storage
from warehouse.tables.content import content_digest
from warehouse.tables.table import Fragment

_LOG = logging.getLogger(__name__)
#: A fragment of fewer rows is read whole.
LEAST_ROWS = 20_000
#: A fragment is read whole for more keys than this share of its rows.
MOST_KEYS_SHARE = 0.1


@dataclass(frozen=True)
class RowsOfKeys:
    """Reads the rows of one table that have some keys.

    Attributes:
        storage: Where the files are.
        table: The name of the table.
        keys: What the hashes of its rows are made of.
        columns: The columns that are read.
        time: The column of times.
        hashes_of: The hash of the key of each row of a table of these columns, uint32.
        read: Reads the columns of all rows of a fragment, with their times.
    """

    storage: Storage
    table: str
    keys: str
    columns: Sequence[str]
    time: str
    hashes_of: Callable[[pa.Table], Array]
    read: Callable[[Fragment], pa.Table]

    def of(self, fragment: Fragment, hashes: Array) -> pa.Table:
        """The rows whose keys have one of these hashes, deleted ones too, and their numbers in the column :data:`ROW`.

        ``hashes``: uint32, ascending, each once. Raises what ``read`` raises.
        """
        is_kept = self.storage.is_local and fragment.rows >= LEAST_ROWS
        if not is_kept or len(hashes) > MOST_KEYS_SHARE * fragment.rows:
            return self._among(self.read(fragment), hashes)
        name = self._name(fragment)
        return self._stored(name, hashes) or self._read(fragment, name, hashes)

    def _name(self, fragment: Fragment) -> str:
        content = content_digest(replace(fragment, deletions=None), [*self.columns, self.time])
        return digest([FORMAT, self.keys, content, [*self.columns], self.time])

    def _path(self, name: str) -> str:
        return f"{ROWS}/{self.table}/{name}.{ROWS_SUFFIX}"

    def _stored(self, name: str, hashes: Array) -> pa.Table | None:
        path = Path(self.storage.root, self._path(name))
        try:
            with open_rows_by_key(path, name) as file:
                found = file.of(hashes)
            now = time.time_ns()
            os.utime(path, ns=(now, now))  # it is in use
        except FileNotFoundError:
            return None
        except (DamagedRows, OSError) as error:
            _LOG.warning("rows are read from their table: %s", error)
            return None
        return found

    def _read(self, fragment: Fragment, name: str, hashes: Array) -> pa.Table:
        rows = self.read(fragment)
        own = self.hashes_of(rows)
        if all(is_stored(field.type) for field in rows.schema):
            try:
                self.storage.write_atomic(self._path(name), rows_by_key_writer(own, rows, name), synced=False)
            except StorageError as error:
                _LOG.warning("no file of rows by key is left, and the next repair reads all rows again: %s", error)
        return _numbered(rows, are_hashes_of(own, hashes))

    def _among(self, rows: pa.Table, hashes: Array) -> pa.Table:
        return _numbered(rows, are_hashes_of(self.hashes_of(rows), hashes))


def _numbered(rows: pa.Table, is_chosen: Array) -> pa.Table:
    numbers = np.flatnonzero(is_chosen)
    return rows.take(pa.array(numbers)).append_column(ROW, pa.array(numbers))
