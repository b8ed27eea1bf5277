"""Memory of arrays of which all is used: in huge pages, whatever their size."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainer.embedding.cpu.memory import TableMemory

Array = np.ndarray[Any, np.dtype[Any]]

#: The bytes of a piece, which a memory has in huge pages.
_PIECE_BYTES = 32 << 20


class DenseMemory:
    """The arrays of another memory as pieces of tables so small that they are in huge pages.

    Places are used from the first one on, and entries of a hash table all over it, so huge pages commit no more than is used, and
    random rows are found faster.
    """

    def __init__(self, memory: TableMemory) -> None:
        self._memory = memory

    def array(self, name: str, starts: Array, sizes: Array, dtype: type, *, is_fresh: bool) -> Array:
        """See :class:`~trainer.embedding.cpu.memory.TableMemory`."""
        total, step = int(sizes.sum()), _PIECE_BYTES // np.dtype(dtype).itemsize
        pieces = np.arange(0, total, step)
        return self._memory.array(name, pieces, np.minimum(total - pieces, step), dtype, is_fresh=is_fresh)
