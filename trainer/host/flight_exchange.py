"""The exchange between hosts of a job, over Arrow Flight: one stream from each host to each other, one message a call.

A message is one buffer with all arrays behind each other; its sizes travel beside it as JSON and are checked before the buffer is used.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from trainer.errors import HostLost
from trainer.flight.addresses import Address
from trainer.flight.client import Client
from trainer.flight.service import Service
from transforms.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]

_SCHEMA = pa.schema([pa.field("bytes", pa.uint8(), nullable=False)])
_TYPES = {name: np.dtype(name) for name in ("float32", "int64", "int32", "uint8")}
_MOST_ARRAYS, _MOST_HOSTS, _MOST_NUMBER = 64, 4096, 2**62
_ALIGNED = 8
#: Messages of one sender that wait; one that is further ahead waits in its stream.
_MOST_WAITING = 4
_LOOK_SECS = 0.05


@dataclass(frozen=True, slots=True)
class _Sender:
    """A stream of messages: of the host of ``rank`` in an attempt."""

    attempt: int
    rank: int


@dataclass(frozen=True, slots=True)
class _Message:
    number: int
    arrays: tuple[Array, ...]


class Mailbox:
    """The messages that have come for this host, until the attempt takes them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: dict[_Sender, deque[_Message]] = {}
        self._ended: set[_Sender] = set()
        self._attempt = 0

    def begin(self, attempt: int) -> None:
        """Begin an attempt: messages of earlier ones are discarded."""
        with self._changed:
            self._attempt = attempt
            self._messages = {sender: held for sender, held in self._messages.items() if sender.attempt >= attempt}
            self._ended = {sender for sender in self._ended if sender.attempt >= attempt}
            self._changed.notify_all()

    def put(self, sender: _Sender, message: _Message) -> bool:
        """Add a message, after waiting for space; False if the attempt is over."""
        with self._changed:
            self._changed.wait_for(
                lambda: sender.attempt < self._attempt or len(self._messages.get(sender, ())) < _MOST_WAITING
            )
            if sender.attempt < self._attempt:
                return False
            self._messages.setdefault(sender, deque()).append(message)
            self._changed.notify_all()
            return True

    def end(self, sender: _Sender) -> None:
        """The stream of a sender ended."""
        with self._changed:
            self._ended.add(sender)
            self._changed.notify_all()

    def take(self, sender: _Sender, timeout_secs: float) -> _Message | None:
        """The next message of a sender, or None if there is none yet. Raises :class:`HostLost` after the end of its stream."""
        with self._changed:
            self._changed.wait_for(lambda: self._messages.get(sender) or sender in self._ended, timeout_secs)
            if held := self._messages.get(sender):
                message = held.popleft()
                self._changed.notify_all()
                return message
            if sender in self._ended:
                raise HostLost("a host must stay until the end of the attempt", where=f"rank {sender.rank}, attempt {sender.attempt}",
                               next_step="the job trains the epoch again from its last commit")  # fmt: skip
            return None


class ExchangeService(Service):
    """Receives what other hosts send to this one."""

    def __init__(self, address: Address, mailbox: Mailbox, *, token: str = "") -> None:
        self._mailbox = mailbox
        super().__init__(address, token=token)

    def do_put(self, context: Any, descriptor: flight.FlightDescriptor, reader: Any, writer: Any) -> None:
        """The stream of one host in one attempt."""
        self.answer(lambda: self._receive(descriptor.command, reader))

    def _receive(self, command: bytes, reader: Any) -> None:
        sender = _read_sender(command)
        if reader.schema != _SCHEMA:
            raise DataError("a message of a host must be one column of bytes", value=str(reader.schema)[:200])
        try:
            for number, chunk in enumerate(_chunks(reader)):
                message = _read_message(chunk)
                if message.number != number:
                    raise DataError("messages of a host must be in order", value=message.number, allowed=str(number))
                if not self._mailbox.put(sender, message):
                    return
        finally:
            self._mailbox.end(sender)


def _chunks(reader: Any) -> Any:
    while True:
        try:
            yield reader.read_chunk()
        except StopIteration:
            return


def _read_sender(command: bytes) -> _Sender:
    numbers = _read_numbers(command, ("attempt", "rank"))
    if numbers["rank"] >= _MOST_HOSTS:
        raise DataError(
            "the rank of a host must be that of a job", value=numbers["rank"], allowed=f"below {_MOST_HOSTS}"
        )
    return _Sender(numbers["attempt"], numbers["rank"])


def _read_numbers(content: bytes, names: Sequence[str]) -> dict[str, int]:
    document = _read_json(content)
    if document.keys() != set(names) or not all(
        type(one) is int and 0 <= one <= _MOST_NUMBER for one in document.values()
    ):
        raise DataError("a stream of a host must name its sender", value=str(document)[:200], allowed=", ".join(names))
    return document


def _read_json(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(bytes(content[: 1 << 14]))
    except (ValueError, RecursionError) as error:
        raise DataError("a message of a host must be described in JSON", value=str(error)[:200]) from None
    if not isinstance(document, dict):
        raise DataError("a message of a host must be described by an object", value=type(document).__name__)
    return document


def _read_message(chunk: Any) -> _Message:
    described = _read_json(chunk.app_metadata.to_pybytes() if chunk.app_metadata is not None else b"")
    number, arrays = described.get("number"), described.get("arrays")
    if type(number) is not int or not isinstance(arrays, list) or len(arrays) > _MOST_ARRAYS:
        raise DataError("a message of a host must have a number and arrays", value=str(described)[:200])
    body = chunk.data.column(0)
    if body.null_count or body.offset:
        raise DataError("a message of a host must be bytes without nulls", value=body.null_count)
    content = np.frombuffer(body.buffers()[1], np.uint8, len(body)) if len(body) else np.zeros(0, np.uint8)
    found, at = [], 0
    for one in arrays:
        dtype, length = _read_array(one)
        stop = at + dtype.itemsize * length
        if stop > len(content):
            raise DataError("the arrays of a message must fit its bytes", value=stop, allowed=str(len(content)))
        array = content[at:stop].view(dtype)
        array.flags.writeable = False
        found.append(array)
        at = -(-stop // _ALIGNED) * _ALIGNED
    if at != len(content):
        raise DataError("the arrays of a message must fill its bytes", value=at, allowed=str(len(content)))
    return _Message(number, tuple(found))


def _read_array(one: object) -> tuple[np.dtype[Any], int]:
    if (
        isinstance(one, list)
        and len(one) == 2
        and one[0] in _TYPES
        and type(one[1]) is int
        and 0 <= one[1] <= _MOST_NUMBER
    ):
        return _TYPES[one[0]], one[1]
    raise DataError(
        "an array of a message must have a type and a length", value=str(one)[:80], allowed=", ".join(_TYPES)
    )


def _written(number: int, arrays: Sequence[Array]) -> tuple[pa.RecordBatch, bytes]:
    """A message as a batch and its description. Arrays must have one dimension."""
    sizes = [-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays]
    content = np.zeros(sum(sizes), np.uint8)
    at = 0
    for array, size in zip(arrays, sizes, strict=True):
        content[at : at + array.nbytes] = np.ascontiguousarray(array).view(np.uint8)
        at += size
    described = {"number": number, "arrays": [[str(array.dtype), len(array)] for array in arrays]}
    column = pa.Array.from_buffers(pa.uint8(), len(content), [None, pa.py_buffer(content)])
    return pa.RecordBatch.from_arrays([column], schema=_SCHEMA), json.dumps(described).encode()


class FlightExchange:
    """The exchange of one attempt.

    Args:
        addresses: of each host's :class:`ExchangeService`, by rank.
        check: called while it waits; raises to end the attempt.
        patience_secs: a host may be silent for so long.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        attempt: int,
        rank: int,
        addresses: Sequence[Address],
        *,
        token: str = "",
        check: Callable[[], None],
        patience_secs: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rank, self.hosts = rank, len(addresses)
        self._mailbox, self._attempt, self._check = mailbox, attempt, check
        self._patience_secs, self._clock = patience_secs, clock
        self._number = 0
        self._clients = {r: Client(address, token=token) for r, address in enumerate(addresses) if r != rank}
        self._writers: Mapping[int, Any] = {}
        mailbox.begin(attempt)

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """See :class:`~trainer.embedding.exchange.Exchange`. Raises :class:`HostLost`, and what ``check`` raises."""
        if not self._writers:
            self._writers = {r: self._open(r) for r in self._clients}
        for r, writer in self._writers.items():
            self._guarded(r, partial(writer.write_with_metadata, *_written(self._number, parts[r])))
        received: list[Sequence[Array]] = [parts[r] if r == self.rank else self._take(r) for r in range(self.hosts)]
        self._number += 1
        return received

    def _open(self, r: int) -> Any:
        command = json.dumps({"attempt": self._attempt, "rank": self.rank}).encode()
        descriptor = flight.FlightDescriptor.for_command(command)

        def put(client: flight.FlightClient, options: flight.FlightCallOptions) -> Any:
            return client.do_put(descriptor, _SCHEMA, options)[0]

        return self._guarded(r, lambda: self._clients[r].call(put, timeout_secs=None))

    def _guarded(self, r: int, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (pa.ArrowException, OSError) as error:
            self._check()  # an attempt that was given up is not a lost host
            raise HostLost("a host must take what is sent to it", where=f"rank {r}, attempt {self._attempt}",
                           value=(str(error).splitlines() or [type(error).__name__])[0],
                           next_step="the job trains the epoch again from its last commit") from None  # fmt: skip

    def _take(self, r: int) -> Sequence[Array]:
        sender, until = _Sender(self._attempt, r), self._clock() + self._patience_secs
        while True:
            self._check()
            message = self._mailbox.take(sender, _LOOK_SECS)
            if message is not None:
                return message.arrays
            if self._clock() >= until:
                raise HostLost("a host must answer", where=f"rank {r}, attempt {self._attempt}",
                               value=f"silent for {self._patience_secs:g} s")  # fmt: skip

    def close(self) -> None:
        """End the streams to the other hosts."""
        for writer in self._writers.values():
            try:
                writer.close()
            except (pa.ArrowException, OSError):
                continue  # that host is gone
        for client in self._clients.values():
            client.close()
