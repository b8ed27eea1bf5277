"""The history of the queue as SVG: bars of queued tasks by client. Deterministic text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from headrace.runs.ticks import tick_text, ticks
from headrace.screens.curve_drawing import COLOURS
from headrace.terminal.printable import printable
from headrace.terminal.units import count_text, moment

if TYPE_CHECKING:
    from warehouse.queue.history import QueueMinute

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 220, 72, 12, 16, 30
_LEGEND_ROW = 20
#: The most bars; each one covers several minutes of a longer time.
_MOST_BARS = 144
#: Clients with a colour of their own: those with the most queued tasks. The others share one.
_MOST_CLIENTS = 6
_OTHERS = "other clients"
_LONGEST_NAME = 60
_STYLE = (
    "text{fill:#1a2230;font:12px system-ui,sans-serif}.line{stroke:#d3d9e2}.none{fill:#eceff4}"
    "@media(prefers-color-scheme:dark){text{fill:#e6eaf1}.line{stroke:#38414f}.none{fill:#232b37}.black{fill:#e6eaf1}}"
)


def queue_svg(history: Sequence[QueueMinute], at: float, minutes: int) -> str:
    """The queued tasks of the ``minutes`` before ``at``; times in which no worker recorded them are shaded."""
    span = -(-minutes // _MOST_BARS)
    first = int(at // 60) - minutes + 1
    bars = -(-minutes // span)
    fullest: dict[int, QueueMinute] = {}
    for one in history:
        bar = (one.at // 60 - first) // span
        if 0 <= bar < bars and (bar not in fullest or one.queued >= fullest[bar].queued):
            fullest[bar] = one
    shown = _clients(list(fullest.values()))
    most = max((one.queued for one in fullest.values()), default=0)
    levels = ticks(0.0, float(most), 4) if most > 3 else list(map(float, range(max(most, 1) + 1)))
    top = max(levels[-1], float(most), 1.0)
    width = (_WIDTH - _LEFT - _RIGHT) / bars
    height = _HEIGHT + _LEGEND_ROW * max(len(shown), 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img">',
        "<title>Queued tasks by client</title>",
        f"<style>{_STYLE}</style>",
    ]
    for level in levels:
        y = _y(level, top)
        parts.append(f'<path class="line" d="M{_LEFT},{y:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick_text(level, levels[1] - levels[0] if len(levels) > 1 else 0.0)}</text>')  # fmt: skip
    for bar in range(bars):
        x = _LEFT + bar * width
        found = fullest.get(bar)
        if found is None:
            parts.append(f'<rect class="none" x="{x:.1f}" y="{_TOP}" width="{width:.2f}" height="{_HEIGHT - _TOP - _BOTTOM}"/>')  # fmt: skip
            continue
        parts += _stack(found, shown, x, width, top)
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        when = moment((first + share * (minutes - 1)) * 60)
        x = _LEFT + share * (_WIDTH - _LEFT - _RIGHT)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 10}" text-anchor="{anchor}">{when:%m-%d %H:%M}</text>')
    return "\n".join([*parts, *_legend(shown), "</svg>"])


def _clients(history: Sequence[QueueMinute]) -> list[str]:
    """The names in the legend: the clients with the most queued tasks, then that of the others."""
    queued: Counter[str] = Counter()
    for one in history:
        queued.update({name: sample.queued for name, sample in one.clients.items() if sample.queued})
    names = sorted(queued, key=lambda name: (-queued[name], name))
    return names if len(names) <= _MOST_CLIENTS else [*names[:_MOST_CLIENTS], _OTHERS]


def _stack(found: QueueMinute, shown: Sequence[str], x: float, width: float, top: float) -> list[str]:
    counts: Counter[str] = Counter()
    for name, sample in found.clients.items():
        counts[name if name in shown else _OTHERS] += sample.queued
    parts, below = [], 0
    for k, name in enumerate(shown):
        if not counts[name]:
            continue
        y, foot = _y(below + counts[name], top), _y(below, top)
        title = f"{_short(name)}: {count_text(counts[name])} queued, {moment(found.at):%Y-%m-%d %H:%M}"
        parts.append(f'<rect {_fill(k)} x="{x:.1f}" y="{y:.1f}" width="{max(width - 1, 1):.2f}" height="{foot - y:.1f}">'
                     f"<title>{escape(title)}</title></rect>")  # fmt: skip
        below += counts[name]
    return parts


def _legend(shown: Sequence[str]) -> list[str]:
    if not shown:
        return [f'<text x="{_LEFT}" y="{_HEIGHT + 10}">No task was queued</text>']
    parts = []
    for k, name in enumerate(shown):
        y = _HEIGHT + _LEGEND_ROW * k
        parts.append(f'<rect {_fill(k)} x="{_LEFT}" y="{y}" width="14" height="12"/>')
        parts.append(f'<text x="{_LEFT + 22}" y="{y + 10}">{escape(_short(name))}</text>')
    return parts


def _fill(number: int) -> str:
    colour = COLOURS[number % len(COLOURS)]
    return f'fill="{colour}"' + (' class="black"' if colour == "#000000" else "")


def _short(name: str) -> str:
    text = printable(name)
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / top
