"""Layered graph layout: positions of boxes and routes of edges, layers from left to right by depth.

The method of Sugiyama: an edge over several layers has a *slot* in each; sweeps of barycentres determine the order, least
squares within that order the heights. Deterministic; time is near linear.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Point = tuple[float, float]

_BETWEEN_LAYERS, _BETWEEN_BOXES, _BETWEEN_EDGES = 46.0, 12.0, 9.0
_ORDER_SWEEPS, _HEIGHT_SWEEPS = 12, 15


@dataclass(frozen=True, slots=True)
class Box:
    """A box. ``late`` places it as far right as its readers allow, ``last`` in the last layer."""

    width: float
    height: float
    late: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge from the right side of a box to the left side of another, at ``port`` of its height."""

    source: int
    target: int
    port: float
    title: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """The ``middles`` of the boxes, and a title and points for each edge, within (width, height)."""

    middles: list[Point]
    routes: list[tuple[str, list[Point]]]
    width: float
    height: float


@dataclass(slots=True)
class _Slot:
    """A box, or the point of a layer that an edge crosses. Neighbours are (slot, offset from its middle)."""

    layer: int
    width: float = 0.0
    height: float = 0.0
    passing: bool = False
    y: float = 0.0
    before: list[tuple[int, float]] = field(default_factory=list)
    after: list[tuple[int, float]] = field(default_factory=list)


def lay_out(boxes: Sequence[Box], edges: Sequence[Edge]) -> Layout:
    """Place boxes, which must be in topological order, and route the edges."""
    slots = [_Slot(layer, box.width, box.height) for box, layer in zip(boxes, _layers_of(boxes, edges), strict=True)]
    paths = [_path(edge, slots) for edge in edges]
    layers = _ordered(slots)
    _settle_heights(layers, slots)
    lefts, widths = _columns(layers, slots)
    middles = [(lefts[slot.layer] + widths[slot.layer] / 2, slot.y) for slot in slots[: len(boxes)]]
    routes = [(edge.title, _route(edge, path, slots, lefts, widths)) for edge, path in zip(edges, paths, strict=True)]
    height = max(slot.y + slot.height / 2 for slot in slots)
    return Layout(middles, routes, lefts[-1] + widths[-1], height)


def _layers_of(boxes: Sequence[Box], edges: Sequence[Edge]) -> list[int]:
    layers = [0] * len(boxes)
    for edge in sorted(edges, key=lambda edge: edge.target):
        layers[edge.target] = max(layers[edge.target], layers[edge.source] + 1)
    end = max(layers)
    readers: dict[int, int] = {}
    for edge in edges:
        readers[edge.source] = min(readers.get(edge.source, end), layers[edge.target])
    for i, box in enumerate(boxes):
        if box.late and i in readers:
            layers[i] = readers[i] - 1
        if box.last:
            layers[i] = end
    return layers


def _path(edge: Edge, slots: list[_Slot]) -> list[int]:
    """The slots of an edge, with new ones between its ends; connects them as neighbours."""
    source, target = slots[edge.source], slots[edge.target]
    between = range(source.layer + 1, target.layer)
    path = [edge.source, *range(len(slots), len(slots) + len(between)), edge.target]
    slots += [_Slot(layer, passing=True) for layer in between]
    for left, right in pairwise(path):
        off = (edge.port - 0.5) * target.height if right == edge.target else 0.0
        slots[left].after.append((right, off))
        slots[right].before.append((left, off))
    return path


def _ordered(slots: Sequence[_Slot]) -> list[list[int]]:
    """The slots of each layer from top to bottom, in the order with the fewest crossings of all sweeps."""
    layers: list[list[int]] = [[] for _ in range(max(slot.layer for slot in slots) + 1)]
    for i, slot in enumerate(slots):
        layers[slot.layer].append(i)
    best, fewest = layers, _crossings(layers, slots)
    for sweep in range(_ORDER_SWEEPS):
        if fewest == 0:
            break
        layers = _swept(layers, slots, rightwards=sweep % 2 == 0)
        crossings = _crossings(layers, slots)
        if crossings < fewest:
            best, fewest = layers, crossings
    return best


def _swept(layers: Sequence[list[int]], slots: Sequence[_Slot], *, rightwards: bool) -> list[list[int]]:
    place = {slot: float(i) for layer in layers for i, slot in enumerate(layer)}
    swept = [list(layer) for layer in layers]
    for layer in swept if rightwards else reversed(swept):
        centres: dict[int, float] = {}
        for slot in layer:
            neighbours = slots[slot].before if rightwards else slots[slot].after
            places = [place[other] + off / 1000 for other, off in neighbours]
            centres[slot] = sum(places) / len(places) if places else place[slot]
        layer.sort(key=centres.__getitem__)
        place.update((slot, float(i)) for i, slot in enumerate(layer))
    return swept


def _crossings(layers: Sequence[list[int]], slots: Sequence[_Slot]) -> int:
    count = 0
    for left, right in pairwise(layers):
        place = {slot: i for i, slot in enumerate(right)}
        seen: list[float] = []
        for slot in left:
            ends = sorted(place[other] + off / 1000 for other, off in slots[slot].after)
            count += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


def _settle_heights(layers: Sequence[list[int]], slots: Sequence[_Slot]) -> None:
    for layer in layers:
        _put(layer, slots, [0.0] * len(layer))
    for sweep in range(_HEIGHT_SWEEPS):
        rightwards = sweep % 2 == 0  # the last one too: then a chain of single edges runs level
        for layer in layers if rightwards else reversed(layers):
            _put(layer, slots, [_wanted(slots[i], slots, rightwards) for i in layer])
    top = min(slot.y - slot.height / 2 for slot in slots)
    for slot in slots:
        slot.y -= top


def _wanted(slot: _Slot, slots: Sequence[_Slot], rightwards: bool) -> float:
    """The height of the neighbours on one side, or on the other side if there are none."""
    before = [slots[other].y - off for other, off in slot.before]
    after = [slots[other].y + off for other, off in slot.after]
    near = (before or after) if rightwards else (after or before)
    return sum(near) / len(near) if near else slot.y


def _put(layer: Sequence[int], slots: Sequence[_Slot], wanted: Sequence[float]) -> None:
    """Place each slot as near to its target as order and sizes allow: isotonic least squares."""
    shifts = [0.0]
    for above, below in pairwise(slots[i] for i in layer):
        apart = _BETWEEN_EDGES if above.passing or below.passing else _BETWEEN_BOXES
        shifts.append(shifts[-1] + (above.height + below.height) / 2 + apart)
    blocks: list[tuple[float, int]] = []  # (mean, count)
    for want, shift in zip(wanted, shifts, strict=True):
        mean, count = want - shift, 1
        while blocks and blocks[-1][0] > mean:
            other, others = blocks.pop()
            mean, count = (mean * count + other * others) / (count + others), count + others
        blocks.append((mean, count))
    means = [mean for mean, count in blocks for _ in range(count)]
    for i, mean, shift in zip(layer, means, shifts, strict=True):
        slots[i].y = mean + shift


def _columns(layers: Sequence[list[int]], slots: Sequence[_Slot]) -> tuple[list[float], list[float]]:
    """(The left edge of each layer, its width)."""
    widths = [max(slots[i].width for i in layer) for layer in layers]
    lefts = [0.0]
    for layer, width in zip(layers[:-1], widths, strict=False):
        bundle = sum(len(slots[i].after) for i in layer)
        lefts.append(lefts[-1] + width + _BETWEEN_LAYERS + min(bundle, 100))  # many edges need space to bend
    return lefts, widths


def _route(
    edge: Edge, path: Sequence[int], slots: Sequence[_Slot], lefts: Sequence[float], widths: Sequence[float]
) -> list[Point]:
    source, target = slots[edge.source], slots[edge.target]
    route = [(lefts[source.layer] + widths[source.layer] / 2 + source.width / 2, source.y)]
    if source.width < widths[source.layer]:
        route.append((lefts[source.layer] + widths[source.layer], source.y))
    for i in path[1:-1]:
        left = lefts[slots[i].layer]
        route += [(left, slots[i].y), (left + widths[slots[i].layer], slots[i].y)]
    end = target.y + (edge.port - 0.5) * target.height
    if target.width < widths[target.layer]:
        route.append((lefts[target.layer], end))
    return [*route, (lefts[target.layer] + widths[target.layer] / 2 - target.width / 2, end)]
