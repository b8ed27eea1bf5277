"""Segments of the vector of all dense weights, which hosts update apart: which optimizers allow it, and where weights are cut. Pure.

TensorFlow computes several floats at once, and the rest of an array one by one, by other instructions. So that all bits are those of an update of whole
weights, weights are cut at multiples of :data:`ALIGNED_FLOATS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

#: A multiple of the floats that a processor computes at once.
ALIGNED_FLOATS = 64
#: The optimizers whose update of a float depends on no other float, and which have slots. LAMB and LARS need norms of whole weights, which are
#: sums in an order that depends on all of a weight; SGD is as fast as the copy of the weights of other hosts.
BY_ELEMENT = frozenset({"adagrad", "adam", "newton"})

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


def pieces_of(sizes: Sequence[int], segment: Segment) -> Iterator[Piece]:
    """The pieces of a segment in order; ``sizes``: the floats of each weight."""
    first, last = segment
    for place, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        begin = end - size
        start, stop = max(first, begin), min(last, end)
        if start < stop:
            yield Piece(place, start - begin, stop - begin, start - first)
