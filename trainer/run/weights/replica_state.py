"""Variables of which every replica of a slice has a copy that it changes itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer.tables.tpu.replica_variables import replica_variable

if TYPE_CHECKING:
    from trainer.model.dense_step import DenseState


class ReplicaState:
    """The state of the dense part on every replica of ``strategy``; replicas have equal states, since they sum their gradients."""

    def __init__(self, strategy: Any, initial: DenseState) -> None:
        import tensorflow as tf

        with strategy.scope():
            self._variables = tf.nest.map_structure(replica_variable, initial)

    def read(self) -> Any:
        """The state of this replica, inside a step."""
        import tensorflow as tf

        return tf.nest.map_structure(lambda one: one.read_value(), self._variables)

    def write(self, state: Any) -> None:
        """Set the state of this replica, inside a step."""
        import tensorflow as tf

        for variable, value in zip(tf.nest.flatten(self._variables), tf.nest.flatten(state), strict=True):
            variable.assign(tf.ensure_shape(value, variable.shape))

    def values(self) -> Any:
        """The state of the first replica, on the host."""
        import tensorflow as tf

        return tf.nest.map_structure(lambda one: one.values[0].numpy(), self._variables)

    def assign(self, state: Any) -> None:
        """Set the state of all replicas, on the host."""
        import tensorflow as tf

        for variable, value in zip(tf.nest.flatten(self._variables), tf.nest.flatten(state), strict=True):
            for part in variable.values:
                part.assign(value)
