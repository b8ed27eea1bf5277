"""A ``TPUStrategy`` over a slice that is planned: for layouts, configurations and programs, before there is a TPU.

TensorFlow's strategy asks its cluster resolver for the devices of the slice and for the kind of its embedding hardware. The resolver
here answers from numbers. Everything that only describes a program works under such a strategy; to run one takes the TPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainer.errors import ConfigError

_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """The devices of a slice.

    Attributes:
        replicas: copies of the model, one a device of TensorFlow: chips, or cores where a chip is two devices.
        hosts: virtual machines, each with the same number of devices.
        sparse_cores: of a device; 0 for the embedding hardware of ``TPUEmbedding`` (v2 to v4).
        job: TensorFlow's name for the processes of the virtual machines.
    """

    replicas: int
    hosts: int = 1
    sparse_cores: int = 4
    job: str = "localhost"

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.hosts < 1 or self.replicas % self.hosts:
            raise ConfigError("a slice's devices must be a multiple of its hosts", value=(self.replicas, self.hosts))


def planned_strategy(slice_: PlannedSlice, *, on_cpu: bool = False, devices: Sequence[str] = ()) -> Any:
    """A ``tf.distribute.TPUStrategy`` of the slice.

    Args:
        on_cpu: the variables of all replicas are on the CPU of this process, where they hold values. Otherwise they are on TPU devices, which
            this process does not have.
        devices: where the variables of each replica are in place of that, such as on the CPUs of other processes.
    """
    import tensorflow as tf

    strategy = tf.distribute.TPUStrategy(_Resolver(slice_))
    if on_cpu or devices:
        names = [[device] for device in devices or [_CPU] * slice_.replicas]
        strategy.extended._tpu_devices = np.array(names, dtype=object)
    return strategy


class _Resolver:
    """What ``TPUStrategy`` asks of a ``TPUClusterResolver``."""

    task_type = "localhost"
    task_id = 0

    def __init__(self, slice_: PlannedSlice) -> None:
        from tensorflow.core.protobuf.tpu import topology_pb2

        self._slice = slice_
        feature = topology_pb2.TPUHardwareFeature
        self.tpu_hardware_feature = feature(
            embedding_feature=feature.V2 if slice_.sparse_cores else feature.V1,
            num_embedding_devices_per_chip=slice_.sparse_cores,
        )

    def get_tpu_system_metadata(self) -> Any:
        from tensorflow.python.client.session import _DeviceAttributes
        from tensorflow.python.tpu.tpu_system_metadata import TPUSystemMetadata

        of_host = self._slice.replicas // self._slice.hosts
        kinds = [("CPU", 0), ("TPU_SYSTEM", 0), *(("TPU", core) for core in range(of_host))]
        devices = [
            _DeviceAttributes(f"/job:{self._slice.job}/replica:0/task:{host}/device:{kind}:{index}", kind, 0, 0)
            for host in range(self._slice.hosts)
            for kind, index in kinds
        ]
        return TPUSystemMetadata(
            num_cores=self._slice.replicas,
            num_hosts=self._slice.hosts,
            num_of_cores_per_host=of_host,
            topology=None,
            devices=devices,
        )

    def master(self) -> str:
        return ""

    def get_master(self) -> str:
        return ""

    def cluster_spec(self) -> Any:
        import tensorflow as tf

        return tf.train.ClusterSpec({})

    def get_job_name(self) -> str:
        return self.task_type
