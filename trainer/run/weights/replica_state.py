"""The state of the dense part on every replica of a slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from trainer.tables.tpu.replica_variables import replica_variable

if TYPE_CHECKING:
    from trainer.model.dense_step import DenseState


class ReplicaState:
    """The state of the dense part on every replica of ``strategy``: equal states, since they sum their gradients, but for slots that are shared out.

    Args:
        states_of: the state of each replica, from the whole one; None where all of them have the whole one.
        whole_of: its inverse.
    """

    def __init__(
        self,
        strategy: Any,
        initial: DenseState,
        states_of: Callable[[DenseState], Sequence[DenseState]] | None = None,
        whole_of: Callable[[Sequence[DenseState]], DenseState] | None = None,
    ) -> None:
        import tensorflow as tf

        self._replicas = strategy.num_replicas_in_sync
        self._states_of, self._whole_of = states_of, whole_of
        with strategy.scope():
            self._variables = tf.nest.map_structure(replica_variable, self._states(initial)[0])
        if states_of is not None:
            self.assign(initial)

    def _states(self, whole: DenseState) -> Sequence[DenseState]:
        return [whole] * self._replicas if self._states_of is None else self._states_of(whole)

    def read(self) -> Any:
        """The state of this replica, inside a step."""
        import tensorflow as tf

        return tf.nest.map_structure(lambda one: one.read_value(), self._variables)

    def write(self, state: Any) -> None:
        """Set the state of this replica, inside a step."""
        import tensorflow as tf

        for variable, value in zip(tf.nest.flatten(self._variables), tf.nest.flatten(state), strict=True):
            variable.assign(tf.ensure_shape(value, variable.shape))

    def values(self) -> DenseState:
        """The whole state, on the host."""
        import tensorflow as tf

        def of_replica(replica: int) -> Any:
            return tf.nest.map_structure(lambda one: one.values[replica].numpy(), self._variables)

        first: DenseState = of_replica(0)
        if self._whole_of is None:
            return first
        # weights are equal: of the other replicas the slots alone cross
        slots = [[one.values[replica].numpy() for one in self._variables["slots"]] for replica in range(self._replicas)]
        return self._whole_of([{**first, "slots": own} for own in slots])

    def assign(self, state: DenseState) -> None:
        """Set the state of all replicas, on the host."""
        import tensorflow as tf

        for replica, own in enumerate(self._states(state)):
            for variable, value in zip(tf.nest.flatten(self._variables), tf.nest.flatten(own), strict=True):
                variable.values[replica].assign(value)
