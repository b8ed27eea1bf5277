"""Many ready memos as columns, which take a fraction of the memory and time of one object each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The type of each column.
_TYPES = {"memo_key": object, "fingerprint": object, "file": np.int64, "rows": np.int64, "size_bytes": np.int64, "secs": np.float64,
          "created_at": np.float64, "changed_at": np.float64, "fragment": np.int64}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class StoredMemos:
    """Ready memos; ``file`` and ``fragment`` are the catalog rows of the file and of the fragment of each.

    ``created_at``: when it was first requested; ``changed_at``: when it became ready; both in epoch seconds.
    """

    memo_key: NDArray[np.object_]
    fingerprint: NDArray[np.object_]
    file: NDArray[np.int64]
    rows: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    secs: NDArray[np.float64]
    created_at: NDArray[np.float64]
    changed_at: NDArray[np.float64]
    fragment: NDArray[np.int64]

    @staticmethod
    def of(rows: Sequence[Sequence[Any]]) -> StoredMemos:
        """Memos from rows with these columns, in this order."""
        columns = zip(*rows, strict=True) if rows else [()] * len(_TYPES)
        return StoredMemos(*(_array(kind, column) for kind, column in zip(_TYPES.values(), columns, strict=True)))

    @staticmethod
    def joined(parts: Iterable[StoredMemos]) -> StoredMemos:
        """The memos of all parts, in this order."""
        listed = [StoredMemos.of(()), *parts]
        names = [field.name for field in fields(StoredMemos)]
        return StoredMemos(*(np.concatenate([getattr(part, name) for part in listed]) for name in names))

    def at(self, places: Any) -> StoredMemos:
        """The memos at these places, an index of NumPy."""
        return StoredMemos(*(getattr(self, field.name)[places] for field in fields(self)))

    def __len__(self) -> int:
        return len(self.file)


def _array(kind: Any, values: Sequence[Any]) -> NDArray[Any]:
    return np.fromiter(values, kind, len(values))
