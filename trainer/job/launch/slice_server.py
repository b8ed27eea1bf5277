"""The TensorFlow server of one machine of a TPU slice: it runs the programs of a host that is elsewhere, on the devices of this machine.

A slice of several machines is driven by one host, TensorFlow's single client, which connects to the servers of all of them
(:mod:`trainer.tables.tpu.slice_servers`). A server has no state of the job: a host that begins again makes its variables again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from trainer.errors import ConfigError
from trainer.job.control.controller_client import ControllerClient
from trainer.job.launch.job_spec import JobSpec
from trainer.job.launch.reported_notice import report_notice
from trainer.job.launch.slice_metrics import SliceMetrics
from trainer.scheduling.events import Role, RoleKind
from trainer.wire.flight.addresses import Address
from transforms.errors import HeadraceError

_LOG = logging.getLogger(__name__)
_LOOK_SECS = 0.5


def run_slice_server(
    port: int,
    *,
    on_signals: Callable[[Callable[[], None]], None],
    notify: Callable[[float], None] | None = None,
    grace_secs: float = 0.0,
    cpus: int = 0,
    metrics: SliceMetrics | None = None,
) -> None:
    """Serve at ``port`` of this machine until a signal, and ``grace_secs`` longer: the host may commit meanwhile.

    TensorFlow checks no token: the network must be private.

    Args:
        notify: gives the host a notice of so many seconds.
        cpus: CPUs that stand for as many devices, in tests; 0: the machine's devices.
        metrics: of this server.

    Raises :class:`ConfigError` for a port that cannot be taken.
    """
    import tensorflow as tf

    if not 0 < port < 1 << 16:
        raise ConfigError("the port of a TensorFlow server must be one of the machine's", where="--port", value=port,
                          allowed=f"1 to {(1 << 16) - 1}")  # fmt: skip
    metrics = metrics or SliceMetrics(port)
    ended = threading.Event()
    on_signals(ended.set)
    config = tf.compat.v1.ConfigProto(device_count={"CPU": cpus} if cpus else {})
    try:
        # A client says which machine of the slice this is when it connects.
        server = tf.distribute.Server({"worker": [f"localhost:{port}"]}, job_name="worker", task_index=0, config=config)
    except tf.errors.OpError as error:
        raise ConfigError("a TensorFlow server must be able to take its port", where="--port", value=f"{port}: {str(error)[:300]}",
                          next_step="end the process that has it, or choose another --port") from error  # fmt: skip
    _LOG.info("the TensorFlow server of this machine is at port %d: %s", port, server.target)
    metrics.is_serving = True
    while not ended.wait(_LOOK_SECS):
        on_signals(ended.set)  # TensorFlow puts a handler of its own in place of ours when a client of TPUs connects
    metrics.is_leaving = True
    if notify is not None:
        ends_secs = time.monotonic() + grace_secs
        notify(grace_secs)
        time.sleep(max(0.0, ends_secs - time.monotonic()))


def notice_of_host(host: str, controller: Address, token: str) -> Callable[[float], None]:
    """What gives the host that drives a slice the notice of one of its machines."""

    def notify(grace_secs: float) -> None:
        client = ControllerClient(controller, token=token)
        try:
            client.job = JobSpec.parse(client.spec(), f"the job of {controller}").job
            report_notice(client, Role(RoleKind.HOST, host), grace_secs)
        except HeadraceError as error:
            _LOG.warning("the preemption notice was not delivered: %s", error.what)
        finally:
            client.close()

    return notify
