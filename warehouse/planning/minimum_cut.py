"""Minimum cuts with one answer: the same network gives the same side, whatever the order of work.

Many cuts may have the same least capacity, but among them one source side lies within all others, and that is what is
returned: the vertices that can still be reached from the source when a maximum flow has used up the edges.

Capacities are seconds, and flows are counted in integers, where no sum rounds. A tick is a power of two of a second, such
that all finite capacities together stay below 2**52 ticks; each capacity is rounded to the nearest tick. So the cut is exact
whenever the capacities are multiples of the tick, and else it costs more than the least by at most a tick an edge; a tick is
at most 2**-50 of the sum of all capacities. An infinite edge has the sum of all finite ones plus one: no least cut crosses
it. And a cut whose capacity is the flow's value is a least one, so every answer is checked.

Why our own loop: networkx takes seconds for what takes milliseconds compiled (``benchmarks/minimum_cut.py``), and it is the
reference in tests. scipy counts in 32 bits, and says 0 where they do not suffice. OR-Tools is as fast, but cannot be
installed beside tensorflow-transform. python-igraph is under the GPL.
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

#: All finite capacities together, in ticks. Integers up to it are exact as floats too.
_TICK_BITS = 52
#: Edges from which on loading, or once compiling, the loop is shorter than running it as Python.
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
        """An edge of this capacity, infinite too unless it leads to the sink. One that no cut can cross is left out.

        Raises :class:`InputError` for a negative capacity or NaN, and for an infinite one into the sink.
        """
        if not secs > 0 or tail in (head, SINK) or head == SOURCE:
            if math.isnan(secs) or secs < 0:
                raise InputError("a capacity is a number of seconds", value=secs, allowed="0 or more")
            return
        if head == SINK and math.isinf(secs):
            raise InputError("an edge into the sink is finite", where=f"from vertex {tail}", value=secs)
        self.tails.append(tail)
        self.heads.append(head)
        self.secs.append(secs)


@dataclass(frozen=True, slots=True)
class Ticks:
    """A network in integers: edges by position, capacities in ticks of ``tick_secs``; all arrays are int64.

    ``infinite`` stands for infinity.
    """

    vertices: int
    tails: NDArray[np.int64]
    heads: NDArray[np.int64]
    capacities: NDArray[np.int64]
    infinite: int
    tick_secs: float


#: Ticks to the value of a maximum flow and the mask of the vertices that are reached when its edges are used up.
Solver = Callable[[Ticks], tuple[int, NDArray[np.bool_]]]


def in_ticks(network: Network) -> Ticks:
    """The network with integer capacities; see the module."""
    secs = np.asarray(network.secs, np.float64)
    finite = np.isfinite(secs)
    total_secs = math.fsum(secs[finite].tolist())
    # Rounding adds at most half a tick an edge: one bit is left for that.
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
    """:func:`~warehouse.planning.push_relabel.maximum_preflow`, compiled if the network is large; the answer is the same.

    It works from the sink back to the source: what can still reach the end of a preflow is known without turning it into
    a flow, and what enters at the sink is finite, so that no sum leaves int64.
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
    """Which vertices are on the source side of the least cut that has ``needed`` there: the smallest such side."""
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
        raise AssertionError(f"the least cut has {crossed} ticks, and the greatest flow {flow}")
    return reached
