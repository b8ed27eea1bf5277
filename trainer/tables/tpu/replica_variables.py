"""Variables of which every replica of a slice has a copy that it changes itself."""

from __future__ import annotations

from typing import Any

from transforms.arrays import Array


def replica_variable(value: Array) -> Any:
    """A variable with a copy on every replica, which only the replica itself changes; made in the scope of the strategy."""
    import tensorflow as tf

    return tf.Variable(
        value,
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.NONE,
    )


def over_replicas(values: Any) -> Any:
    """The sums of tensors over all replicas, inside ``strategy.run``."""
    import tensorflow as tf

    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, values)
