"""Arrays of a checkpoint that come in parts, so that they are never in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from transforms.arrays import Array


class Sink(Protocol):
    """Where the bytes of an array go."""

    def write(self, data: Any, /) -> int:
        """Write bytes."""


@dataclass(frozen=True, slots=True)
class ArrayKind:
    """The name of an array, the type of its numbers, and its whole shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class PartedArrays:
    """Arrays with a common first dimension whose parts come together.

    ``parts``: for each part an array of each kind; one after another, the parts of a kind are the whole array. It is consumed once.
    """

    kinds: tuple[ArrayKind, ...]
    parts: Iterable[Sequence[Array]]

    def write(self, sinks: Sequence[Sink]) -> None:
        """Write each array as ``np.save`` would. Raises :class:`ValueError` if the parts are not those of the kinds."""
        left = [kind.shape[0] for kind in self.kinds]
        for kind, sink in zip(self.kinds, sinks, strict=True):
            header = {"descr": np.dtype(kind.dtype).str, "fortran_order": False, "shape": kind.shape}
            np.lib.format.write_array_header_1_0(_Written(sink.write), header)
        for part in self.parts:
            for k, (kind, array, sink) in enumerate(zip(self.kinds, part, sinks, strict=True)):
                if array.dtype != kind.dtype or array.shape[1:] != kind.shape[1:]:
                    raise ValueError(
                        f"a part of {kind.name} must be {kind.dtype} {kind.shape}, got {array.dtype} {array.shape}"
                    )
                if array.size:  # slots of no columns have no bytes
                    sink.write(np.ascontiguousarray(array).data)
                left[k] -= len(array)
        if any(left):
            raise ValueError(
                f"the parts of {self.kinds[0].name} must be {self.kinds[0].shape[0]} rows, got {left} less"
            )


@dataclass
class _Written:
    """A file object that only writes, for numpy's header."""

    write: Callable[[bytes], int]
