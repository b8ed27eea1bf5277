"""A link to a parameter server in the same process, without sockets and threads."""

from __future__ import annotations

from collections import deque

from trainer.servers.client_updates import Greeting
from trainer.servers.row_server import RowServer
from trainer.tables.routes.servers.frames import Header
from trainer.tables.routes.servers.server_link import Answer, Request


class DirectLink:
    """See :class:`~trainer.tables.routes.servers.server_link.ServerLink`. A request is answered when it is sent, which raises its error."""

    def __init__(self, server: RowServer) -> None:
        self._server, self._session = server, server.begin(Greeting())
        self._answers: deque[Answer] = deque()
        self.sent_bytes = self.received_bytes = 0

    @property
    def waiting(self) -> int:
        """See :class:`~trainer.tables.routes.servers.server_link.ServerLink`."""
        return len(self._answers)

    def send(self, request: Request) -> None:
        """See :class:`~trainer.tables.routes.servers.server_link.ServerLink`."""
        reply = self._server.handle(self._session, request.header, b"".join(request.body))
        body = b"".join(reply.body)
        at = 0
        for space in request.space or ():
            space.view("u1")[:] = memoryview(body)[at : at + space.nbytes]
            at += space.nbytes
        if request.decode is not None:
            request.decode()
        self._answers.append(Answer(Header(reply.kind, len(body), request.number, flags=reply.flags), body))

    def receive(self) -> Answer:
        """See :class:`~trainer.tables.routes.servers.server_link.ServerLink`."""
        return self._answers.popleft()

    def go_home(self) -> None:
        """See :class:`~trainer.tables.routes.servers.server_link.ServerLink`: there is no other server."""

    def close(self) -> None:
        """End the session."""
        self._server.end(self._session)
