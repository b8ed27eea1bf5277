"""A socket proxy before a parameter server, which cuts connections at chosen byte positions."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from trainer.wire.flight.addresses import LOOPBACK, Address
from trainer.wire.flight.connections import listen

#: After how many bytes a connection is cut, in both directions together; None: not at all.
Cut = Callable[[], int | None]


class CuttingProxy:
    """Hands everything on, and cuts each connection after the bytes that ``next_cut`` gives for it.

    Attributes:
        cuts: the connections that were cut.
    """

    def __init__(self, server: Address, next_cut: Cut) -> None:
        self._server, self._next_cut = server, next_cut
        self.cuts = 0
        self._listening = listen(LOOPBACK)
        self.address = Address(*self._listening.getsockname()[:2])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client, self._next_cut()), daemon=True).start()

    def _serve(self, client: socket.socket, left: int | None) -> None:
        with client, contextlib.suppress(OSError):
            server = socket.create_connection((self._server.host, self._server.port))
            with server:
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while True:
                    for ready in select.select([client, server], [], [])[0]:
                        part = ready.recv(1 << 16 if left is None else min(left, 1 << 16))
                        if not part:
                            return
                        (server if ready is client else client).sendall(part)
                        left = None if left is None else left - len(part)
                        if left == 0:
                            self._cut(client, server)
                            return

    def _cut(self, *ends: socket.socket) -> None:
        """End both connections, each second time by a reset, which discards what is on its way."""
        self.cuts += 1
        for one in ends if self.cuts % 2 else ():
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextlib.contextmanager
def cutting(server: Address, next_cut: Cut) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(server, next_cut)
    try:
        yield proxy
    finally:
        proxy.close()
