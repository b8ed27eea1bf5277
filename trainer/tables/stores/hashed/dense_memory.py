"""Memory of arrays, or of tables in them, of which all is used: in huge pages, whatever their size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.tables.kernels.memory import TableMemory
from transforms.arrays import Array

#: The bytes of a piece, which a memory has in huge pages.
_PIECE_BYTES = 32 << 20


class DenseMemory:
    """The arrays of another memory as pieces of tables so small that they are in huge pages.

    Places are used from the first one on, and entries of a hash table all over it, so huge pages commit no more than is used, and
    random rows are found faster.

    ``is_dense``: of each table, whether that holds for it, in arrays that have a part for each table; None: it holds for all of every array.
    """

    def __init__(self, memory: TableMemory, is_dense: Sequence[bool] | None = None) -> None:
        self._memory, self._is_dense = memory, is_dense

    def array(
        self, name: str, starts: Array, sizes: Array, dtype: type, *, is_fresh: bool, is_reserved: bool = True, in_place: bool = False
    ) -> Array:  # fmt: skip
        """See :class:`~trainer.tables.kernels.memory.TableMemory`."""
        step = _PIECE_BYTES // np.dtype(dtype).itemsize
        if self._is_dense is None:
            starts, sizes = _pieces(0, int(sizes.sum()), step)
        elif len(starts) == len(self._is_dense):
            tables = zip(self._is_dense, starts.tolist(), sizes.tolist(), strict=True)
            parts = [_pieces(start, size, step if dense else max(size, 1)) for dense, start, size in tables]
            starts, sizes = (np.concatenate(one) for one in zip(*parts, strict=True))
        return self._memory.array(
            name, starts, sizes, dtype, is_fresh=is_fresh, is_reserved=is_reserved, in_place=in_place
        )

    def reserve(self, name: str, size_bytes: int) -> None:
        """See :class:`~trainer.tables.kernels.memory.TableMemory`."""
        self._memory.reserve(name, size_bytes)


def _pieces(first: int, size: int, step: int) -> tuple[Array, Array]:
    """Where the pieces of a table begin, and their sizes; one piece of a table without values."""
    starts = np.arange(0, max(size, 1), step)
    return first + starts, np.minimum(size - starts, step)
