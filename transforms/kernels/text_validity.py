"""The check of untrusted Arrow arrays before kernels read them.

Kernels follow offsets and decode characters without checks: a descending offset, a code beyond its dictionary or a byte
that is not UTF-8 would make them read or write outside of their buffers. So an array is checked once, at the entrance:
when a file is registered, each time it is read, and when a caller passes a batch to a plan.

The rule: every offset and code of an array lies within its target, offsets ascend, and every text that is not null is
UTF-8 as Unicode defines it: no stray bytes, no overlong forms, no surrogates, nothing above U+10FFFF.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array
from transforms.columns.arrays import numpy_of, valid_of
from transforms.columns.columns import decoded_dictionary
from transforms.columns.positions import check_positions
from transforms.errors import DataError, InvalidText
from transforms.kernels.spans import frozen
from transforms.kernels.utf8 import ascends, cuts_character, is_ascii, is_utf8


def check_array(array: pa.Array | pa.ChunkedArray) -> None:
    """Raise unless kernels may read ``array``, of any Arrow type. Costs about as much as reading its bytes once.

    Raises :class:`InvalidText`, with the row and its bytes, for a text that is not UTF-8, and :class:`DataError` for an
    array that points outside of its own buffers.
    """
    first_row = 0
    for chunk in _chunks(array):
        if _holds_invalid(chunk):
            raise _first_invalid(chunk, first_row)
        first_row += len(chunk)


def replaced(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The same values with U+FFFD for each part of a text that is not UTF-8, as Unicode recommends and Python decodes.

    Dictionaries of text become plain text: two of their values may become one. Raises :class:`DataError` for an array
    that points outside of its own buffers.
    """
    chunks = list(_chunks(array))
    if any(_holds_invalid(chunk) for chunk in chunks):
        chunks = [_rewritten(chunk) for chunk in chunks]
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array(chunks, chunks[0].type if chunks else array.type)
    return chunks[0]


class _HasInvalidText(Exception):
    """A nested text is not UTF-8; the caller, which has the rows, finds the first."""


def _chunks(array: pa.Array | pa.ChunkedArray) -> Iterator[pa.Array]:
    yield from array.chunks if isinstance(array, pa.ChunkedArray) else [array]


def _unsound(what: str) -> DataError:
    return DataError("an array must point inside of its own buffers", value=what,
                     next_step="write the data again with a program that checks what it writes")  # fmt: skip


def _check(array: pa.Array) -> None:
    array.validate()  # buffers are as long as the length says; the first and the last offset lie inside
    kind = array.type
    if not _is_known(kind):
        array.validate(full=True)  # of types that no kernel reads and digests do
        return
    _check_offsets_held(array)
    _check_null_count(array)
    if pa.types.is_dictionary(kind):
        _check_codes(array.indices, len(array.dictionary))
        _check(array.dictionary)
    elif _is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        _check_spans(array)
    elif _is_list(kind):
        if not ascends(_offsets(array)):
            raise _unsound("offsets of lists that descend")
        _check(_items(array))
    elif pa.types.is_fixed_size_list(kind):
        if len(array.values) < (array.offset + len(array)) * kind.list_size:  # Arrow forgets the offset
            raise _unsound("vectors without items")
        _check(_items(array))
    elif pa.types.is_struct(kind):
        for part in array.flatten():
            _check(part)


def _is_known(kind: pa.DataType) -> bool:
    spans = _is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    nested = _is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_struct(kind)
    return bool(spans or nested or pa.types.is_dictionary(kind) or pa.types.is_primitive(kind))


def _check_offsets_held(array: pa.Array) -> None:
    """Refuse an empty array without offsets, which Arrow allows, if its rows begin later."""
    kind = array.type
    if array.offset == 0 or pa.types.is_primitive(kind) or _is_counted(kind):
        return
    held = array.buffers()[1]
    if held is None or held.size < (array.offset + len(array) + 1) * _offset_dtype(kind).itemsize:
        raise _unsound("rows without offsets")


def _is_counted(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_struct(kind))


def _check_null_count(array: pa.Array) -> None:
    held = array.buffers()[0]
    valid = len(array)
    if held is not None:
        valid = pa.Array.from_buffers(pa.bool_(), len(array), [None, held], 0, array.offset).true_count
    if array.null_count != len(array) - valid:
        raise _unsound(f"{array.null_count} nulls by its count and {len(array) - valid} by its validity")


def _check_spans(array: pa.Array) -> None:
    offsets = _offsets(array)
    if not ascends(offsets):
        raise _unsound("offsets of text that descend")
    if len(array) == 0 or not _is_text(array.type):
        return
    held = array.buffers()[2]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(0, np.uint8) if held is None else np.frombuffer(held, np.uint8)[first:last]
    data = frozen(data)
    if not is_ascii(data) and (not is_utf8(data) or cuts_character(data, frozen(offsets - offsets.dtype.type(first)))):
        _check_rows(array)


def _check_rows(array: pa.Array) -> None:
    """Check each text that is not null; a null slot may hold any bytes."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise _HasInvalidText from error


def _check_codes(codes: pa.Array, distinct: int) -> None:
    if len(codes) == 0:
        return
    numbers = numpy_of(codes)
    if _reach(numbers) < distinct:
        return
    if codes.null_count:  # a null slot may hold any code
        numbers = numbers[valid_of(codes)]
    if _reach(numbers) >= distinct:
        least, greatest = numbers.min(), numbers.max()
        raise _unsound(f"a code of {least if least < 0 else greatest} into a dictionary of {distinct} values")


def _reach(codes: Array) -> int:
    """The greatest code, where a negative one counts as greater than all others; -1 without any."""
    return int(codes.view(f"u{codes.itemsize}").max()) if len(codes) else -1


def _offsets(array: pa.Array) -> Array:
    """The offsets of text, bytes or lists, one more than there are rows."""
    dtype = _offset_dtype(array.type)
    if len(array) == 0:
        return frozen(np.zeros(1, dtype))
    held = array.buffers()[1]
    return frozen(np.frombuffer(held, dtype, len(array) + 1, array.offset * dtype.itemsize))


def _offset_dtype(kind: pa.DataType) -> np.dtype[Any]:
    wide = pa.types.is_large_list(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    return np.dtype(np.int64 if wide else np.int32)


def _items(array: pa.Array) -> pa.Array:
    """The items of lists, of null ones too, from the first to the last."""
    if pa.types.is_fixed_size_list(array.type):
        return array.values.slice(array.offset * array.type.list_size, len(array) * array.type.list_size)
    offsets = _offsets(array)
    first, last = int(offsets[0]), int(offsets[-1])
    return array.values.slice(first, last - first)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


def _first_invalid(chunk: pa.Array, first_row: int) -> InvalidText:
    """The first row with invalid text, by bisection."""
    if pa.types.is_dictionary(chunk.type):
        decoded = decoded_dictionary(chunk)
        if not _holds_invalid(decoded):
            return InvalidText(None, _invalid_in(chunk.dictionary))
        chunk = decoded
    low, high = 0, len(chunk)
    while high - low > 1:
        middle = (low + high) // 2
        if _holds_invalid(chunk.slice(low, middle - low)):
            high = middle
        else:
            low = middle
    return InvalidText(first_row + low, _invalid_in(chunk.slice(low, 1)))


def _holds_invalid(rows: pa.Array) -> bool:
    try:
        _check(rows)
    except pa.ArrowInvalid as error:
        raise _unsound(str(error).splitlines()[0]) from error
    except _HasInvalidText:
        return True
    return False


def _invalid_in(array: pa.Array) -> bytes:
    return next(text for text in _texts_of(array) if _decoded(text).encode() != text)


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", errors="replace")


def _texts_of(array: pa.Array) -> Iterator[bytes]:
    """Every text as bytes, however deep it lies in an array of sound offsets."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        yield from _texts_of(array.dictionary)
    elif _is_text(kind):
        yield from (text for text in array.cast(_bytes_of(kind)).to_pylist() if text is not None)
    elif _is_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _texts_of(_items(array))
    elif pa.types.is_struct(kind):
        for part in array.flatten():
            yield from _texts_of(part)


def _bytes_of(text: pa.DataType) -> pa.DataType:
    return pa.large_binary() if pa.types.is_large_string(text) else pa.binary()


def _rewritten(array: pa.Array) -> pa.Array:
    """The array with every text decoded and encoded again; its offsets are known to be sound."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _rewritten(decoded_dictionary(array))
    if _is_text(kind):
        held = array.cast(_bytes_of(kind)).to_pylist()
        texts = [None if text is None else _decoded(text).encode() for text in held]
        if pa.types.is_string(kind):  # U+FFFD has three bytes, for one that it replaces
            check_positions(sum(len(text) for text in texts if text is not None), "bytes of text")
        return pa.array(texts, _bytes_of(kind)).cast(kind)
    if _is_list(kind):
        items = _rewritten(_items(array))
        whole = pa.large_list(items.type) if pa.types.is_large_list(kind) else pa.list_(items.type)
        moved = pa.py_buffer(np.subtract(_offsets(array), _offsets(array)[:1]))
        lists = pa.Array.from_buffers(whole, len(array), [None, moved], 0, 0, [items])
        return pc.if_else(array.is_valid(), lists, pa.scalar(None, whole)) if array.null_count else lists
    if pa.types.is_fixed_size_list(kind):
        items = _rewritten(_items(array))
        return pa.FixedSizeListArray.from_arrays(items, kind.list_size, mask=_nulls(array))
    if pa.types.is_struct(kind):
        parts = [_rewritten(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(parts, [field.name for field in kind], mask=_nulls(array))
    return array


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
