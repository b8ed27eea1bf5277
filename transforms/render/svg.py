"""Graphs as SVG: raw columns at the left, model inputs at the right. Deterministic text.

A style sheet in the drawing sets the colours for light and dark backgrounds; every box is filled, so that its text is
readable on both. The drawing loads nothing and needs only a fixed-width font.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from transforms.graphs.graph import Artifact, Literal, Node, RawColumn, topological
from transforms.render.layout import Box, Edge, Layout, Point, lay_out
from transforms.render.text import expression_text, node_name, node_params

#: The maximum number of nodes of a drawing; larger ones are unreadable and slow.
NODES_MAX = 2000
LABEL_MAX = 34

_LABEL_PX, _CAPTION_PX = 7.3, 6.1  # the width of a character of 12 and 10 pixels
_LINE, _PADDING, _MARGIN = 14, 11, 12
_KINDS = {
    # fill, line and text, on light and on dark ground
    "column": (("#dff3e8", "#2e8b62", "#0f3d29"), ("#17382a", "#4fb88a", "#d3f3e3")),
    "operation": (("#eef1f6", "#74839a", "#1c2737"), ("#272e3a", "#8493ab", "#e4eaf3")),
    "literal": (("#fcf1cf", "#b98f1f", "#4a3905"), ("#3b3214", "#d0a93c", "#f8ebc0")),
    "artifact": (("#efe6fa", "#8560bd", "#341a5c"), ("#33254a", "#a98adb", "#eadffa")),
    "output": (("#2f6fb3", "#235789", "#ffffff"), ("#3d7fc6", "#7fb0e3", "#ffffff")),
}
_DARK_PLACES = ('[data-jp-theme-light="false"] .headrace-graph', ".vscode-dark .headrace-graph")


@dataclass(frozen=True, slots=True)
class _Mark:
    """The texts of one box: its name, smaller lines beneath, and the tooltip."""

    kind: str
    label: str
    captions: tuple[str, ...]
    told: str
    is_shared: bool = False

    @property
    def width(self) -> float:
        lines = [_text_width(self.label) * _LABEL_PX, *(_text_width(line) * _CAPTION_PX for line in self.captions)]
        return round(max(lines) + 2 * _PADDING, 1)

    @property
    def height(self) -> float:
        return _LINE * (1 + len(self.captions)) + 10


def graph_svg(root: Node, *, shared: Mapping[str, str] | None = None) -> str:
    """The component under ``root`` as an SVG document. ``shared``: by identity, nodes that stand out, with what their tooltip says."""
    return _drawing([root], {}, shared or {})


def model_svg(inputs: Mapping[str, Node]) -> str:
    """Several components in one drawing with their shared nodes; each ends in the name of its input."""
    return _drawing(list(inputs.values()), inputs, {})


def _drawing(roots: Sequence[Node], outputs: Mapping[str, Node], shared: Mapping[str, str]) -> str:
    nodes = list(topological(roots))
    if not nodes or len(nodes) > NODES_MAX:
        return _note("no inputs" if not nodes else f"{len(nodes)} nodes are too many to draw: show one input of them")
    position = {node.identity: i for i, node in enumerate(nodes)}
    marks = [_mark(node, shared.get(node.identity, "")) for node in nodes]
    edges = [
        Edge(position[arg.identity], i, (port + 1) / (len(node.args) + 1), _edge_title(arg, node, port))
        for i, node in enumerate(nodes)
        for port, arg in enumerate(node.args)
    ]
    for name, root in outputs.items():
        edges.append(Edge(position[root.identity], len(marks), 0.5, f"input {name}"))
        marks.append(_Mark("output", _cut(name), (), f"input {name}\n{root.identity}"))
    boxes = [
        Box(mark.width, mark.height, late=mark.kind in ("literal", "artifact"), last=mark.kind == "output")
        for mark in marks
    ]
    return _document(lay_out(boxes, edges), marks)


def _mark(node: Node, shared: str) -> _Mark:
    told = f"{expression_text(node)}\n{node.type}" + (f"\n{shared}" if shared else "")
    captions = tuple(_cut(line) for line in (node_params(node), str(node.type)) if line)
    match node:
        case RawColumn():
            return _Mark("column", _cut(node.name), captions, f"column {told}")
        case Literal():
            return _Mark("literal", _cut(node_name(node)), captions, f"literal {told}")
        case Artifact():
            return _Mark("artifact", _cut(node_name(node)), captions, f"artifact {node.digest}\n{node.type}")
        case _:
            return _Mark("operation", _cut(node_name(node)), captions, told, is_shared=bool(shared))


def _edge_title(arg: Node, node: Node, port: int) -> str:
    return f"{node_name(arg)} → {node_name(node)}" + (f", argument {port + 1}" if len(node.args) > 1 else "")


def _document(layout: Layout, marks: Sequence[_Mark]) -> str:
    width, height = layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="{-_MARGIN} {-_MARGIN} {width:.0f} {height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="headrace-graph" role="img" {size}>',
            f"<style>\n{_style()}\n</style>",
            '<g class="edges">',
            *(f'<path d="{_curve(route)}"><title>{_xml(title)}</title></path>' for title, route in layout.routes),
            "</g>",
            *(_box(mark, middle) for mark, middle in zip(marks, layout.middles, strict=True)),
            "</svg>",
        ]
    )


def _box(mark: _Mark, middle: Point) -> str:
    x, y = middle
    left, top = x - mark.width / 2, y - mark.height / 2
    first = top + 5 + _LINE * 0.78
    lines = [f'<text x="{x:.1f}" y="{first:.1f}">{_xml(mark.label)}</text>']
    lines += [
        f'<text class="caption" x="{x:.1f}" y="{first + _LINE * (i + 1):.1f}">{_xml(caption)}</text>'
        for i, caption in enumerate(mark.captions)
    ]
    shape = _shape(mark, left, top)
    style = f"{mark.kind} shared" if mark.is_shared else mark.kind
    return f'<g class="{style}"><title>{_xml(mark.told)}</title>{shape}{"".join(lines)}</g>'


def _shape(mark: _Mark, left: float, top: float) -> str:
    """The outline: columns and inputs rounded off, operations with round corners, literals sharp, artifacts cut."""
    width, height = mark.width, mark.height
    if mark.kind == "artifact":
        right, bottom, cut = left + width, top + height, 8
        corners = [(left + cut, top), (right - cut, top), (right, top + cut), (right, bottom - cut), (right - cut, bottom),
                   (left + cut, bottom), (left, bottom - cut), (left, top + cut)]  # fmt: skip
        return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}"/>'
    radius = {"column": height / 2, "output": height / 2, "operation": 6}.get(mark.kind, 0)
    return f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:.1f}"/>'


def _curve(route: Sequence[Point]) -> str:
    """A path through the points, horizontal at each end of the space between two layers."""
    pieces = [f"M{route[0][0]:.1f},{route[0][1]:.1f}"]
    for (x, y), (next_x, next_y) in pairwise(route):
        bend = (next_x - x) / 2
        level = abs(next_y - y) < 0.05
        pieces.append(
            f"H{next_x:.1f}"
            if level
            else f"C{x + bend:.1f},{y:.1f} {next_x - bend:.1f},{next_y:.1f} {next_x:.1f},{next_y:.1f}"
        )
    return " ".join(pieces)


def _style() -> str:
    base = [
        ".headrace-graph text { font: 12px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace; text-anchor: middle; stroke: none; }",
        ".headrace-graph text.caption { font-size: 10px; opacity: 0.8; }",
        ".headrace-graph .edges path { fill: none; stroke: #8c97a8; stroke-width: 1.3; }",
        ".headrace-graph .edges path:hover { stroke: #d9822b; stroke-width: 2.5; }",
    ]
    light, dark = (_colours(which) for which in (0, 1))
    rules = [*base, *(f".headrace-graph {selector} {body}" for selector, body in light)]
    rules.append("@media (prefers-color-scheme: dark) {")
    rules += [f"  .headrace-graph {selector} {body}" for selector, body in dark]
    rules.append("}")
    rules += [f"{', '.join(f'{place} {selector}' for place in _DARK_PLACES)} {body}" for selector, body in dark]
    rules.append(".headrace-graph .shared rect { stroke: #d9822b; stroke-width: 3; }")
    return "\n".join(rules)


def _colours(which: int) -> list[tuple[str, str]]:
    found = []
    for kind, themes in _KINDS.items():
        fill, line, ink = themes[which]
        shape = "polygon" if kind == "artifact" else "rect"
        found += [
            (f".{kind} {shape}", f"{{ fill: {fill}; stroke: {line}; }}"),
            (f".{kind} text", f"{{ fill: {ink}; }}"),
        ]
    return found


def _note(text: str) -> str:
    width = _text_width(text) * _LABEL_PX + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="headrace-graph" role="img" width="{width:.0f}" height="30">'
        f'<text x="{_MARGIN}" y="19" font-family="monospace" font-size="12" fill="#808080">{_xml(text)}</text></svg>'
    )


def _xml(text: str) -> str:
    """``text`` as the content of an element: escaped, and without the characters that XML does not have."""
    return escape("".join(sign if sign.isprintable() or sign == "\n" else "·" for sign in text), quote=False)


def _cut(text: str) -> str:
    text = text.replace("\n", "·")
    return text if len(text) <= LABEL_MAX else text[: LABEL_MAX - 1] + "…"


def _text_width(text: str) -> int:
    """The width in characters of a fixed-width font; East Asian characters count twice."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(unicodedata.combining(sign) > 0 for sign in text)
