"""Minimum cuts with a unique answer: equal networks give equal sides.

Many cuts may have the least capacity, but one source side is contained in all others, and that is the answer:
the vertices that can be reached from the source in the residual network of a maximum flow.

Capacities are seconds, and flows are integers, whose sums are exact. A tick is a power of two of a second, such
that all finite capacities together stay below 2**52 ticks; each capacity is rounded to the nearest tick. So the cut is exact
if the capacities are multiples of the tick, and otherwise costs at most one tick per edge more than the least; a tick is
at most 2**-50 of the sum of all capacities, rounded to a double. An infinite edge has the sum of all finite ones plus one, so
that no least cut crosses it. A cut whose capacity equals the flow is a least one, so every answer is checked.

No library: networkx takes seconds for what takes milliseconds compiled (``benchmarks/minimum_cut.py``); it is the
reference in tests. scipy counts in 32 bits, and returns 0 if they do not suffice. OR-Tools is as fast, but conflicts with
tensorflow-transform. python-igraph is under the GPL.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transforms.errors import InputError
from warehouse.planning.push_relabel import maximum_preflow

SOURCE = 0
SINK = 1

#: Bits of the sum of all finite capacities in ticks; such integers are exact as floats too.
_TICK_BITS = 52
#: From this number of edges on, loading or compiling the loop is faster than running it as Python.
_COMPILED_FROM = 20_000


@dataclass(slots=True)
class Network:
    """A network under construction. Vertices are numbered; 0 is the source and 1 the sink."""

    vertices: int = 2
    tails: list[int] = field(default_factory=list)
    heads: list[int] = field(default_factory=list)
    secs: list[float] = field(default_factory=list)

    def vertex(self) -> int:
        """A new vertex."""
        self.vertices += 1
        return self.vertices - 1

    def edge(self, tail: int, head: int, secs: float) -> None:
        """Add an edge; its capacity may be infinite unless it leads to the sink. An edge that no cut can cross is ignored.

        Raises :class:`InputError` for a negative capacity or NaN, and for an infinite one into the sink.
        """
        if not secs > 0 or tail in (head, SINK) or head == SOURCE:
            if math.isnan(secs) or secs < 0:
                raise InputError("a capacity must be a number of seconds >= 0", value=secs, allowed="0 or more")
            return
        if head == SINK and math.isinf(secs):
            raise InputError("an edge into the sink must be finite", where=f"from vertex {tail}", value=secs)
        self.tails.append(tail)
        self.heads.append(head)
        self.secs.append(secs)


@dataclass(frozen=True, slots=True)
class Ticks:
    """A network in integers: edges by position, capacities in ticks of ``tick_secs``; all arrays are int64.

    ``infinite`` is the capacity of infinite edges.
    """

    vertices: int
    tails: NDArray[np.int64]
    heads: NDArray[np.int64]
    capacities: NDArray[np.int64]
    infinite: int
    tick_secs: float


#: Returns the value of a maximum flow, and the mask of the vertices that its residual network reaches.
Solver = Callable[[Ticks], tuple[int, NDArray[np.bool_]]]


def in_ticks(network: Network) -> Ticks:
    """The network with integer capacities, as the module says."""
    secs = np.asarray(network.secs, np.float64)
    finite = np.isfinite(secs)
    total_secs = math.fsum(secs[finite].tolist())
    # Rounding adds at most half a tick per edge: one bit is reserved for that.
    exponent = max(math.frexp(total_secs)[1] - _TICK_BITS + 1, -1000) if total_secs > 0 else 0
    capacities = np.zeros(len(secs), np.int64)
    capacities[finite] = np.rint(np.ldexp(secs[finite], -exponent)).astype(np.int64)
    infinite = int(capacities.sum()) + 1
    capacities[~finite] = infinite
    return Ticks(network.vertices, np.asarray(network.tails, np.int64), np.asarray(network.heads, np.int64),
                 capacities, infinite, math.ldexp(1.0, exponent))  # fmt: skip


@cache
def _compiled() -> Any:
    from transforms.kernels.compiled import compiled

    return compiled(maximum_preflow)


def by_push_relabel(ticks: Ticks) -> tuple[int, NDArray[np.bool_]]:
    """:func:`~warehouse.planning.push_relabel.maximum_preflow`, compiled for large networks, with the same answer.

    It works from the sink back to the source: the vertices that reach the end of a preflow are known without a flow,
    and the capacity that enters at the sink is finite, so that all sums fit int64.
    """
    edges, vertices = len(ticks.tails), ticks.vertices
    tails = np.concatenate([ticks.heads, ticks.tails])
    heads = np.concatenate([ticks.tails, ticks.heads])
    order = np.argsort(tails, kind="stable")
    place = np.empty(2 * edges, np.int64)
    place[order] = np.arange(2 * edges)
    mates = place[(order + edges) % (2 * edges)] if edges else place
    residual = np.concatenate([ticks.capacities, np.zeros(edges, np.int64)])[order]
    first = np.concatenate([[0], np.cumsum(np.bincount(tails, minlength=vertices))]).astype(np.int64)
    height = np.zeros(vertices, np.int64)
    of_vertex, of_level = np.zeros((5, vertices), np.int64), np.zeros((2, vertices + 1), np.int64)
    arrays = (first, heads[order], mates, residual)
    if edges >= _COMPILED_FROM:
        flow = _compiled()(*arrays, SINK, SOURCE, height, of_vertex, of_level)
        return int(flow), height < vertices
    starts, ends, others, rests = (array.tolist() for array in arrays)
    levels = height.tolist()
    flow = maximum_preflow(starts, ends, others, rests, SINK, SOURCE, levels, of_vertex.tolist(), of_level.tolist())
    return flow, np.asarray(levels) < vertices


def minimum_cut(network: Network, needed: Sequence[int], solver: Solver = by_push_relabel) -> NDArray[np.bool_]:
    """The smallest source side of a least cut that has ``needed`` on it, as a mask of vertices."""
    joined = Network(
        network.vertices,
        [*network.tails, *(SOURCE for _ in needed)],
        [*network.heads, *needed],
        [*network.secs, *(math.inf for _ in needed)],
    )
    ticks = in_ticks(joined)
    flow, reached = solver(ticks)
    crossed = int(ticks.capacities[reached[ticks.tails] & ~reached[ticks.heads]].sum())
    if reached[SINK] or crossed != flow or flow >= ticks.infinite:
        raise AssertionError(f"the least cut has {crossed} ticks, and the maximum flow {flow}")
    return reached
