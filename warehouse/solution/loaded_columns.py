"""The columns of a merged fragment's memo files, kept while the fragments that they cover are read one after another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping

import pyarrow as pa

#: Columns by name, of all rows of their file.
Columns = Mapping[str, pa.Array]


class LoadedColumns:
    """The columns of one merged fragment, by file and names. Thread-safe.

    Memory is that of one merged fragment: columns of another one replace them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: Hashable = None
        self._columns: dict[Hashable, Columns] = {}

    def get(self, owner: Hashable, key: Hashable, load: Callable[[], Columns]) -> Columns:
        """The columns that ``load`` returns; they are loaded once for a run of requests of one owner."""
        with self._lock:
            if owner != self._owner:
                self._owner, self._columns = owner, {}
            found = self._columns.get(key)
            if found is None:
                found = self._columns[key] = load()
            return found
