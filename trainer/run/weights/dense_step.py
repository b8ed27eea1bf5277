"""What the tables of a model and its dense part hand each other in a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from trainer.model.idle_units import IdleUnits
from trainer.model.optimizers.gradient_norms import GradientNorms
from transforms.arrays import Array

if TYPE_CHECKING:
    from trainer.model.compiled.compiled_dense import CompiledDense
    from trainer.model.dense_model import DenseModel


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


#: The dense part of a model in the memory of this process.
HostDense: TypeAlias = "CompiledDense | DenseModel"


class SummedDense(Protocol):
    """The dense part of a host of several, whose gradients are summed over all of them before weights change."""

    @property
    def sizes(self) -> list[int]:
        """The floats of each trained variable."""

    def gradients(
        self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Logits, and the gradients by both kinds of activations and by all dense weights, flat, of this host's mean loss."""

    def apply(self, gradients: Array) -> None:
        """One update of the dense weights."""


class TrainedDense(Protocol):
    """The dense part of a model in training, in this process or on other devices; see :class:`~trainer.model.dense_model.DenseModel`."""

    @property
    def idle_units(self) -> IdleUnits | None:
        """The hidden units that are off after the steps so far; None where they are not counted."""

    @property
    def gradient_norms(self) -> GradientNorms:
        """The norms of the gradients of the dense weights so far; none where this process does not have them whole."""

    def send(self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array) -> None:
        """Send what a step will be called with to its devices, in the order of steps; in another thread, while an earlier step runs."""

    def step(
        self, activations: Array, linear: Array, dense: Array, labels: Array, weights: Array
    ) -> tuple[Array, Array, Array]:
        """One update of the dense weights; returns the logits before it, and the gradients of both kinds of activations."""

    def host_model(self) -> HostDense:
        """The dense part with the weights of now, in this process; what is changed of it does not change training elsewhere."""

    def state(self) -> dict[str, Array]:
        """A copy of all state of training, by name."""

    def load_state(self, state: Mapping[str, Array]) -> None:
        """Restore a :meth:`state`. Raises :class:`~trainer.errors.TornCheckpoint` if names, types or shapes differ."""
