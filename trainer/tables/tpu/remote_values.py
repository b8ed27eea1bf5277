"""The values of variables that may be on devices of another machine.

A message between processes of TensorFlow has less than 2 GiB, so larger values cross in parts, which are cut and put together in the memory of
the machine that has the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array

#: The most bytes of a part.
MOST_BYTES = 1 << 28


def sent_values(values: Array, *, most_bytes: int = MOST_BYTES) -> Any:
    """The values as a tensor on the device that TensorFlow has chosen for new tensors, at least of one dimension."""
    import tensorflow as tf

    rows = max(most_bytes * len(values) // max(values.nbytes, 1), 1)
    if rows >= len(values):
        return tf.constant(values)
    return tf.concat([tf.constant(values[first : first + rows]) for first in range(0, len(values), rows)], axis=0)


def read_values(variable: Any, *, most_bytes: int = MOST_BYTES) -> Array:
    """A copy of the values of one ``tf.Variable``, at least of one dimension."""
    import tensorflow as tf

    rows = _rows_of_part(variable, most_bytes)
    if rows >= variable.shape[0]:
        return np.asarray(variable.numpy())
    with tf.device(_host_of(variable)):
        whole = tf.identity(variable)
        return np.concatenate([whole[first : first + rows].numpy() for first in range(0, variable.shape[0], rows)])


def write_values(variable: Any, values: Array, *, most_bytes: int = MOST_BYTES) -> None:
    """Set the values of one ``tf.Variable``, at least of one dimension."""
    import tensorflow as tf

    rows = _rows_of_part(variable, most_bytes)
    if rows >= variable.shape[0]:
        variable.assign(values)
        return
    with tf.device(_host_of(variable)):
        whole = sent_values(values, most_bytes=most_bytes)
    variable.assign(whole)


def _rows_of_part(variable: Any, most_bytes: int) -> int:
    row_bytes = int(variable.dtype.size) * int(np.prod(variable.shape[1:]))
    return max(most_bytes // max(row_bytes, 1), 1)


def _host_of(variable: Any) -> str:
    """The CPU of the machine that has a variable."""
    import tensorflow as tf

    spec = tf.DeviceSpec.from_string(variable.device)
    host: str = spec.replace(device_type="CPU", device_index=0).to_string()
    return host
