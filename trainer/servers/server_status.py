"""What a parameter server says of itself."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from trainer.servers.client_updates import Greeting
from trainer.servers.session_roles import SessionRole
from trainer.servers.tcp_link import LinkOptions, TcpLink
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.routes.servers.frames import Kind, read_object
from trainer.tables.routes.servers.server_link import Request
from trainer.wire.flight.addresses import Address
from trainer.wire.frames import Bytes
from transforms.derived_documents import Form, Later, document_of, number, read_value, whole
from transforms.documents import Part

_MOST_LISTED = 4096
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


def _read_staleness(part: Part) -> dict[int, int]:
    found = {}
    for missed, count in part.entries():
        if not _NUMBER.fullmatch(missed):
            raise part.refused("an object by numbers of updates", value=missed)
        found[int(missed)] = count.integer()
    return found


def _write_staleness(staleness: Mapping[int, int]) -> dict[str, int]:
    return {str(missed): count for missed, count in staleness.items()}


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The figures of a server since its process began.

    Attributes:
        tables, rows: what it holds: parts of tables, and the rows that they may have.
        attempt: the number of the newest attempt of its clients.
        applied: the last update of each client.
        staleness: how many fetches have missed so many updates of other clients, by that number.
        wait_secs: how long fetches have waited for updates of other clients.
        fetches, fetched_rows, updates, updated_rows: that it has answered; written values count as an update.
        repeated_updates: that were sent again, and not made again.
        hashed: by name of a hashed table, what it has done since its rows were loaded.
        process: a random number of the server's process; 0: one of an earlier release.
    """

    tables: int = 0
    rows: int = 0
    attempt: int = 0
    applied: tuple[int, ...] = ()
    staleness: Annotated[Mapping[int, int], Form(_read_staleness, _write_staleness)] = field(default_factory=dict)
    wait_secs: Annotated[float, number(0.0)] = 0.0
    fetches: int = 0
    fetched_rows: int = 0
    updates: int = 0
    updated_rows: int = 0
    repeated_updates: int = 0
    hashed: Mapping[str, HashedCounts] = field(default_factory=dict)
    process: Later[Annotated[int, whole(most=1 << 62)]] = 0

    def check_read(self, part: Part) -> None:
        """Raise :class:`~transforms.errors.DataError` for more clients, figures or tables than a server lists."""
        for name, size in (("applied", len(self.applied) + len(self.staleness)), ("hashed", len(self.hashed))):
            if size > _MOST_LISTED:
                raise part.at(name).refused(f"at most {_MOST_LISTED} entries", value=f"{size} entries")

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def read(cls, body: Bytes) -> ServerStatus:
        """The status in a document. Raises :class:`~transforms.errors.DataError`."""
        return read_value(cls, Part(read_object(body), "the status of a server"))


def read_status(
    address: Address,
    *,
    token: str = "",
    tls: ssl.SSLContext | None = None,
    patience_secs: float = 5.0,
    check: Callable[[], None] = lambda: None,
) -> ServerStatus:
    """The status of the server at an address; ``check`` is called while it does not answer.

    Raises :class:`~trainer.errors.ServerLost` after the patience.
    """
    greeting = Greeting(token=token, role=SessionRole.WATCHES)
    link = TcpLink(address, LinkOptions(greeting, patience_secs=patience_secs, tls=tls, check=check))
    try:
        link.send(Request(Kind.STATUS))
        return ServerStatus.read(link.receive().body)
    finally:
        link.close()
