"""The columns of a merged fragment's memo files, kept while the fragments that they cover are read one after another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns by name, of all rows of their file.
Columns: TypeAlias = "Mapping[str, pa.Array]"


class LoadedColumns:
    """The columns of one merged fragment, by file and names. Thread-safe.

    Memory is that of one merged fragment: columns of another one replace them, and they are released when all fragments of
    their owner have read them. A pickled copy is empty.

    Args:
        readers: The number of fragments that read each owner's columns.
    """

    def __init__(self, readers: Mapping[Any, int]) -> None:
        self._readers = readers
        self._lock = threading.Lock()
        self._owner: Hashable = None
        self._held: dict[Hashable, _Held] = {}

    def get(self, owner: Hashable, key: Hashable, load: Callable[[], Columns]) -> Columns:
        """The columns that ``load`` returns; they are loaded once for a run of requests of one owner.

        Only requests of the same columns wait for a load.
        """
        with self._lock:
            if owner != self._owner:
                self._owner, self._held = owner, {}
            held = self._held.get(key)
            if held is None:
                held = self._held[key] = _Held(self._readers.get(owner, 1))
        with held.lock:
            if held.columns is None:
                held.columns = load()
            columns = held.columns
        with self._lock:
            held.readers_left -= 1
            if held.readers_left <= 0 and self._held.get(key) is held:
                del self._held[key]
        return columns

    def __reduce__(self) -> tuple[type[LoadedColumns], tuple[Mapping[Any, int]]]:
        return LoadedColumns, (self._readers,)


class _Held:
    """Columns, once they are loaded, and the number of fragments that have yet to read them."""

    __slots__ = ("columns", "lock", "readers_left")

    def __init__(self, readers_left: int) -> None:
        self.lock = threading.Lock()
        self.columns: Columns | None = None
        self.readers_left = readers_left
