"""What a host and a reader send to each other, as the kinds and lengths of frames. Pure.

A host greets a reader with the job's token, then makes one request at a time. The answer to a request has its kind, or is an error.
"""

from __future__ import annotations

from enum import IntEnum

from trainer.run.reading.unit_requests import MOST_REQUEST_BYTES
from trainer.wire.flight.error_documents import MOST_ERROR_BYTES, BadAnswer
from trainer.wire.frames import FrameHeader
from transforms.errors import DataError

#: The longest greeting, and the longest status.
MOST_GREETING_BYTES = 1 << 12
MOST_STATUS_BYTES = 1 << 14
#: The longest unit that is accepted.
MOST_UNIT_BYTES = 1 << 30


class UnitFrame(IntEnum):
    """The kind of a frame.

    GREETING: the job's token; it has no answer.
    STATUS: a request without a body; the answer is a JSON object.
    UNIT: a :class:`~trainer.run.reading.unit_requests.UnitRequest`; the answer is the packed unit.
    ERROR: the document of an error.
    """

    GREETING = 1
    STATUS = 2
    UNIT = 3
    ERROR = 4


def check_greeting(frame: FrameHeader | None) -> FrameHeader:
    """The header of a greeting. Raises :class:`DataError` for another frame."""
    if frame is None or frame.kind != UnitFrame.GREETING or frame.body_bytes > MOST_GREETING_BYTES:
        raise DataError("the first message of a host must be its greeting", value=None if frame is None else _shown(frame),
                        allowed=f"at most {MOST_GREETING_BYTES:,} bytes")  # fmt: skip
    return frame


def check_request(frame: FrameHeader) -> UnitFrame:
    """The kind of a request. Raises :class:`DataError` for a frame that is no request, or too long."""
    if frame.kind not in (UnitFrame.STATUS, UnitFrame.UNIT):
        raise DataError("a request of a host must be a known one", value=_shown(frame), allowed="a status or a unit")
    if frame.body_bytes > MOST_REQUEST_BYTES:
        raise DataError("a message must be short", value=frame.body_bytes, allowed=f"at most {MOST_REQUEST_BYTES:,} bytes")  # fmt: skip
    return UnitFrame(frame.kind)


def check_answer(frame: FrameHeader, kind: UnitFrame, most_bytes: int, where: str) -> bool:
    """Whether an answer is of the kind that was asked for; False: it is an error.

    Raises :class:`BadAnswer` for a frame of another kind, and for one that is too long.
    """
    if frame.kind not in (kind, UnitFrame.ERROR):
        raise BadAnswer("a reader must answer what it is asked", where=where, value=_shown(frame), allowed=kind.name.lower())  # fmt: skip
    most = most_bytes if frame.kind == kind else MOST_ERROR_BYTES
    if frame.body_bytes > most:
        raise BadAnswer("an answer of a reader must be short enough", where=where, value=frame.body_bytes,
                        allowed=f"at most {most:,} bytes")  # fmt: skip
    return frame.kind == kind


def _shown(frame: FrameHeader) -> str:
    return f"kind {frame.kind}, {frame.body_bytes:,} bytes"
