"""What the devices of a slice exchange inside a program, along the lines of a mesh.

TensorFlow has no operation that gathers from a group of devices: each sends its part to all of its group by an all-to-all, which has the bytes of a gather.
"""

from __future__ import annotations

from typing import Any

from trainer.planning.meshes import Groups


class SliceCollectives:
    """See :class:`~trainer.model.sharded_step.Collectives`: in programs of TPUs that all devices of the slice run.

    Attributes:
        devices: of the slice.
    """

    def __init__(self, devices: int) -> None:
        self.devices = devices

    def replica(self) -> Any:
        """The number of this device."""
        import tensorflow as tf
        from tensorflow.compiler.tf2xla.ops import gen_xla_ops

        return tf.cast(gen_xla_ops.xla_replica_id(), tf.int32)

    def total(self, value: Any) -> Any:
        """The sum of a tensor over all devices."""
        from tensorflow.python.tpu.ops import tpu_ops

        return tpu_ops.cross_replica_sum(value, group_assignment=[list(range(self.devices))])

    def reduce_scatter(self, flat: Any, groups: Groups) -> Any:
        """The part of this device of the sum over its group."""
        from tensorflow.compiler.tf2xla.ops import gen_xla_ops

        return gen_xla_ops.xla_reduce_scatter(input=flat, group_assignment=groups, scatter_dimension=0, reduce_op="Add")

    def all_gather(self, part: Any, groups: Groups) -> Any:
        """The parts of the devices of this device's group, one after another."""
        import tensorflow as tf
        from tensorflow.python.tpu.ops import tpu_ops

        size = len(groups[0])
        copies = tf.tile(part[None], [size, 1])
        gathered = tpu_ops.all_to_all(
            copies, concat_dimension=0, split_dimension=0, split_count=size, group_assignment=groups
        )
        return tf.reshape(gathered, [-1])
