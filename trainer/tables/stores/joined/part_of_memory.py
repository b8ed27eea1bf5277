"""The arrays of one of several stores in one memory."""

from __future__ import annotations

from trainer.tables.kernels.memory import TableMemory
from transforms.arrays import Array


class PartOfMemory:
    """The arrays of one of several stores in ``memory``: their names there begin with ``prefix``."""

    def __init__(self, memory: TableMemory, prefix: str) -> None:
        self._memory, self._prefix = memory, prefix

    def array(
        self, name: str, starts: Array, sizes: Array, dtype: type, *, is_fresh: bool, is_reserved: bool = True, in_place: bool = False
    ) -> Array:  # fmt: skip
        """See :class:`~trainer.tables.kernels.memory.TableMemory`."""
        name = self._prefix + name
        return self._memory.array(
            name, starts, sizes, dtype, is_fresh=is_fresh, is_reserved=is_reserved, in_place=in_place
        )

    def reserve(self, name: str, size_bytes: int) -> None:
        """See :class:`~trainer.tables.kernels.memory.TableMemory`."""
        self._memory.reserve(self._prefix + name, size_bytes)
