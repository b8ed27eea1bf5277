"""The exchange between the hosts of a job, over TCP: one stream from each host to each other, one message a call."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trainer.errors import HostLost
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
    """The exchange of one attempt.

    Args:
        mailbox: where this host's messages arrive.
        addresses: of each host's :class:`~trainer.host.exchange_service.ExchangeService`, by rank.
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
        self._token, self._patience_secs, self._clock = token, patience_secs, clock
        self._number = 0
        self._addresses = {r: address for r, address in enumerate(addresses) if r != rank}
        self._streams: dict[int, socket.socket] = {}
        mailbox.begin(attempt)

    def all_to_all(self, parts: Sequence[Sequence[Array]]) -> list[Sequence[Array]]:
        """See :class:`~trainer.embedding.exchange.Exchange`. Raises :class:`HostLost`, and what ``check`` raises."""
        for r in self._addresses:
            if r not in self._streams:
                self._open(r)
            self._send(r, write_message(self._number, parts[r], self._mailbox.most_bytes))
        received: list[Sequence[Array]] = [parts[r] if r == self.rank else self._take(r) for r in range(self.hosts)]
        self._number += 1
        return received

    def _open(self, r: int) -> None:
        address = self._addresses[r]
        try:
            stream = self._streams[r] = socket.create_connection((address.host, address.port), _CONNECT_SECS)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            stream.settimeout(_LOOK_SECS)
        except OSError as error:
            self._check()
            raise HostLost("a host must answer", where=str(Sender(self._attempt, r)), value=str(error),
                           next_step=_NEXT_STEP) from None  # fmt: skip
        self._send(r, [write_greeting(Sender(self._attempt, self.rank), self._token)])

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
        return HostLost("a host must take what is sent to it", where=str(Sender(self._attempt, r)), value=reason,
                        next_step=_NEXT_STEP)  # fmt: skip

    def _silent(self, r: int) -> HostLost:
        return HostLost("a host must answer", where=str(Sender(self._attempt, r)),
                        value=f"silent for {self._patience_secs:g} s", next_step=_NEXT_STEP)  # fmt: skip

    def _take(self, r: int) -> Sequence[Array]:
        sender, until = Sender(self._attempt, r), self._clock() + self._patience_secs
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

    def _has_ended(self, r: int) -> bool:
        """Whether the other host has ended this host's stream: it sends nothing but the error before its end."""
        looks = select.poll()
        looks.register(self._streams[r], select.POLLIN)
        return bool(looks.poll(0))

    def close(self) -> None:
        """End the streams to the other hosts."""
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
