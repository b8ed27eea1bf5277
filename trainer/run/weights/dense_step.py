"""What the tables of a model and its dense part hand each other in a step."""

from __future__ import annotations

from dataclasses import dataclass

from transforms.arrays import Array


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The activations of a batch for the deep part and for the linear part, float32 [batch_rows, width]."""

    deep: Array
    linear: Array


@dataclass(frozen=True, slots=True)
class TableGradients:
    """The loss's gradients by the activations, of their shapes."""

    deep: Array
    linear: Array


@dataclass(frozen=True, slots=True)
class DenseStep:
    """The dense part of a step.

    Attributes:
        logits: before the step, float32 [batch.rows] or [batch.rows, classes].
        gradients: those of the tables, by this host's loss.
    """

    logits: Array
    gradients: TableGradients
