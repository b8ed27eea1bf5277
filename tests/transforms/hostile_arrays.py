"""Malformed Arrow arrays by seed, in memory whose every overrun is a segmentation fault.

An array has at most one kind of fault; without one it is sound, however oddly it lies in memory: sliced, with bytes
around what its offsets span, with anything at all beneath its nulls.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tests.transforms.adversarial import FLOATS, INT64S, NASTY_TEXT
from tests.transforms.guard_pages import guarded
from tests.transforms.operators.parameters import GOLDEN_TEXTS
from transforms.columns.arrow_types import arrow_type
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

#: The faults of an array; half of the arrays have none.
_OF_ALL = ("bytes too few", "validity too short", "null count lies", "buffers absent")
_OF_CODES = ("code beyond the dictionary", "code negative")
_OF_OFFSETS = (
    "offsets descend", "offset negative", "offset beyond the bytes", "offset near the end of its type", "offsets too few",
)  # fmt: skip
_OF_TEXT = ("text not UTF-8", "text not UTF-8", "text cut in a character")

_INVALID = [
    b"\xff", b"\x80", b"Z\xfcrich", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x92", b"\xc0\xaf", b"\xc1\xbf", b"\xe0\x80\xaf", b"\xe0\x9f\xbf",
    b"\xf0\x80\x80\xaf", b"\xf0\x8f\xbf\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xed\xa0\xbd\xed\xb2\xa9", b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80", b"\xfe", b"\xf0", b"\xe1", b"\xbf" * 9,
]  # fmt: skip
_TEXTS = [*NASTY_TEXT, *(text for texts in GOLDEN_TEXTS.values() for text in texts if text)]
_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_WHOLE = _INTEGERS[:-1]
_SMALL = [0, 1, 7, 42, 100]


@dataclass(slots=True)
class HostileArrays:
    """Draws arrays. ``at_end``: where their buffers' guard pages are; ``fault``: what is wrong with the last one drawn."""

    source: random.Random
    at_end: bool = True
    fault: str = ""

    def draw(
        self, column_type: ColumnType, rows: int, *, chunked: bool = False, exact: bool = False
    ) -> pa.Array | pa.ChunkedArray:
        """An array to be read as ``column_type``; in its own layout if ``exact``.

        Raises :class:`pyarrow.ArrowInvalid` where Arrow refuses to make it.
        """
        kind = arrow_type(column_type) if exact else self._stored(column_type)
        self.fault = self.source.choice(_faults_of(kind)) if self.source.random() < 0.5 else ""
        if not chunked or self.source.random() < 0.7:
            return self._array(kind, rows, nulls=isinstance(column_type, Dense))
        first = self.source.randint(0, rows)
        lengths = self.source.choice([[first, rows - first], [first, 0, rows - first]])
        return pa.chunked_array(
            [self._array(kind, length, nulls=isinstance(column_type, Dense)) for length in lengths], kind
        )

    def _stored(self, column_type: ColumnType) -> pa.DataType:
        """A stored type that conforms to the declared one; half of the time the very layout of the declared type."""
        pick = self.source
        if pick.random() < 0.4:
            return arrow_type(column_type)
        match column_type:
            case Ragged():
                item = self._element(column_type.dtype)
                return pick.choice([pa.list_(item), pa.large_list(item), pa.list_(item, pick.randint(1, 4))])
            case Weighted():
                weight = pa.field("weight", pick.choice([pa.float32(), pa.float16()]))
                fields = [pa.field("id", self._element(column_type.dtype)), weight]
                return pick.choice([pa.list_, pa.large_list])(pa.struct(fields[:: pick.choice([1, -1])]))
            case Vector():
                item = self._element(column_type.dtype)
                return pick.choice([pa.list_(item), pa.large_list(item), pa.list_(item, column_type.size)])
        return self._element(column_type.dtype)

    def _element(self, dtype: DType) -> pa.DataType:
        pick = self.source
        kind = {
            DType.BOOL: [pa.bool_()],
            DType.INT64: [pa.int64(), *_WHOLE],
            DType.FLOAT32: [pa.float32(), pa.float16()],
            DType.FLOAT64: [pa.float64(), pa.float32(), pa.float16()],
            DType.STRING: [pa.string(), pa.string(), pa.large_string()],
            DType.TIMESTAMP: [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("ns", "UTC")],
        }[dtype]  # fmt: skip
        chosen = pick.choice(kind)
        coded = dtype in (DType.STRING, DType.INT64) and pick.random() < 0.4
        return pa.dictionary(pick.choice(_INTEGERS), chosen) if coded else chosen

    def _has(self, fault: str) -> bool:
        return self.fault == fault and self.source.random() < 0.8

    def _memory(self, content: bytes) -> pa.Buffer:
        return guarded(content, at_end=self.at_end)

    def _array(self, kind: pa.DataType, length: int, *, nulls: bool) -> pa.Array:
        offset = self.source.choice([0, 0, 0, 1, 3, 8, 13, 200])
        total = offset + length
        nulls = nulls or self.source.random() < 0.05  # where the type promises that there are none
        validity, null_count = self._validity(total, offset, length, nulls=nulls)
        if pa.types.is_dictionary(kind):
            return self._coded(kind, length, validity, null_count, offset)
        children: list[pa.Array] = []
        if pa.types.is_struct(kind):
            size = total - (self._has("child too short") and total > 0)
            children = [self._array(field.type, size, nulls=field.nullable) for field in kind]
            buffers = [validity]
        elif pa.types.is_fixed_size_list(kind):
            size = total * kind.list_size - self._has("child too short")
            children = [self._array(kind.value_type, max(size, 0), nulls=kind.value_field.nullable)]
            buffers = [validity]
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            offsets, items = self._lists(total, wide=pa.types.is_large_list(kind))
            children = [self._array(kind.value_type, items, nulls=kind.value_field.nullable)]
            buffers = [validity, offsets]
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            buffers = [validity, *self._texts(total, validity, wide=pa.types.is_large_string(kind))]
        else:
            buffers = [validity, self._values(kind, total)]
        if self._has("buffers absent"):
            absent = self.source.randrange(len(buffers))
            buffers[absent] = None
        return pa.Array.from_buffers(kind, length, buffers, null_count, offset, children or None)

    def _validity(self, total: int, offset: int, length: int, *, nulls: bool) -> tuple[pa.Buffer | None, int]:
        bits = np.array([self.source.random() < 0.8 for _ in range(total)], np.bool_)
        missing = int(length - np.count_nonzero(bits[offset:]))
        held = nulls and self.source.random() < 0.6
        if not held:
            lie = self.source.choice([1, length, -1]) if self._has("null count lies") else 0
            return None, min(lie, length)
        packed = np.packbits(bits, bitorder="little").tobytes()
        if self._has("validity too short"):
            packed = packed[:-1]
        if self._has("null count lies"):
            missing = self.source.choice([0, 1, missing + 1, length])
        return self._memory(packed), self.source.choice([-1, missing]) if self.fault != "null count lies" else missing

    def _values(self, kind: pa.DataType, total: int) -> pa.Buffer:
        if pa.types.is_boolean(kind):
            content = self.source.randbytes(-(-total // 8))
        elif pa.types.is_floating(kind):
            numbers = [self.source.choice(FLOATS) for _ in range(total)]
            with np.errstate(over="ignore"):
                content = np.array(numbers, np.float64).astype(kind.to_pandas_dtype()).tobytes()
        else:
            size = kind.bit_width // 8
            drawn = [self.source.choice(INT64S if self.source.random() < 0.2 else _SMALL) for _ in range(total)]
            content = np.array(drawn, np.int64).astype(f"i{size}").tobytes()
        return self._memory(content[:-1] if self._has("bytes too few") else content)

    def _texts(
        self, total: int, validity: pa.Buffer | None, *, wide: bool
    ) -> tuple[pa.Buffer | None, pa.Buffer | None]:
        texts = [self.source.choice(_TEXTS).encode() for _ in range(total)]
        if validity is not None and self.fault != "validity too short":
            known = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
            for row in np.flatnonzero(known[:total] == 0):  # what lies beneath a null does not matter
                texts[row] += self.source.choice(_INVALID) if self.fault != "null count lies" else b""
        if total and self._has("text not UTF-8"):
            row = self.source.choice([0, total - 1, self.source.randrange(total)])
            cut = self.source.choice([0, len(texts[row])])
            texts[row] = texts[row][:cut] + self.source.choice(_INVALID) + texts[row][cut:]
        before = self.source.choice([b"", b"", b"\x80\xff", b"ab", b"\xf0"])
        behind = self.source.choice([b"", b"", b"\xbf", b"xyz", b"\x80" * 70])
        offsets = len(before) + np.cumsum([0, *map(len, texts)], dtype=np.int64)
        data = before + b"".join(texts) + behind
        if self._has("text cut in a character") and total > 1:
            row = self.source.randrange(1, total)
            offsets[row] = min(max(offsets[row] + self.source.choice([-1, 1, 2]), offsets[row - 1]), offsets[row + 1])
        if self._has("bytes too few"):
            data = data[: -len(behind) - 1] if behind else data[:-1]
        return self._offsets(offsets, len(data), wide=wide), self._memory(data)

    def _lists(self, total: int, *, wide: bool) -> tuple[pa.Buffer, int]:
        lengths = [self.source.choice([0, 0, 1, 2, 3, 5]) for _ in range(total)]
        if total and self.source.random() < 0.1:
            lengths[-1] = 45  # beyond what is compared item by item
        offsets = self.source.choice([0, 0, 4]) + np.cumsum([0, *lengths], dtype=np.int64)
        items = int(offsets[-1]) + self.source.choice([0, 0, 3])
        if self._has("child too short"):
            items = max(items - self.source.choice([1, 4]), 0)
        return self._offsets(offsets, items, wide=wide), items

    def _offsets(self, offsets: Any, held: int, *, wide: bool) -> pa.Buffer:
        at = self.source.randrange(len(offsets))
        if self._has("offsets descend") and len(offsets) > 1:
            offsets[at] = self.source.choice([0, held, int(offsets[at]) - 1, int(offsets[at]) + 9])
        if self._has("offset negative"):
            offsets[at] = self.source.choice([-1, -8, -(2**31)])
        if self._has("offset beyond the bytes"):
            offsets[at:] = np.maximum(offsets[at:], held + self.source.choice([1, 8, 4096, 100_000]))
        if self._has("offset near the end of its type"):
            offsets[at:] = (2**63 if wide else 2**31) - 1 - self.source.choice([0, 1, 8])
        content = offsets.astype(np.int64 if wide else np.int32).tobytes()
        return self._memory(content[: self.source.choice([-1, -4, -8])] if self._has("offsets too few") else content)

    def _coded(
        self, kind: pa.DataType, length: int, validity: pa.Buffer | None, null_count: int, offset: int
    ) -> pa.Array:
        total, bits = offset + length, kind.index_type.bit_width
        distinct = self.source.choice([1, 3, 8, min(max(length, 1), 100)])  # a code of one byte reaches
        if total == 0 or self.fault == "code beyond the dictionary":
            distinct = self.source.choice([0, distinct])
        dictionary = self._array(kind.value_type, distinct, nulls=self.source.random() < 0.3)
        codes = [self.source.randrange(distinct) if distinct else 0 for _ in range(total)]
        if total and self._has("code beyond the dictionary"):
            codes[self.source.randrange(total)] = self.source.choice([distinct, 2**7 - 1, 2 ** (bits - 1) - 1])
        if total and self._has("code negative"):
            codes[self.source.randrange(total)] = self.source.choice([-1, -(2 ** (bits - 1))])
        unsigned = pa.types.is_unsigned_integer(kind.index_type)
        whole = np.array([code % 2**bits for code in codes], np.uint64).astype(f"u{bits // 8}")
        content = (whole if unsigned else whole.view(f"i{bits // 8}")).tobytes()
        content = content[:-1] if self._has("bytes too few") else content
        buffers = [validity, self._memory(content)]
        return pa.DictionaryArray.from_buffers(kind, length, buffers, dictionary, null_count, offset)


def _faults_of(kind: pa.DataType) -> list[str]:
    """What may be wrong with an array of a type, or with one inside of it."""
    if pa.types.is_dictionary(kind):
        return [*_OF_ALL, *_OF_CODES, *_faults_of(kind.value_type)]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return [*_OF_ALL, *_OF_OFFSETS, *_OF_TEXT]
    if pa.types.is_struct(kind):
        return ["child too short", *(fault for part in kind for fault in _faults_of(part.type))]
    if pa.types.is_fixed_size_list(kind):
        return ["child too short", *_faults_of(kind.value_type)]
    if pa.types.is_nested(kind):
        return ["child too short", *_OF_OFFSETS, *_faults_of(kind.value_type)]
    return list(_OF_ALL)


def plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The same values, of an array that is known to be sound, as Arrow itself lays them out, in memory of its own."""
    if isinstance(array, pa.ChunkedArray):
        return pa.concat_arrays([plain(chunk) for chunk in array.chunks])
    decoded = _decoded(array.type)
    whole = array.take(pa.array(range(len(array)), pa.int64()))  # first: casts look at items of no list, too
    return whole if decoded == whole.type else whole.cast(decoded, safe=False)


def _decoded(kind: pa.DataType) -> pa.DataType:
    """The type without dictionaries."""
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("item", _decoded(kind.value_type), kind.value_field.nullable), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        make = pa.large_list if pa.types.is_large_list(kind) else pa.list_
        return make(pa.field("item", _decoded(kind.value_type), kind.value_field.nullable))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(part.name, _decoded(part.type), part.nullable) for part in kind])
    return kind


def described(arrays: Sequence[pa.Array | pa.ChunkedArray]) -> str:
    """What one needs to see of arrays that broke something; never their values, which may lie anywhere."""
    return "; ".join(f"{array.type} of {len(array)} rows" for array in arrays)
