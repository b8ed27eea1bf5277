"""The records of TensorBoard's event files: protocol buffers of type ``tensorflow.Event``, each with two checksums. Pure.

===================  =============================================
bytes                content
===================  =============================================
8                    the length of the event, little-endian
4                    the masked CRC-32C of these 8 bytes
length               the event
4                    the masked CRC-32C of the event
===================  =============================================

An event has a time, a step and one of: the version of the file, scalars by name, or the notice that steps from its own on are void.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

#: The first event of each file has it.
VERSION: Final = "brain.Event:2"
#: Events of scalars are far below it.
_MOST_BYTES: Final = 1 << 24
_CRC_MASK: Final = 0xA282EAD8
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
#: Wire types of protocol buffers.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
#: Numbers of fields: of an event, a summary, a value of it, and a session log.
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY, _SESSION_LOG = 1, 2, 3, 5, 7
_VALUE, _TAG, _SIMPLE_VALUE, _STATUS = 1, 1, 2, 1
_START: Final = 1


@dataclass(frozen=True, slots=True)
class Event:
    """An event.

    Attributes:
        at_secs: its time in epoch seconds.
        step: of the optimizer.
        scalars: by name, written as float32.
        version: of the file; "" in all but its first event.
        voids_later: the events of this step and later ones, in earlier files, are void.
    """

    at_secs: float
    step: int = 0
    scalars: Mapping[str, float] = field(default_factory=dict)
    version: str = ""
    voids_later: bool = False


def event_record(event: Event) -> bytes:
    """The bytes of an event with its length and checksums."""
    data = _event(event)
    length = _LENGTH.pack(len(data))
    return length + _CHECKSUM.pack(masked_crc(length)) + data + _CHECKSUM.pack(masked_crc(data))


def read_events(content: bytes) -> Iterator[Event]:
    """The events of a file up to its end, or to the first record that is not whole: a killed process leaves one."""
    at = 0
    head, tail = _LENGTH.size + _CHECKSUM.size, _CHECKSUM.size
    while at + head + tail <= len(content):
        (length,) = _LENGTH.unpack_from(content, at)
        (checksum,) = _CHECKSUM.unpack_from(content, at + _LENGTH.size)
        if length > min(_MOST_BYTES, len(content) - at - head - tail):
            return
        data = content[at + head : at + head + length]
        (of_data,) = _CHECKSUM.unpack_from(content, at + head + length)
        if (checksum, of_data) != (masked_crc(content[at : at + _LENGTH.size]), masked_crc(data)):
            return
        event = _read_event(data)
        if event is None:
            return
        yield event
        at += head + length + tail


def masked_crc(data: bytes) -> int:
    """The CRC-32C (Castagnoli) of some bytes, rotated and shifted as event files have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _CRC_MASK) & 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        found.append(crc)
    return tuple(found)


_TABLE: Final = _table()


def _event(event: Event) -> bytes:
    data = _key(_WALL_TIME, _FIXED64) + _DOUBLE.pack(event.at_secs)
    if event.step:
        data += _key(_STEP, _VARINT) + _varint(event.step)
    if event.version:
        data += _message(_FILE_VERSION, event.version.encode())
    if event.scalars:
        data += _message(_SUMMARY, b"".join(_message(_VALUE, _value(*one)) for one in event.scalars.items()))
    if event.voids_later:
        data += _message(_SESSION_LOG, _key(_STATUS, _VARINT) + _varint(_START))
    return data


def _value(name: str, value: float) -> bytes:
    return _message(_TAG, name.encode()) + _key(_SIMPLE_VALUE, _FIXED32) + _FLOAT.pack(value)


def _message(number: int, content: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(content)) + content


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _read_event(data: bytes) -> Event | None:
    """An event; None for other bytes."""
    try:
        fields = dict(_fields(data))
        scalars = {}
        for number, content in _fields(fields.get(_SUMMARY, b"")):
            value = dict(_fields(content)) if number == _VALUE else {}
            if _SIMPLE_VALUE in value:
                scalars[value[_TAG].decode()] = float(_FLOAT.unpack(value[_SIMPLE_VALUE])[0])
        status = dict(_fields(fields.get(_SESSION_LOG, b""))).get(_STATUS, b"")
        return Event(
            _DOUBLE.unpack(fields[_WALL_TIME])[0],
            int.from_bytes(fields.get(_STEP, b""), "little"),
            scalars,
            fields.get(_FILE_VERSION, b"").decode(),
            int.from_bytes(status, "little") == _START,
        )
    except (KeyError, ValueError, struct.error):
        return None


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message by number; a whole number as 8 little-endian bytes. Raises :class:`ValueError` for other bytes."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield key >> 3, value.to_bytes(8, "little")
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
        if kind == _BYTES:
            size, at = _read_varint(data, at)
        if size is None or size > len(data) - at:
            raise ValueError("a field must be one of a known kind, within its message")
        yield key >> 3, data[at : at + size]
        at += size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            raise ValueError("a number must end within its message")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("a number must have at most 10 bytes")
