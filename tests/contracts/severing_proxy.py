"""A socket proxy for PostgreSQL that cuts a connection during a commit."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

#: ``before``: the commit never reaches the server. ``after``: the server commits, and its answer is lost.
Moment = Literal["before", "after"]

_NAME = ".s.PGSQL.5432"


class SeveringProxy:
    """Hands everything on, until :attr:`sever` says when the next commit is to be cut off."""

    def __init__(self, folder: Path, server: Path) -> None:
        self.sever: Moment | None = None
        self.severed = 0
        self._server = str(server / _NAME)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / _NAME))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        with client, server, contextlib.suppress(OSError):
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    sent = ready.recv(1 << 16)
                    if not sent:
                        return
                    if ready is client and self.sever and b"COMMIT\0" in sent:
                        moment, self.sever = self.sever, None
                        self.severed += 1
                        if moment == "after":
                            server.sendall(sent)
                            server.recv(1 << 16)
                        return
                    (server if ready is client else client).sendall(sent)


@contextlib.contextmanager
def severing(folder: Path, server: Path) -> Iterator[SeveringProxy]:
    """A proxy whose socket lies in ``folder``, before the server whose socket lies in ``server``."""
    proxy = SeveringProxy(folder, server)
    try:
        yield proxy
    finally:
        proxy.close()
