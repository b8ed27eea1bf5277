"""Parquet files of one text column, written number by number, for headers that no writer writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_I32, _I64, _BINARY, _LIST, _STRUCT = 5, 6, 8, 9, 12
_CODECS = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6}
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
_BYTE_ARRAY = 6

#: The type and the bytes of a field.
_Field = tuple[int, bytes]


@dataclass(frozen=True)
class CraftedPage:
    """A page as it is stored; the header states ``size`` bytes once decompressed, and so many values."""

    stored: bytes
    size: int
    values: int
    encoding: int = PLAIN
    is_dictionary: bool = False

    def to_bytes(self) -> bytes:
        """The header and the stored bytes."""
        if self.is_dictionary:
            own = {7: _struct({1: _number(self.values), 2: _number(self.encoding)})}
        else:
            numbers = (self.values, self.encoding, RLE, RLE)
            own = {5: _struct({place: _number(number) for place, number in enumerate(numbers, 1)})}
        kind = _DICTIONARY_PAGE if self.is_dictionary else _DATA_PAGE
        header = {1: _number(kind), 2: _number(self.size), 3: _number(len(self.stored)), **own}
        return _struct(header)[1] + self.stored


def plain(*texts: bytes) -> bytes:
    """Texts in the encoding PLAIN."""
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def crafted_parquet(pages: Sequence[CraftedPage], codec: str, plain_size: int | None = None) -> bytes:
    """A file with the required column ``t`` in one row group; ``plain_size`` replaces the right size without the codec."""
    stored = [page.to_bytes() for page in pages]
    body = b"".join(stored)
    rows = sum(page.values for page in pages if not page.is_dictionary)
    own_size = sum(len(one) - len(page.stored) + page.size for one, page in zip(stored, pages, strict=True))
    column = {
        1: _number(_BYTE_ARRAY), 2: _list(_I32, [_number(PLAIN)[1], _number(RLE_DICTIONARY)[1]]), 3: _list(_BINARY, [_text("t")[1]]),
        4: _number(_CODECS[codec]), 5: _number(rows, _I64),
        6: _number(own_size if plain_size is None else plain_size, _I64), 7: _number(len(body), _I64),
        9: _number(4 + len(stored[0]) if pages[0].is_dictionary else 4, _I64),
    }  # fmt: skip
    if pages[0].is_dictionary:
        column[11] = _number(4, _I64)
    chunk = _struct({2: _number(4, _I64), 3: _struct(column)})[1]
    group = _struct({1: _list(_STRUCT, [chunk]), 2: _number(own_size, _I64), 3: _number(rows, _I64)})[1]
    schema = [_struct({4: _text("schema"), 5: _number(1)})[1],
              _struct({1: _number(_BYTE_ARRAY), 3: _number(0), 4: _text("t"), 6: _number(0)})[1]]  # fmt: skip
    footer = _struct({1: _number(1), 2: _list(_STRUCT, schema), 3: _number(rows, _I64), 4: _list(_STRUCT, [group])})[1]
    return b"PAR1" + body + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def varint(number: int) -> bytes:
    """Seven bits a byte, lowest first."""
    found = []
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _number(number: int, kind: int = _I32) -> _Field:
    return kind, varint(2 * number)


def _text(text: str) -> _Field:
    return _BINARY, varint(len(text)) + text.encode()


def _list(kind: int, items: Sequence[bytes]) -> _Field:
    return _LIST, bytes([len(items) << 4 | kind]) + b"".join(items)


def _struct(fields: Mapping[int, _Field]) -> _Field:
    found, last = [], 0
    for place, (kind, content) in sorted(fields.items()):
        found.append(bytes([place - last << 4 | kind]) + content)
        last = place
    return _STRUCT, b"".join(found) + b"\0"
