"""A bare Arrow Flight exchange in a process of its own: each message of row numbers is answered with one of some prepared batches of values."""

from __future__ import annotations

import json
import multiprocessing
import resource
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

#: The batches that answers are taken from, one after the other.
PREPARED = 16
_LOOPBACK = "grpc://127.0.0.1:0"


class _Exchanging(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._floats, self._answers = 0, list[Any]()

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Answer each message with as many floats as the descriptor says."""
        floats = int(json.loads(descriptor.command))
        if floats != self._floats:
            self._floats, draw = floats, np.random.default_rng(1)
            values = [draw.random(floats, np.float32) for _ in range(PREPARED)]
            self._answers = [pa.record_batch([pa.array(one)], ["values"]) for one in values]
        writer.begin(self._answers[0].schema)
        for number, _ in enumerate(reader):
            writer.write_batch(self._answers[number % PREPARED])


def _serve(pipe: Connection) -> None:
    server = _Exchanging(_LOOPBACK)
    pipe.send(server.port)
    while pipe.recv():
        used = resource.getrusage(resource.RUSAGE_SELF)
        pipe.send(used.ru_utime + used.ru_stime)
    server.shutdown()


class FlightProcess:
    """The server."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other,), daemon=True)
        self._process.start()
        other.close()
        self._client = flight.connect(f"grpc://127.0.0.1:{self._pipe.recv()}")

    @property
    def cpu_secs(self) -> float:
        """CPU seconds, user and system, of the process so far."""
        self._pipe.send(True)
        secs: float = self._pipe.recv()
        return secs

    def exchange(self, rows: int, floats: int, messages: int, ahead: int) -> None:
        """Send messages of ``rows`` int32 numbers, ``ahead`` of them before their answers, and take answers of ``floats``."""
        asked = pa.record_batch([pa.array(np.arange(rows, dtype=np.int32))], ["rows"])
        writer, reader = self._client.do_exchange(flight.FlightDescriptor.for_command(json.dumps(floats)))
        with writer:
            writer.begin(asked.schema)
            waiting: deque[None] = deque()
            for _ in range(messages):
                writer.write_batch(asked)
                waiting.append(None)
                if len(waiting) == ahead:
                    _take(reader, floats)
                    waiting.popleft()
            for _ in waiting:
                _take(reader, floats)
            writer.done_writing()

    def close(self) -> None:
        """End the process."""
        self._client.close()
        self._pipe.send(False)
        self._process.join(2.0)
        self._process.kill()


def _take(reader: Any, floats: int) -> None:
    values = reader.read_chunk().data.column(0).to_numpy()
    assert len(values) == floats
