"""The canonical byte encoding that fingerprints are taken over: type-tagged and length-prefixed.

The rules, which golden vectors in the tests check:

* every value is ``tag (1 byte) · length (8 bytes, big endian) · payload``, so no two values share an encoding and
  ``1``, ``1.0``, ``True`` and ``"1"`` differ;
* integers are signed big-endian two's complement of minimal length, of any size;
* floats are IEEE 754 binary64, big endian. ``-0.0`` and ``0.0`` differ, as 1/x does; every NaN is the one
  quiet NaN, since no operator may depend on a payload;
* text is its exact UTF-8 bytes. It is *not* brought to NFC: operators see bytes, and two spellings of one word hash
  to different buckets. Lone surrogates cannot be encoded and are refused;
* mappings are encoded in the order of their encoded keys.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache

from transforms.errors import InputError

#: The maximum length of a text whose encoding is cached, such as an operator's or a parameter's name.
_SHORT = 40
_QUIET_NAN = bytes.fromhex("7ff8000000000000")


def encode(value: object) -> bytes:
    """The canonical bytes of None, bool, int, float, str, bytes, or of a sequence or mapping of these.

    Raises :class:`InputError` for any other type and for text with lone surrogates.
    """
    match value:
        case str():
            return _short_text(value) if len(value) <= _SHORT else _tagged(b"s", _utf8(value))
        case None:
            return _tagged(b"0", b"")
        case bool():
            return _tagged(b"b", b"\x01" if value else b"\x00")
        case int():
            return _tagged(b"i", value.to_bytes((value.bit_length() + 8) // 8, "big", signed=True))
        case float():
            return _tagged(b"f", _QUIET_NAN if math.isnan(value) else struct.pack(">d", value))
        case bytes():
            return _tagged(b"y", value)
        case list() | tuple():
            return encode_list([encode(item) for item in value])
        case Mapping():
            pairs = sorted((encode(key), encode(item)) for key, item in value.items())
            return _tagged(b"m", b"".join(key + item for key, item in pairs))
        case _:
            raise InputError("a value must have a canonical encoding", value=type(value).__name__,
                             allowed="None, bool, int, float, str, bytes, list, tuple, mapping")  # fmt: skip


def digest(value: object) -> str:
    """SHA-256 of :func:`encode`, as 64 hexadecimal digits."""
    return hashlib.sha256(encode(value)).hexdigest()


def encode_list(items: Iterable[bytes]) -> bytes:
    """The encoding of a list from those of its items, for items that many lists share."""
    return _tagged(b"l", b"".join(items))


def _tagged(tag: bytes, payload: bytes) -> bytes:
    return tag + len(payload).to_bytes(8, "big") + payload


@lru_cache(maxsize=4096)
def _short_text(value: str) -> bytes:
    return _tagged(b"s", _utf8(value))


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError("text must be without lone surrogates", value=text.encode("unicode_escape"),
                         next_step="decode the text properly before it reaches Headrace") from None  # fmt: skip
