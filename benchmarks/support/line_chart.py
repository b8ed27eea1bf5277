"""A line chart with two logarithmic axes, as an SVG document for a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 420, 84, 96, 44, 56
_TEXT = 'font-family="system-ui, sans-serif" font-size="13" fill="#30343b"'


@dataclass(frozen=True, slots=True)
class Curve:
    """A named curve; ``y`` are decimal logarithms, one for each x."""

    name: str
    color: str
    y: Sequence[float]


def line_chart(title: str, x_label: str, y_label: str, x: Sequence[float], curves: Sequence[Curve]) -> str:
    """The chart of curves over ``x``, decimal logarithms; an axis has a tick at each power of ten."""
    x_first, x_last = min(x), max(x)
    y_first = math.floor(min(min(curve.y) for curve in curves))
    y_last = math.ceil(max(max(curve.y) for curve in curves))

    def across(value: float) -> float:
        return _LEFT + (value - x_first) / (x_last - x_first) * (_WIDTH - _LEFT - _RIGHT)

    def down(value: float) -> float:
        return _HEIGHT - _BOTTOM - (value - y_first) / (y_last - y_first) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
             _text(_LEFT, 24, title, weight=600)]  # fmt: skip
    for tick in range(math.ceil(x_first), math.floor(x_last) + 1):
        parts.append(_line(across(tick), _TOP, across(tick), _HEIGHT - _BOTTOM))
        parts.append(_text(across(tick), _HEIGHT - _BOTTOM + 20, _number(tick), anchor="middle"))
    for tick in range(y_first, y_last + 1):
        parts.append(_line(_LEFT, down(tick), _WIDTH - _RIGHT, down(tick)))
        parts.append(_text(_LEFT - 8, down(tick) + 4, _number(tick), anchor="end"))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 14, x_label, anchor="middle"))
    parts.append(f'<g transform="rotate(-90 18 {_HEIGHT / 2})">{_text(18, _HEIGHT / 2, y_label, anchor="middle")}</g>')
    for curve in curves:
        points = " ".join(f"{across(at):.1f},{down(value):.1f}" for at, value in zip(x, curve.y, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{curve.color}" stroke-width="2.5"/>')
    parts += _names(curves, down)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title>", *parts, "</svg>", ""])


def _names(curves: Sequence[Curve], down: object) -> list[str]:
    """The names beside the ends of the curves, at least a line apart."""
    assert callable(down)
    named, last = [], -math.inf
    for curve in sorted(curves, key=lambda one: -one.y[-1]):
        last = max(last + 16, down(curve.y[-1]) + 4)
        named.append(_text(_WIDTH - _RIGHT + 8, last, curve.name, color=curve.color, weight=600))
    return named


def _number(power: int) -> str:
    if power < 0:
        return f"{10.0**power:g}"
    return f"{10**power:,}" if power < 6 else f"{10 ** (power - 6):,} M"


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#e2e5ea"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", color: str = "#30343b", weight: int = 400) -> str:
    style = _TEXT.replace("#30343b", color)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" {style}>{escape(text)}</text>'
