"""Memory of tables whose last rows are released to the system: that of places which a host lends to other hosts."""

from __future__ import annotations

import mmap

from trainer.tables.kernels.memory import anonymous_array
from transforms.arrays import Array

#: Linux: memory is counted as it is touched, so that a host may map more than the machine has.
_NO_RESERVE = 0x4000


class LentMemory:
    """As :class:`~trainer.tables.kernels.memory.PrivateMemory`; a range of an array may be released, and is zeros when it is touched again."""

    def __init__(self) -> None:
        self._maps: dict[str, mmap.mmap] = {}

    def array(
        self, name: str, starts: Array, sizes: Array, dtype: type, *, is_fresh: bool, is_reserved: bool = True, in_place: bool = False
    ) -> Array:  # fmt: skip
        """See :class:`~trainer.tables.kernels.memory.TableMemory`."""
        flags = _NO_RESERVE if hasattr(mmap, "MADV_HUGEPAGE") else 0  # Linux
        found, memory = anonymous_array(starts, sizes, dtype, flags)
        if memory is not None:
            self._maps[name] = memory
        return found

    def reserve(self, name: str, size_bytes: int) -> None:
        """See :class:`~trainer.tables.kernels.memory.TableMemory`: the system commits what is written."""

    def release_memory(self, name: str, first_byte: int, stop_byte: int) -> None:
        """Release the whole pages of a range of an array."""
        first, stop = -(-first_byte // mmap.PAGESIZE) * mmap.PAGESIZE, stop_byte // mmap.PAGESIZE * mmap.PAGESIZE
        if first < stop and name in self._maps and hasattr(mmap, "MADV_DONTNEED"):
            self._maps[name].madvise(mmap.MADV_DONTNEED, first, stop - first)
