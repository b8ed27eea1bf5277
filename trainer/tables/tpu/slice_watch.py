"""Notices that a machine of a slice ended, or was started again: TensorFlow's client waits for ever for a server that has gone.

A server answers for its devices with a number of each that is drawn when it starts (the *incarnation*). So equal answers are those of one process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import grpc

from trainer.errors import SliceLost

_LOG = logging.getLogger(__name__)
#: Machines of a slice start one after another.
START_SECS = 600.0
#: A server that does not answer for so long is lost.
SILENCE_SECS = 30.0
#: Time for the thread that trains to find by itself what was lost.
GRACE_SECS = 10.0
_LOOK_SECS = 1.0
_STATUS = "/tensorflow.WorkerService/GetStatus"

#: What a server says of its devices; raises :class:`grpc.RpcError` without an answer.
Look = Callable[[str], bytes]
#: What is done about a slice of which a machine is lost.
OnLost = Callable[[SliceLost], None]


def look_at(server: str) -> bytes:
    """What the TensorFlow server at ``host:port`` says of its devices. Raises :class:`grpc.RpcError` without an answer."""
    with grpc.insecure_channel(server) as channel:
        found: bytes = channel.unary_unary(_STATUS)(b"", timeout=_LOOK_SECS)
        return found


def wait_for_servers(
    servers: Sequence[str],
    *,
    patience_secs: float = START_SECS,
    look: Look = look_at,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, bytes]:
    """Wait until all servers answer; what they say of their devices. Raises :class:`SliceLost` after ``patience_secs``."""
    until_secs, found = clock() + patience_secs, dict[str, bytes]()
    for server in servers:
        is_waited_for = False
        while server not in found:
            try:
                found[server] = look(server)
            except grpc.RpcError as error:
                if clock() >= until_secs:
                    raise _lost(server, f"no answer for {patience_secs:g} s") from error
                if not is_waited_for:
                    _LOG.warning("waiting for the TensorFlow server at %s, for up to %g s", server, patience_secs)
                is_waited_for = True
                sleep(_LOOK_SECS)
    return found


@dataclass(slots=True)
class SliceWatch:
    """Looks at the servers of a slice.

    Attributes:
        answers: what each server said of its devices before its machine was used, by address.
        silence_secs: see :data:`SILENCE_SECS`.
    """

    answers: Mapping[str, bytes]
    look: Look = look_at
    clock: Callable[[], float] = time.monotonic
    silence_secs: float = SILENCE_SECS
    _heard_secs: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self._heard_secs = dict.fromkeys(self.answers, self.clock())

    def find_lost(self) -> SliceLost | None:
        """Look at each server once; an error for one that another process has replaced, or that is silent for too long."""
        for server, before in self.answers.items():
            try:
                answer = self.look(server)
            except grpc.RpcError:
                silent_secs = self.clock() - self._heard_secs[server]
                if silent_secs >= self.silence_secs:
                    return _lost(server, f"no answer for {silent_secs:.0f} s")
                continue
            if answer != before:
                return _lost(server, "another process")
            self._heard_secs[server] = self.clock()
        return None


def watch_slice(watch: SliceWatch, on_lost: OnLost, *, grace_secs: float = GRACE_SECS) -> None:
    """Look in a thread of its own until a machine is lost; then call ``on_lost``, after time in which training may end by itself."""

    def run() -> None:
        while (lost := watch.find_lost()) is None:
            time.sleep(_LOOK_SECS)
        _LOG.error("%s", lost)
        time.sleep(grace_secs)
        on_lost(lost)

    threading.Thread(target=run, name="slice-watch", daemon=True).start()


def _lost(server: str, found: str) -> SliceLost:
    return SliceLost("each machine of a TPU slice must answer, and keep what it was sent", where=f"the TensorFlow server at {server}", value=found,
                     next_step="start training again when all machines of the slice run headrace role tpu-server: it goes on from the last checkpoint")  # fmt: skip
