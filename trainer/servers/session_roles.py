"""Which requests a session may make: one table for parameter servers and one for embedding workers; all others are refused."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeAlias

from trainer.errors import ConfigError
from trainer.tables.routes.servers.frames import Kind


class SessionRole(Enum):
    """What a session is for, as its greeting says.

    TRAINS: the rows of batches: fetches and updates, and loads of a client without an embedding worker.
    LOADS: loads, and lookups of single rows, beside the embedding worker of a client.
    SAVES: snapshots, beside the session that trains.
    COPIES: what another server reads that takes rows; it belongs to no client, and to the newest attempt alone.
    WATCHES: the status, and whether the process is about to end; it belongs to no client.
    """

    TRAINS = "trains"
    LOADS = "loads"
    SAVES = "saves"
    COPIES = "copies"
    WATCHES = "watches"

    __hash__ = object.__hash__  # that of Enum is Python, and each request looks its role up


Allowed: TypeAlias = Mapping[SessionRole, frozenset[Kind]]

_LOADS = frozenset({
    Kind.OPEN, Kind.FETCH, Kind.BEGIN_LOAD, Kind.LOAD_ROWS, Kind.LOAD_HISTORY, Kind.LOAD_SHARDS, Kind.COPY_TABLES, Kind.COPY_ROWS, Kind.END_LOAD,
})  # fmt: skip
_WATCHES = frozenset({Kind.STATUS, Kind.WATCH, Kind.LEAVE, Kind.REACH_SERVERS})

#: The requests of a parameter server.
OF_SERVERS: Allowed = {
    SessionRole.TRAINS: _LOADS | {Kind.UPDATE, Kind.READ_VALUES, Kind.WRITE_VALUES, Kind.STATUS},
    SessionRole.LOADS: _LOADS,
    SessionRole.SAVES: frozenset({
        Kind.BEGIN_SNAPSHOT, Kind.READ_SNAPSHOT, Kind.READ_HISTORY, Kind.END_SNAPSHOT,
        Kind.READ_STATE, Kind.REACH_RUN, Kind.WRITE_SHARD,
    }),
    SessionRole.COPIES: frozenset({
        Kind.READ_HELD, Kind.READ_SPREAD, Kind.READ_ROWS, Kind.READ_SPREAD_SNAPSHOT, Kind.READ_HISTORY,
    }),
    SessionRole.WATCHES: _WATCHES,
}  # fmt: skip

#: The requests of an embedding worker. Loads and snapshots go to the servers themselves.
OF_WORKERS: Allowed = {
    SessionRole.TRAINS: frozenset({Kind.OPEN, Kind.FETCH, Kind.KEEP, Kind.UPDATE, Kind.FLUSH, Kind.STATUS}),
    SessionRole.LOADS: frozenset(),
    SessionRole.SAVES: frozenset(),
    SessionRole.COPIES: frozenset(),
    SessionRole.WATCHES: _WATCHES,
}


def check_allowed(allowed: Allowed, role: SessionRole, kind: Kind) -> None:
    """Raise :class:`ConfigError` for a request that a session of a role may not make."""
    if kind not in allowed[role]:
        raise ConfigError("a request must be one that its session may make", where=f"a session that {role.value}", value=kind.name,
                          allowed=", ".join(sorted(one.name for one in allowed[role])) or "none")  # fmt: skip
