"""Hidden units that are off: ReLU units whose output is zero for all events of the last steps. They have no gradient, and learn nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: A unit that was off for so many steps counts as off.
COUNTED_STEPS = 1000


@dataclass(frozen=True, slots=True)
class IdleUnits:
    """The state of the hidden units of a network.

    Attributes:
        units: all of them.
        off: those whose output was zero for every event of the last ``steps`` steps.
        steps: at most :data:`COUNTED_STEPS`; fewer in a process that has trained fewer.
    """

    units: int
    off: int
    steps: int


class UnitCounter:
    """Counts, for every ReLU unit, the steps since it was last on. It is no part of a checkpoint."""

    def __init__(self, units: int) -> None:
        import tensorflow as tf

        self._units = units
        self._steps_off = tf.Variable(tf.zeros([units], tf.int32), trainable=False)
        self._steps = tf.Variable(0, trainable=False)

    def add(self, hidden: list[Any], weights: Any) -> None:
        """Count a step in a traced function: the outputs of hidden layers [events, units], and the weights of events, 0 for padding."""
        import tensorflow as tf

        counted = tf.cast(weights > 0, tf.float32)[:, None]
        is_on = tf.concat([tf.reduce_max(one * counted, axis=0) > 0 for one in hidden], axis=0)
        self._steps_off.assign(tf.where(is_on, 0, self._steps_off + 1))
        self._steps.assign_add(1)

    def counts(self) -> IdleUnits:
        """The state after the last step."""
        steps = min(int(self._steps.numpy()), COUNTED_STEPS)
        off = int((self._steps_off.numpy() >= steps).sum()) if steps else 0
        return IdleUnits(self._units, off, steps)
