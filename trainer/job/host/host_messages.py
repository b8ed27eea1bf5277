"""What a host sends to another one, as the bodies of frames: a greeting, then messages of arrays. Pure.

A greeting is JSON. A message is a description in JSON, then its arrays, each at a multiple of 8 bytes; the frame's flags are the length of
the description. Both lengths are limited by the frame's header, before memory is taken for them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from trainer.errors import ConfigError
from trainer.wire.frames import Bytes, FrameHeader
from transforms.arrays import Array
from transforms.errors import DataError

#: The longest greeting and description.
MOST_DOCUMENT_BYTES = 1 << 14
#: The longest arrays of one message.
MOST_MESSAGE_BYTES = 1 << 30
_TYPES = {name: np.dtype(name) for name in ("float32", "int64", "int32", "uint8")}
_MOST_ARRAYS, _MOST_HOSTS, _MOST_CHANNELS, _MOST_NUMBER = 64, 4096, 16, 2**62
_ALIGNED = 8
_PADDING = bytes(_ALIGNED)


class HostFrame(IntEnum):
    """The kind of a frame between hosts.

    A sender writes a GREETING, whose number is that of its first message that it has still, then MESSAGES with their numbers, and END if it
    has no more. A receiver answers with ARRIVED, whose number is that of the next message that it wants: to a greeting, and once a message
    has arrived; and with ERROR before it ends the stream.
    """

    GREETING = 1
    MESSAGE = 2
    END = 3
    ARRIVED = 4
    ERROR = 5


@dataclass(frozen=True, slots=True)
class Sender:
    """A stream of messages: of the host of ``rank`` in an attempt, on one of its channels."""

    attempt: int
    rank: int
    channel: int = 0

    def __str__(self) -> str:
        return f"rank {self.rank}, attempt {self.attempt}, channel {self.channel}"


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """The arrays of one call, by its number in the attempt."""

    number: int
    arrays: tuple[Array, ...]

    @property
    def size_bytes(self) -> int:
        """The memory of the arrays."""
        return sum(array.nbytes for array in self.arrays)


@dataclass(frozen=True, slots=True)
class MessageLayout:
    """What a description says: the number of a message, and of each array its type, length and first byte.

    ``size_bytes``: of all arrays.
    """

    number: int
    places: tuple[tuple[np.dtype[Any], int, int], ...]
    size_bytes: int

    @classmethod
    def of(cls, number: int, kinds: Sequence[tuple[np.dtype[Any], int]]) -> MessageLayout:
        """The layout of arrays of these types and lengths."""
        places, at = [], 0
        for dtype, length in kinds:
            places.append((dtype, length, at))
            at += -(-dtype.itemsize * length // _ALIGNED) * _ALIGNED
        return cls(number, tuple(places), at)

    def message(self, content: Array) -> Message:
        """The arrays in a buffer, which is not written any more."""
        content.flags.writeable = False
        arrays = (content[at : at + dtype.itemsize * length].view(dtype) for dtype, length, at in self.places)
        return Message(self.number, tuple(arrays))


@dataclass(frozen=True, slots=True)
class HostGreeting:
    """What a stream begins with.

    Attributes:
        sender: whose messages it has.
        token: of the job.
        origin: the number of the sender's channel, which it has drawn: a second process of the same name has another one.
    """

    sender: Sender
    token: str
    origin: int


def write_greeting(greeting: HostGreeting) -> bytes:
    """The body of a greeting."""
    own = greeting.sender
    return _json({"attempt": own.attempt, "rank": own.rank, "channel": own.channel, "origin": greeting.origin,
                  "token": greeting.token})  # fmt: skip


def read_greeting(content: Bytes) -> HostGreeting:
    """The inverse of :func:`write_greeting`. Raises :class:`DataError`."""
    document = _read_json(content)
    if any(isinstance(value, list | dict) for value in document.values()):
        raise DataError("the members of a greeting must be texts and numbers", value=sorted(document)[:8])
    token, numbers = document.pop("token", None), document.values()
    are_numbers = all(type(one) is int and 0 <= one <= _MOST_NUMBER for one in numbers)
    if document.keys() != {"attempt", "rank", "channel", "origin"} or not are_numbers or not isinstance(token, str):
        raise DataError(
            "a stream of a host must name its sender",
            value=str(document)[:200],
            allowed="attempt, rank, channel, origin, token",
        )
    if document["rank"] >= _MOST_HOSTS:
        raise DataError("the rank of a host must be in range", value=document["rank"], allowed=f"below {_MOST_HOSTS}")
    if document["channel"] >= _MOST_CHANNELS:
        raise DataError(
            "the channel of a stream must be in range",
            value=document["channel"],
            allowed=f"below {_MOST_CHANNELS}",
        )
    return HostGreeting(Sender(document["attempt"], document["rank"], document["channel"]), token, document["origin"])


def write_message(arrays: Sequence[Array], most_bytes: int) -> tuple[bytes, list[Bytes]]:
    """The description of a message, and its arrays in parts that are views of them.

    Raises :class:`ConfigError` for arrays above ``most_bytes``, and :class:`ValueError` for one that is not flat.
    """
    if any(array.ndim != 1 for array in arrays):
        raise ValueError(f"the arrays of a message must be flat, got shapes {[array.shape for array in arrays][:8]}")
    layout = MessageLayout.of(0, [(array.dtype, len(array)) for array in arrays])
    if layout.size_bytes > most_bytes:
        raise ConfigError("a message between hosts must be short", value=f"{layout.size_bytes:,} bytes",
                          allowed=f"at most {most_bytes:,} bytes", next_step="use a smaller batch_rows")  # fmt: skip
    parts: list[Bytes] = []
    for array in arrays:
        parts += [np.ascontiguousarray(array).view(np.uint8).data, _PADDING[: -array.nbytes % _ALIGNED]]
    return _json([[str(array.dtype), len(array)] for array in arrays]), [part for part in parts if len(part)]


def array_bytes(frame: FrameHeader, most_bytes: int) -> int:
    """The length of the arrays of a message. Raises :class:`DataError` for a description or arrays that are too long."""
    size = frame.body_bytes - frame.flags
    if frame.flags > MOST_DOCUMENT_BYTES or size < 0:
        raise DataError(
            "a description of a host must be short", value=frame.flags, allowed=f"at most {MOST_DOCUMENT_BYTES:,} bytes"
        )
    if size > most_bytes:
        raise DataError(
            "a message of a host must be short", value=f"{size:,} bytes", allowed=f"at most {most_bytes:,} bytes"
        )
    return size


def read_description(content: Bytes, number: int, size_bytes: int) -> MessageLayout:
    """The layout of the message ``number``, whose arrays have so many bytes. Raises :class:`DataError`."""
    arrays = _read_value(content)
    if not isinstance(arrays, list) or len(arrays) > _MOST_ARRAYS:
        raise DataError("the description of a host's message must be a list of its arrays", value=str(arrays)[:200],
                        allowed=f"at most {_MOST_ARRAYS} arrays")  # fmt: skip
    layout = MessageLayout.of(number, [_read_kind(one) for one in arrays])
    if layout.size_bytes != size_bytes:
        raise DataError("a message of a host must have the length of its arrays", value=f"{size_bytes:,} bytes",
                        allowed=f"{layout.size_bytes:,} bytes")  # fmt: skip
    return layout


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _read_value(content: Bytes) -> object:
    try:
        found: object = json.loads(bytes(content))
    except (ValueError, RecursionError) as error:
        raise DataError("the description of a host's message must be JSON", value=str(error)[:200]) from None
    return found


def _read_json(content: Bytes) -> dict[str, Any]:
    document = _read_value(content)
    if not isinstance(document, dict):
        raise DataError("the description of a host's message must be a JSON object", value=type(document).__name__)
    return document


def _read_kind(one: object) -> tuple[np.dtype[Any], int]:
    if isinstance(one, list) and len(one) == 2:
        dtype, length = one
        if isinstance(dtype, str) and dtype in _TYPES and type(length) is int and 0 <= length <= _MOST_NUMBER:
            return _TYPES[dtype], length
    raise DataError(
        "an array of a message must have a type and a length", value=str(one)[:80], allowed=", ".join(_TYPES)
    )
