"""Which rows of a saved state have places where they are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainer.tables.engine import NO_SECTIONS, TableState
from transforms.arrays import Array


def most_important(
    states: Sequence[TableState], importance: Sequence[Array], scales: Sequence[float], places: int
) -> list[TableState]:
    """Of the states of a group's tables, as many rows as it has ``places``: the most important ones, of equal ones the first; without sections.

    ``importance``: of the rows of each state; ``scales``: what that of each table is multiplied by.
    """
    every = np.concatenate(importance)
    kept = np.ones(len(every), bool)
    if len(every) > places:
        scaled = [one * scale for one, scale in zip(importance, scales, strict=True)]
        kept[np.argsort(-np.concatenate(scaled), kind="stable")[places:]] = False
    ends = np.cumsum([len(one) for one in importance])
    return [
        TableState(one.rows[own], one.weights[own], one.slots[own])
        if len(every) > places
        else replace(one, sections=NO_SECTIONS)
        for one, own in zip(states, np.split(kept, ends[:-1]), strict=True)
    ]
