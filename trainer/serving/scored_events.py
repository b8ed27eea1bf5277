"""Labelled events with their predictions, as figures are computed from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trainer.model.task_heads import AnyHead
from trainer.run.reading.columns import DecodedFragment
from trainer.run.reading.stream import ReadFragment
from trainer.serving.trained import Trained
from transforms.arrays import Array
from warehouse.solution.parts import SolutionFragment
from warehouse.solution.solution import ReadSolution


@dataclass(frozen=True, slots=True, eq=False)
class ScoredEvents:
    """Events in time order.

    Attributes:
        head: the model's task.
        labels: float32 [events], or [events, labels] with NaN where an event lacks one.
        logits: after calibration, [events] or [events, width].
        positions: of each fragment, the stored events that were scored, int64; None: all of them.
    """

    head: AnyHead
    labels: Array
    logits: Array
    positions: tuple[Array | None, ...]


def score_events(
    trained: Trained,
    solution: ReadSolution,
    read: ReadFragment,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> ScoredEvents:
    """Score the labelled events of ``solution``. Raises :class:`~trainer.errors.RunMismatch` for other inputs than the model's."""
    positions: list[Array | None] = []
    labels: list[Array] = []
    logits: list[Array] = []

    def note(fragment: SolutionFragment, decoded: DecodedFragment) -> None:
        positions.append(decoded.positions)

    for own, scores in trained.scored(solution, read, progress=progress, note=note):
        labels.append(own.copy())
        logits.append(scores)
    head = trained.weights.head
    return ScoredEvents(head, *joined_scores(head, labels, logits), tuple(positions))


def joined_scores(head: AnyHead, labels: Sequence[Array], logits: Sequence[Array]) -> tuple[Array, Array]:
    """The labels and logits of batches, one after the other; without batches arrays of no event."""
    none = np.zeros((0, head.width) if head.width > 1 else 0)
    return np.concatenate([np.zeros(head.label_shape(0), np.float32), *labels]), np.concatenate([none, *logits])
