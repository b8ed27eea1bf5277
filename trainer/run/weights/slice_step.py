"""The dense part of a step on the replicas of a slice, with its whole update on each replica or with segments of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer.run.weights.replica_state import ReplicaState
from trainer.tables.tpu.replica_variables import over_replicas
from trainer.tables.tpu.slices import TpuSlice

if TYPE_CHECKING:
    from trainer.model.dense_step import DensePart, DenseResult


class SliceStep:
    """The step of ``dense`` on ``slice_``.

    ``sharded_bytes``: dense weights of so many bytes are updated in segments; None for :data:`~trainer.model.sharded_step.SHARDED_BYTES`.
    """

    def __init__(self, dense: DensePart, slice_: TpuSlice, sharded_bytes: int | None = None) -> None:
        from trainer.model.sharded_step import SHARDED_BYTES, ShardedStep, pays

        self._dense, self._slice = dense, slice_
        least, kind = SHARDED_BYTES if sharded_bytes is None else sharded_bytes, dense.config.dense_optimizer
        is_sharded = pays(kind, dense.model.trainable, slice_.replicas, least)
        self._sharded = ShardedStep(dense, slice_.mesh) if is_sharded else None

    @property
    def is_sharded(self) -> bool:
        """Whether each replica updates a segment of the weights."""
        return self._sharded is not None

    def new_state(self) -> ReplicaState:
        """The state of the replicas, from that of the model."""
        whole, sharded = self._dense.read_state(), self._sharded
        if sharded is None:
            return ReplicaState(self._slice.strategy, whole)
        return ReplicaState(self._slice.strategy, whole, sharded.states_of, sharded.whole_state)

    def step(self, state: Mapping[str, Any], activations: Any, dense: Any, labels: Any, weights: Any) -> DenseResult:
        """See :meth:`DensePart.step <trainer.model.dense_step.DensePart.step>`, inside a step of the slice."""
        inputs = state, activations, dense, labels, weights
        if self._sharded is not None:
            return self._sharded.step(*inputs, collectives=self._slice.collectives)
        return self._dense.step(*inputs, replicas=self._slice.replicas, total_of=over_replicas)
