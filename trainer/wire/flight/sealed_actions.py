"""Actions of Arrow Flight as frames: what gRPC carries between two roles is checked as the bytes of every other connection are. Pure.

A request is one frame with the action's name and content. Its results are frames in the request's session, and one more that says that
there are no others. An error is one frame with its document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any

from trainer.wire.frames import HEADER_BYTES, Bytes, FrameHeader, FrameOrder, WireProtocol, check_body, damaged


class ActionFrame(IntEnum):
    """The kind of a frame."""

    REQUEST = 1
    RESULT = 2
    END = 3
    ERROR = 4


def seal_request(name: str, content: Bytes, session: int) -> bytes:
    """The frame of a request; its flags are the length of the name."""
    encoded = name.encode()
    order = FrameOrder(WireProtocol.ACTIONS, session)
    return b"".join(order.write(ActionFrame.REQUEST, [encoded, content], flags=len(encoded)))


def open_request(frame: bytes) -> tuple[str, bytes, int]:
    """The name, the content and the session of a request. Raises :class:`DamagedFrame`."""
    order = FrameOrder(WireProtocol.ACTIONS, None)
    header, body = _opened(order, frame, ActionFrame.REQUEST)
    try:
        return str(body[: header.flags], "utf-8"), bytes(body[header.flags :]), header.session
    except UnicodeDecodeError:
        raise damaged("name is not a text") from None


def seal_results(results: Iterable[Bytes], session: int) -> Iterator[list[Bytes]]:
    """The frames of results, each in parts, and that of their end."""
    order = FrameOrder(WireProtocol.ACTIONS, session)
    for result in results:
        yield order.write(ActionFrame.RESULT, [result])
    yield order.write(ActionFrame.END)


def open_results(frames: Iterable[Any], session: int) -> Iterator[memoryview]:
    """The results in frames. Raises :class:`DamagedFrame`, also if they end before their end was sent."""
    order = FrameOrder(WireProtocol.ACTIONS, session)
    for frame in frames:
        header, body = _opened(order, frame)
        if header.kind == ActionFrame.END:
            return
        if header.kind != ActionFrame.RESULT:
            raise damaged("kind is another one", str(header.kind), str(ActionFrame.RESULT.value))
        yield body
    raise damaged("answer is not whole")


def seal_error(document: bytes) -> bytes:
    """The frame of an error's document."""
    return b"".join(FrameOrder(WireProtocol.ACTIONS, 0).write(ActionFrame.ERROR, [document]))


def open_error(frame: Bytes) -> bytes:
    """The document of an error. Raises :class:`DamagedFrame`."""
    return bytes(_opened(FrameOrder(WireProtocol.ACTIONS, 0), frame, ActionFrame.ERROR)[1])


def _opened(order: FrameOrder, frame: Any, kind: ActionFrame | None = None) -> tuple[FrameHeader, memoryview]:
    content = memoryview(frame)
    header, body = order.read(content[:HEADER_BYTES]), content[HEADER_BYTES:]
    if header.body_bytes != len(body):
        raise damaged("length is another one", f"{len(body):,} bytes", f"{header.body_bytes:,} bytes")
    check_body(header, [body])
    if kind is not None and header.kind != kind:
        raise damaged("kind is another one", str(header.kind), str(kind.value))
    return header, body
