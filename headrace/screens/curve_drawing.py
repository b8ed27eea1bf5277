"""Learning curves as SVG: a line for each run, its unsmoothed values behind it, and its newest value beside its name. Deterministic text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from headrace.runs.curves import Axis, Curve
from headrace.runs.plot_range import PlotRange, range_of
from headrace.runs.ticks import tick_text, ticks
from headrace.screens.drawing_theme import dark_style
from headrace.screens.score_figures import figure_text
from headrace.terminal.printable import printable
from transforms.arrays import Array

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 420, 72, 24, 48, 44
_LEGEND_ROW, _VALUE = 22, 96
#: Colours that people with any colour vision tell apart (Okabe and Ito), without the yellow that white hides.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
_DARK_COLOURS = ("#5b9cf5", "#f08a4b", "#2fc79a", "#e39cc4", "#8fdcff", "#f2c14e", "#ffffff")
#: Lines that follow each other also differ by their dashes; no two of :data:`MOST_CURVES` have both in common.
_DASHES = ("", "8 4", "2 3", "9 3 2 3")
#: The most curves that can be told apart.
MOST_CURVES = len(COLOURS) * len(_DASHES)
_CLASS = "headrace-curves"
_LONGEST_NAME = 60


def curves_svg(curves: Sequence[Curve], metric: str, axis: Axis, smoothing: float) -> str:
    """The drawing of a figure of some runs."""
    shown = range_of(curves, axis)
    height = _HEIGHT + _LEGEND_ROW * len(curves)
    title = f"{metric} by {shown.name}" + (f", smoothing {smoothing:g}" if smoothing else "")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'class="{_CLASS}" font-family="system-ui, sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        dark_style(_CLASS, {f".c{k}": f"stroke: {colour}" for k, colour in enumerate(_DARK_COLOURS)}),
        f'<rect class="ground" width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{_LEFT}" y="28" font-size="16" fill="#111">{escape(title)}</text>',
        f'<clipPath id="inside"><rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH - _LEFT - _RIGHT}" height="{_HEIGHT - _TOP - _BOTTOM}"/></clipPath>',
        f'<clipPath id="names"><rect x="{_LEFT}" y="{_HEIGHT}" width="{_WIDTH - _LEFT - _RIGHT - _VALUE}" height="{height - _HEIGHT}"/></clipPath>',
        *_axes(shown),
        f'<text class="quiet" x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 8}" fill="#444" text-anchor="middle">{shown.name}</text>',
        '<g clip-path="url(#inside)" fill="none" stroke-linejoin="round">',
    ]
    if smoothing:
        parts += [_line(one, one.y, shown, f'{_stroke(k)} stroke-width="1" opacity="0.25"') for k, one in enumerate(curves)]  # fmt: skip
    parts += [
        _line(one, one.smooth, shown, f'{_stroke(k)} stroke-width="2"{_dashes(k)}', one.run)
        for k, one in enumerate(curves)
    ]
    return "\n".join([*parts, "</g>", *_legend(curves), "</svg>"])


def _axes(shown: PlotRange) -> list[str]:
    found = []
    for at in (levels := ticks(shown.low, shown.high, 7)):
        y = _y(at, shown)
        found.append(f'<path class="grid" d="M{_LEFT},{y:.1f}H{_WIDTH - _RIGHT}" stroke="#e3e6eb"/>')
        found.append(f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4:.1f}" fill="#444" text-anchor="end">{tick_text(at, _apart(levels))}</text>')  # fmt: skip
    for at in (places := ticks(0.0, shown.right, 9)):
        x = _x(at, shown)
        found.append(f'<path class="grid" d="M{x:.1f},{_TOP}V{_HEIGHT - _BOTTOM}" stroke="#f0f2f5"/>')
        found.append(f'<text class="quiet" x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" fill="#444" text-anchor="middle">{tick_text(at, _apart(places))}</text>')  # fmt: skip
    found.append(
        f'<path class="axis" d="M{_LEFT},{_TOP}V{_HEIGHT - _BOTTOM}H{_WIDTH - _RIGHT}" fill="none" stroke="#8c97a8"/>'
    )
    return found


def _apart(places: Sequence[float]) -> float:
    return places[1] - places[0] if len(places) > 1 else 0.0


def _line(curve: Curve, values: Array, shown: PlotRange, style: str, title: str = "") -> str:
    points = [
        f"{_x(x / shown.unit, shown):.1f},{_y(y, shown):.1f}"
        for x, y in zip(curve.x.tolist(), values.tolist(), strict=True)
    ]
    if not points:
        return ""
    named = f"<title>{escape(printable(title, lines=False))}</title>" if title else ""
    if len(points) == 1:
        x, y = points[0].split(",")
        return f'<circle cx="{x}" cy="{y}" r="3" {style}>{named}</circle>'
    return f'<path d="M{" L".join(points)}" {style}>{named}</path>'


def _x(value: float, shown: PlotRange) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / shown.right


def _y(value: float, shown: PlotRange) -> float:
    share = (value - shown.low) / (shown.high - shown.low)
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * min(max(share, -1.0), 2.0)


def _legend(curves: Sequence[Curve]) -> list[str]:
    found = []
    for k, one in enumerate(curves):
        y = _HEIGHT + _LEGEND_ROW * k + 10
        whole = printable(one.run, lines=False)
        name = whole if len(whole) <= _LONGEST_NAME else f"…{whole[1 - _LONGEST_NAME :]}"
        found.append(f'<path d="M{_LEFT},{y}h42" {_stroke(k)} stroke-width="3"{_dashes(k)}/>')
        found.append(f'<text x="{_LEFT + 52}" y="{y + 4}" fill="#111" clip-path="url(#names)">{escape(name)}</text>')
        found.append(f'<text class="quiet" x="{_WIDTH - _RIGHT}" y="{y + 4}" fill="#444" text-anchor="end">{figure_text(one.last)}</text>')  # fmt: skip
    return found


def _stroke(number: int) -> str:
    k = number % len(COLOURS)
    return f'class="c{k}" stroke="{COLOURS[k]}"'


def _dashes(number: int) -> str:
    dashes = _DASHES[number % len(_DASHES)]
    return f' stroke-dasharray="{dashes}"' if dashes else ""
