"""What training asks of a server that takes rows from other servers, and what the server answers, as JSON documents. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from trainer.tables.routes.servers.named_servers import MOST_SERVERS, NamedServers
from transforms.derived_documents import document_of, read_value, whole
from transforms.documents import Part

_MOST_PARTS = 1 << 16
_Count = Annotated[int, whole()]
_Part = Annotated[int, whole(most=_MOST_PARTS - 1)]


@dataclass(frozen=True, slots=True)
class CopySources:
    """The servers that have the rows.

    Attributes:
        named: how other servers connect to them.
        attempt: the number of the attempt that uses them: others may not read.
    """

    named: NamedServers
    attempt: Annotated[int, whole(most=1 << 62)]


@dataclass(frozen=True, slots=True)
class CopyOrder:
    """Ask a server to take the rows that it owns from other servers. Requests with null in its place follow until it has them.

    Attributes:
        sources: the other servers.
        gives: of each source the parts whose rows it gives, by number: of rows that several of them have, one does.
        rows: the rows of each part that this server owns.
        server, servers: its place, and the number of servers that take rows.
        is_whole: whether hashed and pruned tables are taken, at the moment of the snapshot of the sources; else all others, as they are now.
    """

    sources: CopySources
    gives: tuple[tuple[_Part, ...], ...]
    rows: tuple[_Count, ...]
    server: Annotated[int, whole(most=MOST_SERVERS - 1)]
    servers: Annotated[int, whole(1, MOST_SERVERS)]
    is_whole: bool = False

    def check_read(self, part: Part) -> None:
        """Raise :class:`~transforms.errors.DataError` for a place that no server has, and for other sources than are named."""
        if self.server >= self.servers:
            raise part.at("server").refused(f"below the {self.servers} servers")
        if len(self.gives) != len(self.sources.named.addresses):
            raise part.at("gives").refused(
                f"parts of {len(self.sources.named.addresses)} servers", value=len(self.gives)
            )
        if len(self.rows) > _MOST_PARTS:
            raise part.at("rows").refused(f"at most {_MOST_PARTS} parts", value=len(self.rows))

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def read(cls, document: object) -> CopyOrder:
        """The order of a document. Raises :class:`~transforms.errors.DataError`."""
        return read_value(cls, Part(document, "order to copy"))


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """What a server has done of an order to copy.

    Attributes:
        rows: those that were taken so far, of each of the server's saved parts.
        is_done: whether all of them were.
    """

    rows: tuple[_Count, ...]
    is_done: bool = False

    def to_document(self) -> dict[str, Any]:
        """The JSON object."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def read(cls, document: object) -> CopyProgress:
        """The progress of a document. Raises :class:`~transforms.errors.DataError`."""
        return read_value(cls, Part(document, "progress of a copy"))
