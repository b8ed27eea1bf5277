"""Maximum preflow by push-relabel: highest label first, with gaps and periodic exact relabelling.

Goldberg and Tarjan, "A new approach to the maximum-flow problem" (1988); Cherkassky and Goldberg, "On implementing the
push-relabel method for the maximum flow problem" (1997). It is one function without callees, so that it runs as Python on
lists of small networks, and compiled on arrays of large ones.
"""

from __future__ import annotations

from typing import Any

#: Exact relabelling visits every edge, so there is as much other work between two of them.
_RELABEL_EVERY = 6


def maximum_preflow(
    first: Any, head: Any, mate: Any, residual: Any, source: int, sink: int, height: Any, of_vertex: Any, of_level: Any
) -> int:
    """Push as much flow as possible from ``source`` into ``sink``; returns the amount.

    Arcs are sorted by tail: those of v are ``first[v]`` to ``first[v + 1]``, an arc's other direction is at ``mate``,
    and ``residual`` is its residual capacity, changed in place. At the end ``height`` is a vertex's distance to
    ``sink`` over arcs with residual capacity, or the number of vertices if there is no path. Scratch, changed too:
    ``of_vertex``, five sequences with one item per vertex, and ``of_level``, two with one item more.

    The sum of the source's arcs must fit the given integers.
    """
    excess, current, after, before, below = of_vertex
    at_level, active = of_level
    vertices = len(height)
    arcs = len(head)
    for vertex in range(vertices):
        excess[vertex] = 0
    for arc in range(first[source], first[source + 1]):
        amount = residual[arc]
        residual[arc] = 0
        residual[mate[arc]] += amount
        excess[head[arc]] += amount
    while True:
        # Exact distances to the sink, breadth first; `current` is the queue.
        for vertex in range(vertices):
            height[vertex] = vertices
        height[sink] = 0
        current[0] = sink
        queue_front, queue_back = 0, 1
        while queue_front < queue_back:
            vertex = current[queue_front]
            queue_front += 1
            for arc in range(first[vertex], first[vertex + 1]):
                other = head[arc]
                if height[other] == vertices and other != source and residual[mate[arc]] > 0:
                    height[other] = height[vertex] + 1
                    current[queue_back] = other
                    queue_back += 1
        # Vertices by level, and the active ones among them: those with excess.
        for level in range(vertices + 1):
            at_level[level] = -1
            active[level] = -1
        top = -1
        for vertex in range(vertices):
            current[vertex] = first[vertex]
            level = height[vertex]
            if level < vertices and vertex != sink:
                after[vertex] = at_level[level]
                before[vertex] = -1
                if at_level[level] >= 0:
                    before[at_level[level]] = vertex
                at_level[level] = vertex
                if excess[vertex] > 0:
                    below[vertex] = active[level]
                    active[level] = vertex
                    top = max(top, level)
        if top < 0:
            return int(excess[sink])
        work = 0
        while top >= 0 and work <= _RELABEL_EVERY * vertices + arcs:
            vertex = active[top]
            if vertex < 0:
                top -= 1
                continue
            active[top] = below[vertex]
            if height[vertex] != top:  # lifted over a gap in the meantime
                continue
            while excess[vertex] > 0 and height[vertex] < vertices:
                level = height[vertex]
                arc = current[vertex]
                if arc < first[vertex + 1]:
                    other = head[arc]
                    if residual[arc] == 0 or height[other] != level - 1:
                        current[vertex] = arc + 1
                        continue
                    amount = min(excess[vertex], residual[arc])
                    residual[arc] -= amount
                    residual[mate[arc]] += amount
                    excess[vertex] -= amount
                    if excess[other] == 0 and other != sink:
                        below[other] = active[level - 1]
                        active[level - 1] = other
                        top = max(top, level - 1)
                    excess[other] += amount
                    continue
                # Relabel: one above the lowest vertex with a residual arc.
                lowest = vertices
                for arc in range(first[vertex], first[vertex + 1]):
                    if residual[arc] > 0:
                        lowest = min(lowest, height[head[arc]] + 1)
                work += first[vertex + 1] - first[vertex] + _RELABEL_EVERY
                current[vertex] = first[vertex]
                if before[vertex] >= 0:
                    after[before[vertex]] = after[vertex]
                else:
                    at_level[level] = after[vertex]
                if after[vertex] >= 0:
                    before[after[vertex]] = before[vertex]
                if at_level[level] < 0:
                    # A gap: no path leads from above it to the sink.
                    lowest = vertices
                    above = level + 1
                    while above < vertices and at_level[above] >= 0:
                        other = at_level[above]
                        while other >= 0:
                            height[other] = vertices
                            other = after[other]
                        at_level[above] = -1
                        above += 1
                height[vertex] = lowest
                if lowest < vertices:
                    after[vertex] = at_level[lowest]
                    before[vertex] = -1
                    if at_level[lowest] >= 0:
                        before[at_level[lowest]] = vertex
                    at_level[lowest] = vertex
