"""Receives what other hosts send to this one, over TCP: one connection for each sender, channel and attempt.

Bytes go from the socket to the arrays of a message without a copy. Memory is taken for a greeting of a few bytes, then for messages of a
sender with the token, each within the limit of the mailbox.
"""

from __future__ import annotations

import hmac
import logging
import socket
import time
from types import TracebackType
from typing import Self

import numpy as np

from trainer.flight.addresses import Address, check_token
from trainer.flight.byte_streams import receive_into
from trainer.flight.connections import Connections, listen, refuse
from trainer.flight.error_documents import to_bytes
from trainer.host.host_messages import LENGTH, MAGIC, Sender, read_description, read_greeting, read_length
from trainer.host.mailbox import Mailbox
from transforms.errors import DataError, HeadraceError, InputError

_LOG = logging.getLogger(__name__)
#: Connections at once; more are closed unread.
_MOST_CONNECTIONS = 1024
#: How long a connection may take for its greeting.
_GREETING_SECS = 10.0


class ExchangeService:
    """Receives streams from its construction until :meth:`close`.

    Args:
        address: where to listen; port 0 lets the system choose one.
        mailbox: takes the messages.
        token: that a stream must have; empty for none.

    Raises :class:`ConfigError` if the port is in use, or for an address off loopback without a token.
    """

    def __init__(self, address: Address, mailbox: Mailbox, *, token: str = "") -> None:
        check_token(address, token)
        self._mailbox, self._token = mailbox, token.encode()
        self._listening = listen(address)
        self.address = Address(address.host, self._listening.getsockname()[1])
        self._connections = Connections(self._listening, self._serve, most=_MOST_CONNECTIONS, name="exchange")

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._receive(connection)
        except HeadraceError as error:
            _LOG.warning("a stream to this host was refused: %s", error)
            refuse(connection, _error(error))
        except OSError as error:
            _LOG.info("a stream to this host ended: %s", error)
        except Exception as error:
            _LOG.exception("a stream to this host failed")
            refuse(connection, _error(error))

    def _receive(self, connection: socket.socket) -> None:
        """The stream of one host on one channel of an attempt."""
        sender = self._greeted(connection, time.monotonic() + _GREETING_SECS)
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._mailbox.open(sender)
        try:
            number = 0
            while self._receive_message(connection, sender, number):
                number += 1
        finally:
            self._mailbox.end(sender)

    def _greeted(self, connection: socket.socket, until_secs: float) -> Sender:
        magic = _received(connection, len(MAGIC), until_secs)
        if magic != MAGIC:
            raise DataError("a stream of a host must be of this release", value=bytes(magic).hex())
        sender, token = read_greeting(
            _received(connection, read_length(_received(connection, LENGTH.size, until_secs)), until_secs)
        )
        if not hmac.compare_digest(token.encode(), self._token):
            raise InputError(
                "the token must be that of the job", where=str(sender), next_step="give the job's --token-file"
            )
        return sender

    def _receive_message(self, connection: socket.socket, sender: Sender, number: int) -> bool:
        """Receive the next message; False at the end of the stream, and if the attempt is over."""
        head = bytearray(LENGTH.size)
        found = receive_into(connection, memoryview(head))
        if not found:
            return False
        description = _received(connection, read_length(bytes(head[:found])))
        layout = read_description(description, number, self._mailbox.most_bytes)
        if not self._mailbox.wait_for_space(sender, layout.size_bytes):
            return False
        content = np.empty(layout.size_bytes, np.uint8)
        found = receive_into(connection, content.data)
        if found < len(content):
            raise DataError("a message of a host must be whole", where=str(sender), value=f"{found:,} bytes",
                            allowed=f"{len(content):,}")  # fmt: skip
        return self._mailbox.put(sender, layout.message(content))

    def close(self) -> None:
        """Stop receiving; streams end."""
        self._mailbox.close()
        self._connections.close()
        self._listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _received(connection: socket.socket, size: int, until_secs: float | None = None) -> bytes:
    """The next ``size`` bytes. Raises :class:`DataError` if the stream ends before."""
    content = bytearray(size)
    if receive_into(connection, memoryview(content), until_secs) < size:
        raise DataError("a stream of a host must be whole", value="it ended", allowed=f"{size} bytes more")
    return bytes(content)


def _error(error: Exception) -> list[bytes]:
    document = to_bytes(error)
    return [LENGTH.pack(len(document)), document]
