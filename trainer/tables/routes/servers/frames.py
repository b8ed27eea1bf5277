"""What frames between an engine and a parameter server or an embedding worker say: their kinds, headers and documents.

What comes from the wire is checked here before memory is taken for it: the kind, and the length against a limit. The bytes of a frame are
checked before, by :mod:`trainer.wire.frames`.
"""

from __future__ import annotations

import json
import secrets
from enum import IntEnum
from typing import Any, NamedTuple

from trainer.wire.frames import Bytes, FrameHeader
from transforms.errors import DataError

_MOST_NUMBER = 1 << 62
#: The longest greeting: it is read before the token is checked.
MOST_GREETING_BYTES = 4 << 10
#: The longest other document.
MOST_DOCUMENT_BYTES = 8 << 20


#: The members of the document of an opened server: the generation of its rows, which a load changes; the last update of this client.
OPENED_MEMBERS = frozenset({"generation", "applied", "digest"})


class Kind(IntEnum):
    """What a frame is: requests of an engine, of which an embedding worker alone takes KEEP and FLUSH, then answers.

    WATCH, LEAVE and REACH_SERVERS are requests of the training beside its engine: whether the server is about to end, that it may, and
    whether it reaches other servers. READ_HELD, READ_SPREAD, READ_ROWS and READ_SPREAD_SNAPSHOT are those of another server, which COPY_TABLES and
    COPY_ROWS make take rows.
    """

    HELLO = 1
    OPEN = 2
    FETCH = 3
    UPDATE = 4
    BEGIN_SNAPSHOT = 5
    READ_SNAPSHOT = 6
    END_SNAPSHOT = 7
    BEGIN_LOAD = 8
    LOAD_ROWS = 9
    END_LOAD = 10
    STATUS = 11
    READ_STATE = 12
    READ_ROWS = 13
    READ_HISTORY = 14
    LOAD_HISTORY = 15
    READ_VALUES = 16
    WRITE_VALUES = 17
    WATCH = 19
    LEAVE = 20
    REACH_RUN = 21
    WRITE_SHARD = 22
    LOAD_SHARDS = 23
    KEEP = 24
    FLUSH = 25
    REACH_SERVERS = 26
    COPY_TABLES = 27
    COPY_ROWS = 28
    READ_HELD = 29
    READ_SPREAD = 30
    READ_SPREAD_SNAPSHOT = 31

    OPENED = 32
    ROWS = 33
    DONE = 34
    COUNTS = 35
    PART = 36
    DOCUMENT = 37
    ERROR = 38
    HISTORY = 39


class Header(NamedTuple):
    """The header of a frame; a tuple, as :class:`~trainer.wire.frames.FrameHeader` is.

    Attributes:
        kind: of the frame.
        body_bytes: the length of the body.
        number: of an update or of written values, its place among those of its client, from 1 on; of requests of a load, any number, and
            each later one the next number; an answer has that of its request.
        floor: of a fetch, the number of the update that all clients must have made before it is answered, also over an embedding worker;
            of the end of a load, the generation that it begins.
        flags: how the body is encoded; see :mod:`trainer.tables.routes.servers.row_messages`.
    """

    kind: Kind
    body_bytes: int = 0
    number: int = 0
    floor: int = 0
    flags: int = 0


def read_header(frame: FrameHeader, most_bytes: int) -> Header:
    """The header of a frame. Raises :class:`DataError` for one that this protocol has not, and for a body above ``most_bytes``."""
    kind = _KINDS.get(frame.kind)
    if kind is None:
        raise DataError("a frame must have a known kind", value=frame.kind, allowed=f"one of {sorted(_KINDS)}")
    if frame.body_bytes > most_bytes:
        raise DataError("the body of a frame must be short", value=f"{frame.body_bytes:,} bytes", allowed=f"at most {most_bytes:,} bytes",
                        next_step="use a smaller batch_rows, or more servers")  # fmt: skip
    if frame.number > _MOST_NUMBER or not -_MOST_NUMBER <= frame.floor <= _MOST_NUMBER:
        raise DataError("the numbers of a frame must be below 2^62", value=(frame.number, frame.floor))
    return Header(kind, frame.body_bytes, frame.number, frame.floor, frame.flags)


_KINDS = {int(kind): kind for kind in Kind}
#: Requests that change rows and have numbers: each of them is made once.
NUMBERED = frozenset({Kind.UPDATE, Kind.WRITE_VALUES})
#: The most of them that a client has on their way to a server, over all its connections.
MOST_UNANSWERED = 128


def draw_generation() -> int:
    """The number of a new generation of a server's rows, at least 1."""
    return 1 + secrets.randbelow(_MOST_NUMBER - 1)


def write_document(document: dict[str, Any] | None) -> bytes:
    """A JSON object, or null, as the body of a frame."""
    return json.dumps(document, separators=(",", ":")).encode()


def read_object(content: Bytes) -> object:
    """The JSON value of the body of a frame. Raises :class:`DataError`."""
    try:
        return json.loads(bytes(content))
    except (ValueError, RecursionError) as error:
        raise DataError("the body of a frame must be a JSON object", value=str(error)[:200]) from None


def read_document(content: Bytes, members: frozenset[str]) -> dict[str, Any]:
    """The JSON object with exactly these members. Raises :class:`DataError`."""
    document = read_object(content)
    if not isinstance(document, dict) or document.keys() != members:
        found = sorted(document)[:20] if isinstance(document, dict) else type(document).__name__
        raise DataError(
            "a document of a frame must have its members", value=str(found)[:200], allowed=", ".join(sorted(members))
        )
    return document


def count_at(document: dict[str, Any], name: str, *, least: int = 0, most: int = _MOST_NUMBER) -> int:
    """The whole number at ``name``. Raises :class:`DataError`."""
    value = document[name]
    if type(value) is not int or not least <= value <= most:
        raise DataError(f"{name} must be a whole number", value=str(value)[:80], allowed=f"{least} to {most}")
    return value


def text_at(document: dict[str, Any], name: str) -> str:
    """The text at ``name``. Raises :class:`DataError`."""
    value = document[name]
    if not isinstance(value, str):
        raise DataError(f"{name} must be a string", value=str(value)[:80])
    return value
