"""The TensorFlow servers of a slice of several machines: one on each machine, driven by one process elsewhere.

The process that trains is TensorFlow's single client: it makes the programs, and servers run them on the devices of their machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trainer.errors import ConfigError, SliceLost

#: What TensorFlow says of a machine whose server was started again, or ended during a call, in errors of other kinds.
_LOST = ("context_id", "Socket closed", "failed to connect to all addresses", "Connection reset by peer")


def slice_servers(name: str) -> tuple[str, ...]:
    """The addresses of servers in a name such as ``host:port,host:port``; none in the name of a TPU.

    Raises :class:`ConfigError` for addresses that are not all of this form, or repeat.
    """
    if ":" not in name and "," not in name:
        return ()
    found = tuple(one.strip().removeprefix("grpc://") for one in name.split(","))
    for one in found:
        host, _, port = one.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise ConfigError("a TensorFlow server must be named by its address", where="--tpu", value=one[:100] or None,
                              allowed="host:port, of each machine of the slice, with commas between them")  # fmt: skip
    if len({*found}) < len(found):
        raise ConfigError("TensorFlow servers must have an address each", where="--tpu", value=name[:300])
    return found


@contextmanager
def noticing_lost_machines() -> Iterator[None]:
    """Raise :class:`SliceLost` for an error of TensorFlow's that says that a machine of a slice is lost, whatever it was used for."""
    try:
        yield
    except Exception as error:
        lost = lost_slice(error)
        if lost is None:
            raise
        raise lost from error


def lost_slice(error: Exception) -> SliceLost | None:
    """The clear error for one of a program whose machine ended, or was started again without what it had; None for another error."""
    import tensorflow as tf

    away = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.DeadlineExceededError)
    text = str(error)
    is_lost = isinstance(error, away) or any(sign in text for sign in _LOST)
    if not (isinstance(error, tf.errors.OpError) and is_lost):
        return None
    return SliceLost("a machine of the TPU slice must answer, with what it has been sent", where="--tpu", value=f"{type(error).__name__}: {text[:300]}",
                     next_step="start training again when all machines of the slice run: it goes on from the last checkpoint")  # fmt: skip
