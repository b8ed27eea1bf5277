"""Frames of the own protocols: a header of fixed size with two checksums, then a body. Pure.

A frame says its connection and its place in the stream, so that a frame that was lost, repeated or brought into another order is found as a
changed byte is. A reader checks a header before it takes memory for a body, and a body before it uses it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import xxhash

from trainer.errors import DamagedFrame

Bytes: TypeAlias = bytes | bytearray | memoryview

_MAGIC, _VERSION = b"HRFR", 1
#: Magic, version, protocol, kind, flags, session, sequence, bytes of the body, number, floor, checksum of the body.
_FIELDS = struct.Struct("<4sBBBxIQQQQqQ")
#: The fields, and their checksum.
_HEADER = struct.Struct(_FIELDS.format + "Q")
_CHECKSUM = struct.Struct("<Q")
HEADER_BYTES = _HEADER.size
#: The checksum of a body without bytes.
_OF_NOTHING = xxhash.xxh3_64_intdigest(b"")
_NEXT_STEP = "check the network between the two processes, and run the same release of Headrace in both"


class WireProtocol(IntEnum):
    """Which two roles speak: an engine with its servers or workers, two hosts, the caller and the service of an action, or a host and a reader."""

    ROWS = 1
    HOSTS = 2
    ACTIONS = 3
    UNITS = 4


class FrameHeader(NamedTuple):
    """The header of a frame; a tuple, since a frozen dataclass takes longer to make than a short frame to read.

    Attributes:
        kind: of the frame; a number of its protocol.
        body_bytes: the length of the body.
        body_checksum: xxh3 of the body, 64 bits.
        session: the number of the connection, which the end that connects has drawn.
        sequence: the place of the frame among those of its sender on the connection, from 0 on.
        number, floor, flags: as the protocol defines them.
    """

    protocol: WireProtocol
    kind: int
    body_bytes: int = 0
    body_checksum: int = 0
    session: int = 0
    sequence: int = 0
    number: int = 0
    floor: int = 0
    flags: int = 0

    def to_bytes(self) -> bytes:
        """The header as it is sent."""
        return _written(self.protocol, self.kind, self.flags, self.session, self.sequence, self.body_bytes, self.number,
                        self.floor, self.body_checksum)  # fmt: skip


def _written(*fields: int) -> bytes:
    """A header, by its fields after the version."""
    content = _FIELDS.pack(_MAGIC, _VERSION, *fields)
    return content + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(content))


def checksum_of(parts: Sequence[Bytes]) -> int:
    """The checksum of a body in parts."""
    if len(parts) == 1:
        return xxhash.xxh3_64_intdigest(parts[0])
    if not parts:
        return _OF_NOTHING
    total = xxhash.xxh3_64()
    for part in parts:
        total.update(part)
    return total.intdigest()


def read_frame_header(content: Bytes, protocol: WireProtocol) -> FrameHeader:
    """The header in ``HEADER_BYTES`` bytes. Raises :class:`DamagedFrame` for other bytes than a sender of the protocol writes."""
    if len(content) != HEADER_BYTES:
        raise damaged("header is not whole", f"{len(content)} bytes", f"{HEADER_BYTES} bytes")
    (
        magic,
        version,
        found,
        kind,
        flags,
        session,
        sequence,
        body_bytes,
        number,
        floor,
        checksum,
        of_fields,
    ) = _HEADER.unpack(content)
    if magic != _MAGIC or version != _VERSION:
        raise damaged("format is not that of this release", f"{magic.hex()}, {version}", f"{_MAGIC.hex()}, {_VERSION}")
    if of_fields != xxhash.xxh3_64_intdigest(memoryview(content)[: _FIELDS.size]):
        raise damaged("header has another checksum")
    if found != protocol:
        raise damaged("protocol is another one", str(found), str(protocol.value))
    return FrameHeader(protocol, kind, body_bytes, checksum, session, sequence, number, floor, flags)


def damaged(how: str, value: str = "", allowed: str = "") -> DamagedFrame:
    """The error of a frame that came otherwise than it was sent; ``how``: what differs, with the thing first."""
    return DamagedFrame("a frame must arrive as it was sent", value=f"its {how}" + (f": {value}" if value else ""),
                        allowed=allowed, next_step=_NEXT_STEP)  # fmt: skip


class FrameOrder:
    """The frames of one end of a connection: numbers those that it sends, and checks those that it receives.

    Args:
        protocol: that both ends speak.
        session: of the connection; None for the end that is connected to, which takes the session of the first frame.
    """

    def __init__(self, protocol: WireProtocol, session: int | None) -> None:
        self._protocol, self._session = protocol, session
        self._sent = self._received = 0

    @property
    def next_place(self) -> tuple[int, int]:
        """The session, and the place of the next frame that this end writes; 0 for a session that is not known yet."""
        return self._session or 0, self._sent

    def write(
        self, kind: int, body: Iterable[Bytes] = (), *, number: int = 0, floor: int = 0, flags: int = 0
    ) -> list[Bytes]:
        """The next frame in parts: a header, and the parts of the body that are not empty."""
        parts = list(body)
        if not all(parts):
            parts = [part for part in parts if len(part)]
        header = _written(self._protocol, kind, flags, self._session or 0, self._sent, sum(map(len, parts)), number, floor,
                          checksum_of(parts))  # fmt: skip
        self._sent += 1
        return [header, *parts]

    def read(self, content: Bytes) -> FrameHeader:
        """The header of the next frame. Raises :class:`DamagedFrame`, also for a frame of another session or place."""
        header = read_frame_header(content, self._protocol)
        session = header.session if self._session is None else self._session
        if header.session != session or header.sequence != self._received:
            raise damaged("place in the stream is another one", f"frame {header.sequence} of session {header.session:x}",
                          f"frame {self._received} of session {session:x}")  # fmt: skip
        self._session = session
        self._received += 1
        return header


def check_body(header: FrameHeader, parts: Sequence[Bytes]) -> None:
    """Raise :class:`DamagedFrame` unless the parts are the body of a header."""
    if checksum_of(parts) != header.body_checksum:
        raise damaged("body has another checksum", f"kind {header.kind}, {header.body_bytes:,} bytes")
