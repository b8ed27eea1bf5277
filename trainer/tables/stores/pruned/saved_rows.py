"""Which rows of a saved state have places where they are loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from trainer.options.pruning import PruningOptions
from trainer.planning.row_groups import RowGroup
from trainer.tables.engine import NO_SECTIONS, TableState
from trainer.tables.kernels.threads import Team
from trainer.tables.stores.pruned.row_importance import chosen_of, scale_of
from transforms.arrays import Array


def most_important(
    group: RowGroup, states: Sequence[TableState], importance: Sequence[Array], options: PruningOptions, *, seed: int, step: int, team: Team,
) -> list[TableState]:  # fmt: skip
    """Of the states of a group's tables, as many rows as it has places: the most important ones, of equal ones the first; without sections.

    Args:
        group: the tables, and their places.
        states: of each of them.
        importance: of all rows of each of them.
        options: how rows are chosen.
        seed: what samples are drawn from.
        step: the updates of the engine.
        team: threads.
    """
    ranked = [values[one.rows] for values, one in zip(importance, states, strict=True)]
    if sum(map(len, ranked)) <= group.rows:
        return [replace(one, sections=NO_SECTIONS) for one in states]
    scales = [scale_of(chosen_of(values, options, seed, step, t), options, team)
              for t, values in zip(group.tables, importance, strict=True)]  # fmt: skip
    scaled = np.concatenate([one * scale for one, scale in zip(ranked, scales, strict=True)])
    kept = np.ones(len(scaled), bool)
    kept[np.argsort(-scaled, kind="stable")[group.rows :]] = False
    ends = np.cumsum([len(one) for one in ranked])
    return [
        TableState(one.rows[own], one.weights[own], one.slots[own])
        for one, own in zip(states, np.split(kept, ends[:-1]), strict=True)
    ]
