"""Frames as bytes: what an end of a connection writes, numbered from a place in its stream on."""

from __future__ import annotations

from collections.abc import Iterable

from trainer.tables.routes.servers.frames import Header
from trainer.wire.frames import FrameHeader, WireProtocol, checksum_of

#: The number of the connections of tests that write their bytes themselves.
SESSION = 7
#: The header and the body of a frame; the header may state another length.
Frame = tuple[Header, bytes]


def framed(frames: Iterable[Frame], *, first: int = 0, session: int = SESSION) -> bytes:
    """The bytes of frames of servers and their clients, which follow each other."""
    return b"".join(_framed(header, body, k, session) for k, (header, body) in enumerate(frames, first))


def _framed(header: Header, body: bytes, sequence: int, session: int) -> bytes:
    frame = FrameHeader(WireProtocol.ROWS, header.kind, header.body_bytes, checksum_of([body]), session, sequence,
                        header.number, header.floor, header.flags)  # fmt: skip
    return frame.to_bytes() + body
