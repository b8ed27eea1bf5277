"""The states of a job over time as SVG: a row for each state, a bar for each time in it. Deterministic text."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.runs.job_timeline import StateSpan
from headrace.runs.plot_range import time_unit
from headrace.runs.ticks import tick_text, ticks
from headrace.screens.drawing_theme import dark_style
from trainer.scheduling.transitions import JobState

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _BAR, _BOTTOM = 960, 170, 24, 16, 26, 16, 44
#: A shorter bar could not be seen.
_LEAST_WIDTH = 2.0
_CLASS = "headrace-states"
_TRAINS = frozenset({JobState.TRAINING, JobState.ENDING, JobState.DRAINING, JobState.COMMITTING})
_FAILS = frozenset({JobState.RESTARTING, JobState.HELD})
#: The classes of bars, with their colours on light and on dark ground.
_COLOURS = {"trains": ("#2e8b62", "#4fb88a"), "fails": ("#c0392b", "#ff8f80"), "waits": ("#8a93a3", "#7c8798")}


def timeline_svg(spans: Sequence[StateSpan]) -> str:
    """The drawing of spans in order."""
    states = [state for state in JobState if any(one.state is state for one in spans)]
    first, last = (spans[0].begin_secs, spans[-1].end_secs) if spans else (0.0, 0.0)
    name, unit = time_unit(last - first)
    right = max((last - first) / unit, 1e-9)
    height = _TOP + _ROW * len(states) + _BOTTOM
    scale = (_WIDTH - _LEFT - _RIGHT) / right
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'class="{_CLASS}" font-family="system-ui, sans-serif" font-size="13" role="img">',
        "<title>States of the job over time</title>",
        dark_style(_CLASS, {f".{kind}": f"fill: {dark}" for kind, (_, dark) in _COLOURS.items()}),
        f'<rect class="ground" width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    floor = _TOP + _ROW * len(states)
    for at in (places := ticks(0.0, right, 8)):
        x = _LEFT + scale * at
        text = tick_text(at, places[1] - places[0] if len(places) > 1 else 0.0)
        parts.append(f'<path class="grid" d="M{x:.1f},{_TOP}V{floor}" stroke="#e3e6eb"/>')
        parts.append(f'<text class="quiet" x="{x:.1f}" y="{floor + 16}" fill="#444" text-anchor="middle">{text}</text>')
    for row, state in enumerate(states):
        y = _TOP + _ROW * row
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 13}" fill="#111" text-anchor="end">{state}</text>')
        parts += [_bar(one, first, unit, scale, y) for one in spans if one.state is state]
    parts.append(f'<path class="axis" d="M{_LEFT},{_TOP}V{floor}H{_WIDTH - _RIGHT}" fill="none" stroke="#8c97a8"/>')
    parts.append(f'<text class="quiet" x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{height - 8}" fill="#444" text-anchor="middle">{name}</text>')  # fmt: skip
    return "\n".join([*parts, "</svg>"])


def _bar(span: StateSpan, first: float, unit: float, scale: float, y: int) -> str:
    x = _LEFT + scale * (span.begin_secs - first) / unit
    width = max(scale * span.secs / unit, _LEAST_WIDTH)
    kind = "trains" if span.state in _TRAINS else "fails" if span.state in _FAILS else "waits"
    return f'<rect class="{kind}" x="{min(x, _WIDTH - _RIGHT - width):.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{_COLOURS[kind][0]}"/>'
