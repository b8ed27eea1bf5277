"""Checks of a metric history that was read: its numbers are those of a run. Pure."""

from __future__ import annotations

from typing import Final

import numpy as np

from trainer.errors import TornCheckpoint
from trainer.run.history.columns import WHOLE, HistoryLayout
from trainer.run.history.run_history import FIRST_WINDOW_STEPS, RunHistory
from transforms.arrays import Array

_MOST: Final = float(1 << 53)
_MOST_SECS: Final = 1e12
#: Columns that are at most another one, of the same label or of none.
_AT_MOST: Final = (
    ("positives", "events"),
    ("hits", "events"),
    ("ranked", "pairs"),
    ("idle_units", "hidden_units"),
    ("fullness_samples", "steps"),
)


def check_history(history: RunHistory, where: str) -> None:
    """Raise :class:`TornCheckpoint` unless windows and commits have the same steps in order, and each row can have been measured."""
    size = history.window_steps // FIRST_WINDOW_STEPS
    if size * FIRST_WINDOW_STEPS != history.window_steps or size & (size - 1):
        raise _wrong("windows", "16 steps or a power of two as many", where, history.window_steps)
    layout = history.layout
    for name, rows in (("windows", history.windows), ("commits", history.commits)):
        _check_rows(layout, rows, f"{where}: {name}")
        _check_steps(layout, rows, history.first_step, f"{where}: {name}")
    if len(history.windows) == 0 or len(history.commits) == 0:
        ends = [len(history.windows), len(history.commits)]
    else:
        ends = [layout.column(rows, "step")[-1] for rows in (history.windows, history.commits)]
    if ends[0] != ends[1]:
        raise _wrong("windows and commits", "the same last step", where, ends)
    windows = (layout.column(history.windows, "step") - 1) // history.window_steps
    begins = (layout.column(history.windows, "step") - layout.column(history.windows, "steps")) // history.window_steps
    if (np.diff(windows) <= 0).any() or (windows != begins).any():
        raise _wrong("each window", "its own steps", where, history.window_steps)
    numbers = layout.column(history.commits, "commit")
    if (np.diff(numbers) <= 0).any():
        raise _wrong("commits", "ascending numbers", where, numbers[:8].tolist())


def _check_rows(layout: HistoryLayout, rows: Array, where: str) -> None:
    if not np.isfinite(rows).all() or (rows < 0).any():
        raise _wrong("figures", "finite numbers from 0 on", where, "others")
    for (label, name), place in layout.places.items():
        column = rows[:, place]
        most = _MOST_SECS if name.endswith(("secs", "_at")) else _MOST
        if name in WHOLE and ((column != np.floor(column)).any() or (column > most).any()):
            raise _wrong(f"{name} of {label or 'windows'}", "whole numbers below 2**53", where, float(column.max()))
        if name.endswith(("secs", "_at")) and (column > most).any():
            raise _wrong(f"{name} of {label or 'windows'}", f"seconds up to {most:g}", where, float(column.max()))
    for lower, upper in _AT_MOST:
        for label, name in layout.places:
            if name == lower and (layout.column(rows, lower, label) > layout.column(rows, upper, label)).any():
                raise _wrong(lower, f"at most {upper}", where, label or "")
    for label, _ in layout.labels:
        if (layout.column(rows, "events", label) > layout.column(rows, "events")).any():
            raise _wrong("events with a label", "at most all events", where, label)


def _check_steps(layout: HistoryLayout, rows: Array, first_step: int, where: str) -> None:
    """Every step is in one row."""
    ends, steps = layout.column(rows, "step"), layout.column(rows, "steps")
    begins = np.concatenate([[first_step], ends[:-1]])[: len(ends)]
    if (steps < 1).any() or (ends - steps != begins).any():
        raise _wrong("rows", "each step once, in order", where, ends[:8].tolist())


def _wrong(what: str, rule: str, where: str, value: object) -> TornCheckpoint:
    return TornCheckpoint(f"{what} of a metric history must have {rule}", where=where, value=value)
