"""Segments of the vector of all dense weights, which hosts update apart: which optimizers allow it, and where weights are cut. Pure.

In the vector each weight begins at a multiple of :data:`ALIGNED_FLOATS`, and segments are cut at multiples, for two reasons. TensorFlow computes several
floats at once, and the rest of an array one by one, by other instructions: so all bits are those of an update of whole weights. And it
takes the memory of an array as a tensor, without a copy, where it begins at a multiple of 64 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from transforms.arrays import Array

#: A multiple of the floats that a processor computes at once.
ALIGNED_FLOATS = 64
#: The optimizers whose update of a float depends on no other float, and which have slots. LAMB and LARS need norms of whole weights, which are
#: sums in an order that depends on all of a weight; SGD has little to share.
BY_ELEMENT = frozenset({"adagrad", "adam", "newton"})
_TENSOR_BYTES = 64

#: The first float of the vector, and the last but one.
Segment: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """What a segment has of one weight.

    Attributes:
        place: of the weight.
        start, stop: of the weight, the first float and the last but one.
        at: of the segment, the first float.
    """

    place: int
    start: int
    stop: int
    at: int

    @property
    def of_weight(self) -> slice:
        """The floats of the weight."""
        return slice(self.start, self.stop)

    @property
    def of_segment(self) -> slice:
        """The same floats of the segment."""
        return slice(self.at, self.at + self.stop - self.start)


def offsets_of(sizes: Sequence[int], aligned: int = ALIGNED_FLOATS) -> list[int]:
    """The first float of each weight in a vector where each begins at a multiple of ``aligned``, then the floats of the vector."""
    found = [0]
    for size in sizes:
        found.append(-(-(found[-1] + size) // aligned) * aligned)
    return found


def pieces_of(sizes: Sequence[int], segment: Segment) -> Iterator[Piece]:
    """The pieces of a segment in order; ``sizes``: the floats of each weight."""
    first, last = segment
    for place, (begin, size) in enumerate(zip(offsets_of(sizes), sizes, strict=False)):
        start, stop = max(first, begin), min(last, begin + size)
        if start < stop:
            yield Piece(place, start - begin, stop - begin, start - first)


def aligned_zeros(floats: int) -> Array:
    """Zeros, float32 [floats], in memory that a tensor can have."""
    memory = np.zeros(floats + _TENSOR_BYTES // 4, np.float32)
    first = -memory.ctypes.data % _TENSOR_BYTES // 4
    return memory[first : first + floats]


def is_aligned(array: Array) -> bool:
    """Whether a tensor can have the memory of an array."""
    return array.ctypes.data % _TENSOR_BYTES == 0 and array.flags.c_contiguous
