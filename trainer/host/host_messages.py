"""What a host sends to another one, as bytes: a greeting, then messages of arrays. Pure.

A greeting and a description are JSON after their length; the arrays of a message follow its description, each at a multiple of 8 bytes.
The lengths of both are limited, and a description is checked before memory is taken for its arrays.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from trainer.errors import ConfigError
from transforms.errors import DataError

Array = np.ndarray[Any, np.dtype[Any]]
Bytes: TypeAlias = bytes | memoryview

#: What a stream begins with, with the number of the format.
MAGIC = b"HRHOST\x00\x02"
#: Before a greeting, a description or an error.
LENGTH = struct.Struct("<I")
#: The longest greeting, description and error.
MOST_DOCUMENT_BYTES = 1 << 14
#: The longest arrays of one message.
MOST_MESSAGE_BYTES = 1 << 30
_TYPES = {name: np.dtype(name) for name in ("float32", "int64", "int32", "uint8")}
_MOST_ARRAYS, _MOST_HOSTS, _MOST_CHANNELS, _MOST_NUMBER = 64, 4096, 16, 2**62
_ALIGNED = 8
_PADDING = bytes(_ALIGNED)


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


def write_greeting(sender: Sender, token: str) -> Bytes:
    """The bytes that a stream begins with."""
    return MAGIC + _with_length(
        {"attempt": sender.attempt, "rank": sender.rank, "channel": sender.channel, "token": token}
    )


def read_greeting(content: bytes) -> tuple[Sender, str]:
    """The sender and the token in a greeting. Raises :class:`DataError`."""
    document = _read_json(content)
    token, numbers = document.pop("token", None), document.values()
    are_numbers = all(type(one) is int and 0 <= one <= _MOST_NUMBER for one in numbers)
    if document.keys() != {"attempt", "rank", "channel"} or not are_numbers or not isinstance(token, str):
        raise DataError(
            "a stream of a host must name its sender",
            value=str(document)[:200],
            allowed="attempt, rank, channel, token",
        )
    if document["rank"] >= _MOST_HOSTS:
        raise DataError(
            "the rank of a host must be that of a job", value=document["rank"], allowed=f"below {_MOST_HOSTS}"
        )
    if document["channel"] >= _MOST_CHANNELS:
        raise DataError(
            "the channel of a stream must be that of a job",
            value=document["channel"],
            allowed=f"below {_MOST_CHANNELS}",
        )
    return Sender(document["attempt"], document["rank"], document["channel"]), token


def write_message(number: int, arrays: Sequence[Array], most_bytes: int) -> list[Bytes]:
    """The bytes of a message in parts, views of arrays among them.

    Raises :class:`ConfigError` for arrays above ``most_bytes``, and :class:`ValueError` for one that is not flat.
    """
    if any(array.ndim != 1 for array in arrays):
        raise ValueError(f"the arrays of a message must be flat, got shapes {[array.shape for array in arrays][:8]}")
    layout = MessageLayout.of(number, [(array.dtype, len(array)) for array in arrays])
    if layout.size_bytes > most_bytes:
        raise ConfigError("a message between hosts must be short", value=f"{layout.size_bytes:,} bytes",
                          allowed=f"at most {most_bytes:,} bytes", next_step="use a smaller batch_rows")  # fmt: skip
    described = [[str(array.dtype), len(array)] for array in arrays]
    parts: list[Bytes] = [_with_length({"number": number, "arrays": described})]
    for array in arrays:
        parts += [np.ascontiguousarray(array).view(np.uint8).data, _PADDING[: -array.nbytes % _ALIGNED]]
    return [part for part in parts if len(part)]


def read_description(content: bytes, number: int, most_bytes: int) -> MessageLayout:
    """The layout of the message ``number`` of a stream. Raises :class:`DataError`, also for arrays above ``most_bytes``."""
    document = _read_json(content)
    arrays = document.get("arrays")
    if (document.keys() != {"number", "arrays"} or type(document["number"]) is not int
            or not isinstance(arrays, list) or len(arrays) > _MOST_ARRAYS):  # fmt: skip
        raise DataError("a message of a host must have a number and arrays", value=str(document)[:200])
    if document["number"] != number:
        raise DataError("messages of a host must be in order", value=document["number"], allowed=str(number))
    layout = MessageLayout.of(number, [_read_kind(one) for one in arrays])
    if layout.size_bytes > most_bytes:
        raise DataError("a message of a host must be short", value=f"{layout.size_bytes:,} bytes",
                        allowed=f"at most {most_bytes:,} bytes")  # fmt: skip
    return layout


def read_length(content: bytes) -> int:
    """The length of a document. Raises :class:`DataError` for one that is too long."""
    if len(content) != LENGTH.size:
        raise DataError(
            "a stream of a host must be whole", value=f"{len(content)} bytes of a length", allowed=str(LENGTH.size)
        )
    length: int = LENGTH.unpack(content)[0]
    if length > MOST_DOCUMENT_BYTES:
        raise DataError(
            "a description of a host must be short", value=length, allowed=f"at most {MOST_DOCUMENT_BYTES:,} bytes"
        )
    return length


def _with_length(document: dict[str, Any]) -> bytes:
    content = json.dumps(document, separators=(",", ":")).encode()
    return LENGTH.pack(len(content)) + content


def _read_json(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError("a message of a host must be described in JSON", value=str(error)[:200]) from None
    if not isinstance(document, dict):
        raise DataError("a message of a host must be described by an object", value=type(document).__name__)
    return document


def _read_kind(one: object) -> tuple[np.dtype[Any], int]:
    if isinstance(one, list) and len(one) == 2:
        dtype, length = one
        if isinstance(dtype, str) and dtype in _TYPES and type(length) is int and 0 <= length <= _MOST_NUMBER:
            return _TYPES[dtype], length
    raise DataError(
        "an array of a message must have a type and a length", value=str(one)[:80], allowed=", ".join(_TYPES)
    )
