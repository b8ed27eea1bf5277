"""A channel between the hosts of a job, over TCP: one stream from each host to each other, one message a call."""

from __future__ import annotations

import queue
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trainer.errors import AttemptOver, HostLost
from trainer.flight.addresses import Address
from trainer.flight.byte_streams import rest_of
from trainer.flight.error_documents import MOST_ERROR_BYTES, BadAnswer, from_bytes
from trainer.host.host_messages import LENGTH, Bytes, Sender, write_greeting, write_message
from trainer.host.mailbox import Mailbox

Array = np.ndarray[Any, np.dtype[Any]]

_LOOK_SECS = 0.05
_CONNECT_SECS = 10.0
#: How long a host may take to say why it ended a stream.
_ERROR_SECS = 1.0
_MOST_REASON = 500
_NEXT_STEP = "the job trains the epoch again from its last commit"


class HostExchange:
    """One channel of an attempt: a :class:`~trainer.host.channels.Channel`.

    Args:
        mailbox: where this host's messages arrive.
        addresses: of each host's :class:`~trainer.host.exchange_service.ExchangeService`, by rank.
        channel: its number.
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
        channel: int = 0,
        token: str = "",
        check: Callable[[], None],
        patience_secs: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rank, self.hosts = rank, len(addresses)
        self._mailbox, self._attempt, self._channel, self._still = mailbox, attempt, channel, check
        self._token, self._patience_secs, self._clock = token, patience_secs, clock
        self._number = 0
        # Each host sends to the next one first: no host receives from all at once.
        others = [(rank + k) % self.hosts for k in range(1, self.hosts)]
        self._addresses = {r: addresses[r] for r in others}
        self._streams: dict[int, socket.socket] = {}
        self._own: queue.SimpleQueue[Sequence[Array]] = queue.SimpleQueue()
        self._is_closed = False
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        mailbox.begin(attempt)

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """See :class:`~trainer.embedding.exchange.Exchange`. Raises :class:`HostLost`, and what ``check`` raises."""
        self.send(parts)
        return self.receive()

    def send(self, parts: Sequence[Sequence[Array]]) -> None:
        """See :class:`~trainer.host.channels.Channel`. Raises as :meth:`all_to_all`."""
        with self._sending:
            self._own.put(parts[self.rank])
            for r in self._addresses:
                if r not in self._streams:
                    self._open(r)
                self._send(r, write_message(self._number, parts[r], self._mailbox.most_bytes))
            self._number += 1

    def receive(self) -> list[Sequence[Array]]:
        """See :class:`~trainer.host.channels.Channel`. Raises as :meth:`all_to_all`."""
        with self._receiving:
            found = {r: self._take(r) for r in self._addresses}
            found[self.rank] = self._take_own()
            return [found[r] for r in range(self.hosts)]

    def _check(self) -> None:
        if self._is_closed:
            raise AttemptOver("a channel must be open until the attempt ends", where=str(self._sender(self.rank)))
        self._still()

    def _sender(self, rank: int) -> Sender:
        return Sender(self._attempt, rank, self._channel)

    def _open(self, r: int) -> None:
        address = self._addresses[r]
        try:
            stream = self._streams[r] = socket.create_connection((address.host, address.port), _CONNECT_SECS)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            stream.settimeout(_LOOK_SECS)
        except OSError as error:
            self._check()
            raise HostLost("a host must answer", where=str(self._sender(r)), value=str(error),
                           next_step=_NEXT_STEP) from None  # fmt: skip
        self._send(r, [write_greeting(self._sender(self.rank), self._token)])

    def _send(self, r: int, parts: list[Bytes]) -> None:
        """Send bytes, and check while the other host does not take them."""
        stream, until = self._streams[r], self._clock() + self._patience_secs
        left = [memoryview(part) for part in parts]
        while left:
            try:
                sent = stream.sendmsg(left)
            except TimeoutError:
                self._check()
                if self._clock() >= until:
                    raise self._silent(r) from None
                continue
            except OSError as error:
                raise self._lost(r, str(error)) from None
            left = rest_of(left, sent)

    def _lost(self, r: int, failure: str) -> HostLost:
        self._check()  # an attempt that was given up is not a lost host
        reason = _reason(self._streams[r], str(self._addresses[r])) or failure
        return HostLost("a host must take what is sent to it", where=str(self._sender(r)), value=reason,
                        next_step=_NEXT_STEP)  # fmt: skip

    def _silent(self, r: int) -> HostLost:
        return HostLost("a host must answer", where=str(self._sender(r)),
                        value=f"silent for {self._patience_secs:g} s", next_step=_NEXT_STEP)  # fmt: skip

    def _take(self, r: int) -> Sequence[Array]:
        sender, until = self._sender(r), self._clock() + self._patience_secs
        while True:
            self._check()
            has_ended = self._has_ended(r)  # before the look, since its last message may have come
            message = self._mailbox.take(sender, _LOOK_SECS)
            if message is not None:
                return message.arrays
            if has_ended:
                raise self._lost(r, "it ended the stream")
            if self._clock() >= until:
                raise self._silent(r)

    def _take_own(self) -> Sequence[Array]:
        """What this host sent to itself, once another thread has sent it."""
        while True:
            try:
                return self._own.get(timeout=_LOOK_SECS)
            except queue.Empty:
                self._check()

    def _has_ended(self, r: int) -> bool:
        """Whether the other host has ended this host's stream: it sends nothing but the error before its end."""
        stream = self._streams.get(r)
        if stream is None:
            return False
        looks = select.poll()
        looks.register(stream, select.POLLIN)
        return bool(looks.poll(0))

    def close(self) -> None:
        """End the streams to the other hosts; calls in other threads raise :class:`AttemptOver`."""
        self._is_closed = True
        with self._sending, self._receiving:
            for stream in self._streams.values():
                stream.close()


def _reason(stream: socket.socket, where: str) -> str:
    """Why the other host ended a stream; empty if it did not say so."""
    try:
        stream.settimeout(_ERROR_SECS)
        with stream.makefile("rb") as file:
            head = file.read(LENGTH.size)
            length = LENGTH.unpack(head)[0] if len(head) == LENGTH.size else 0
            if not 0 < length <= MOST_ERROR_BYTES:
                return ""
            return str(from_bytes(file.read(length), where))[:_MOST_REASON]
    except (OSError, BadAnswer):
        return ""
