"""What training asks of a server about its shard of a checkpoint, and what the server answers, as JSON documents. Pure.

A document names a run and numbers. The server makes the paths of files from them, so no client names a path in a run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from trainer.checkpoints.commit_manifest import TABLE_KINDS
from transforms.derived_documents import Name, Omitted, document_of, one_of, read_value, whole
from transforms.documents import Part

_MOST_SERVERS = 1 << 16
_MOST_TABLES = 1 << 16
_SECRET = re.compile("[0-9a-f]{32}")
_T = TypeVar("_T")
_Count = Annotated[int, whole()]
#: The attempt of a folder has up to 18 digits.
_Attempt = Annotated[int, whole(most=10**18 - 1)]


def _read_secret(part: Part) -> str:
    found = part.text()
    if not _SECRET.fullmatch(found):
        raise part.refused("32 hexadecimal digits")
    return found


Secret = Annotated[str, _read_secret]


@dataclass(frozen=True, slots=True)
class ReachOrder:
    """Ask whether a server reaches the folder of a run: it reads a file that the trainer has written there, and answers with another one.

    Attributes:
        run: the run directory, as the trainer names it.
        probe: the random name and content of the file.
        server: the place of the server.
        is_cut: whether it will be asked for slices of columns. A server of an earlier release, which cannot write them, refuses this member.
    """

    run: Name
    probe: Secret
    server: Annotated[int, whole(most=_MOST_SERVERS)]
    is_cut: Omitted[bool] = False


@dataclass(frozen=True, slots=True)
class SavedTable:
    """A table of a shard, or what a table has by rows beside its own.

    Attributes:
        kind, table: the part of the model, and the table's name there; a section by rows has its name after that of the part of the model.
        rows: the rows of the table that the server saves; 0: others save them all.
        columns: those of the whole table, if the server's part is a slice of them; each slice is named, in order. 0: the part has all columns.
    """

    kind: Annotated[
        str, one_of(*(f"{kind}{section}" for kind in TABLE_KINDS for section in ("", "-importance", "-left")))
    ]
    table: Name
    rows: _Count
    columns: Omitted[_Count] = 0


@dataclass(frozen=True, slots=True)
class WriteOrder:
    """Ask a server to write its shard at the moment of its snapshot; repeated until it is written.

    Attributes:
        order: random, equal in all repetitions.
        run: the run directory.
        attempt, server, servers, step: see :class:`~trainer.checkpoints.shard_manifest.ServerShard`.
        tables: the tables, in the order of the server's saved parts.
        base: the name of a full shard in a published checkpoint, or none: if the server has written it, rows that were not changed since may be
            left out.
    """

    order: Secret
    run: Name
    attempt: _Attempt
    server: Annotated[int, whole(most=_MOST_SERVERS)]
    servers: Annotated[int, whole(1, _MOST_SERVERS)]
    step: _Count
    tables: tuple[SavedTable, ...]
    base: str = ""

    def check_read(self, part: Part) -> None:
        """Raise :class:`~transforms.errors.DataError` for a place that no server has, too many tables, and a table that is named twice."""
        _check_server(self.server, self.servers, self.tables, part)


def _check_server(server: int, servers: int, tables: tuple[SavedTable, ...], part: Part) -> None:
    if server >= servers:
        raise part.at("server").refused(f"below the {servers} servers")
    names = {(one.kind, one.table) for one in tables}
    cut = {(one.kind, one.table) for one in tables if one.columns}
    whole = sum(1 for one in tables if not one.columns)
    if whole + len(cut) != len(names) or len(tables) > _MOST_TABLES:
        raise part.at("tables").refused(f"at most {_MOST_TABLES} different tables", value=len(tables))


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """Ask a server to load the rows that it owns from the shards of a checkpoint; repeated until they are loaded.

    Attributes:
        order: random, equal in all repetitions.
        run: the run directory.
        server, servers: the server's place, and the number of servers that load.
        step: optimizer steps of the whole run at the moment of the checkpoint.
        tables: the tables, in the order of the server's saved parts; ``rows``: those that the server owns.
        shards: the names of all shards of the checkpoint, by the server that has written each.
    """

    order: Secret
    run: Name
    server: Annotated[int, whole(most=_MOST_SERVERS)]
    servers: Annotated[int, whole(1, _MOST_SERVERS)]
    step: _Count
    tables: tuple[SavedTable, ...]
    shards: tuple[Name, ...]

    def check_read(self, part: Part) -> None:
        """As :meth:`WriteOrder.check_read`, and for no or too many shards."""
        _check_server(self.server, self.servers, self.tables, part)
        if not 0 < len(self.shards) <= _MOST_SERVERS:
            raise part.at("shards").refused(f"1 to {_MOST_SERVERS} names", value=len(self.shards))


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """What a server has done of an order to load.

    Attributes:
        read_bytes: of shards, so far.
        is_done: whether all of its rows are loaded.
        rows: those that were loaded of each table, at the end.
        stored: the rows of each table in those shards that this server counts: each is counted by one, at the end.
    """

    read_bytes: _Count
    is_done: bool = False
    rows: tuple[_Count, ...] = ()
    stored: tuple[_Count, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardProgress:
    """What a server has done of an order.

    Attributes:
        written_bytes: of rows, so far.
        shard: the name of the written shard; empty: it is being written.
        base: the name of its base; empty: it is full.
    """

    written_bytes: _Count
    shard: str = ""
    base: str = ""


@dataclass(frozen=True, slots=True)
class Reach:
    """Whether a server reaches the folder of a run; ``reason``: why not."""

    reaches: bool
    reason: str = ""


def to_document(order: object) -> dict[str, Any]:
    """The JSON object of an order or answer."""
    document: dict[str, Any] = document_of(order)
    return document


def read_order(kind: type[_T], document: object) -> _T:
    """The order or answer of a document. Raises :class:`~transforms.errors.DataError`."""
    return read_value(kind, Part(document, kind.__name__))
