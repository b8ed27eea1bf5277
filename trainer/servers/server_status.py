"""What a parameter server says of itself."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from trainer.servers.client_updates import Greeting
from trainer.servers.session_roles import SessionRole
from trainer.servers.tcp_link import LinkOptions, TcpLink
from trainer.tables.hashed_counts import HashedCounts
from trainer.tables.routes.servers.frames import Kind, count_at, read_document
from trainer.tables.routes.servers.server_link import Request
from trainer.wire.flight.addresses import Address
from trainer.wire.frames import Bytes
from transforms.errors import DataError

_MOST_LISTED = 4096
_COUNTS = {one.name for one in fields(HashedCounts)}
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


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
    """

    tables: int = 0
    rows: int = 0
    attempt: int = 0
    applied: tuple[int, ...] = ()
    staleness: dict[int, int] = field(default_factory=dict)
    wait_secs: float = 0.0
    fetches: int = 0
    fetched_rows: int = 0
    updates: int = 0
    updated_rows: int = 0
    repeated_updates: int = 0
    hashed: dict[str, HashedCounts] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        return asdict(self) | {"staleness": {str(missed): count for missed, count in self.staleness.items()}}

    @classmethod
    def read(cls, body: Bytes) -> ServerStatus:
        """The status in a document. Raises :class:`DataError`."""
        document = read_document(body, frozenset(one.name for one in fields(cls)))
        numbers = {one.name: count_at(document, one.name) for one in fields(cls) if one.type == "int"}
        applied, staleness, wait_secs = (document[name] for name in ("applied", "staleness", "wait_secs"))
        counts: list[object] = [None]
        if isinstance(applied, list) and isinstance(staleness, dict) and all(map(_NUMBER.fullmatch, staleness)):
            counts = [*applied, *staleness.values()]
        if len(counts) > _MOST_LISTED or not all(type(one) is int and one >= 0 for one in counts):
            raise DataError("the updates in a server's status must be numbers", value=str(document)[:200])
        if not isinstance(wait_secs, int | float) or isinstance(wait_secs, bool) or not 0 <= wait_secs < float("inf"):
            raise DataError("wait_secs must be a number >= 0", value=str(wait_secs)[:80])
        return cls(
            applied=tuple(applied),
            staleness={int(missed): count for missed, count in staleness.items()},
            wait_secs=float(wait_secs),
            hashed=_read_counts(document["hashed"]),
            **numbers,
        )


def _read_counts(document: object) -> dict[str, HashedCounts]:
    """The counts of hashed tables. Raises :class:`DataError`."""
    if not isinstance(document, dict) or len(document) > _MOST_LISTED:
        raise DataError("hashed tables in a server's status must be an object by name", value=str(document)[:80])
    found = {}
    for name, counts in document.items():
        if not isinstance(counts, dict) or counts.keys() != _COUNTS:
            raise DataError("the counts of a hashed table must have their members", where=name[:80], value=str(counts)[:80],
                            allowed=", ".join(sorted(_COUNTS)))  # fmt: skip
        found[name] = HashedCounts(**{one: count_at(counts, one) for one in counts})
    return found


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
