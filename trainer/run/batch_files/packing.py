"""The inner loops between the bags of a batch and their packed bytes, without specs or names.

A row of ``described`` (int64, [inputs, :data:`FIELDS`]) is what the bytes have of an input: the bytes of an id; the number of ids; the ids of
every event, -1 if they differ; the bytes of a length, 0 for none; and the input whose lengths it has, itself or one before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.kernels.compiled import compiled, uncounted

#: The fields of a row of ``described``, and of a row of ``places``: the first bytes of what there is of an input, -1 for nothing.
WIDTH, COUNT, PER_EVENT, LENGTH_BYTES, SHARED = range(5)
FIELDS = 5
IDS_AT, LENGTHS_AT, WEIGHTS_AT = range(3)
PLACES = 3
#: The fields of what is known of an input (int64, [inputs, 2]): the bound of its ids, and whether they have weights.
BOUND, WEIGHTED = range(2)
#: What is wrong: with all bytes, another length; with an input, lengths that are not those of its ids, an id out of its bound, a weight that
#: is not finite; with the events, a number that is not finite, a label that the task does not have.
BAD_SIZE, BAD_LENGTHS, BAD_ID, BAD_WEIGHT, BAD_NUMBER, BAD_LABEL = range(1, 7)


@compiled
def describe(offsets: Array, rows: int, types: Array, described: Array) -> None:
    """Fill ``described`` for the first ``rows`` events of checked offsets (int64 [inputs, events + 1])."""
    for f in range(len(offsets)):
        own, one = offsets[f], described[f]
        one[WIDTH], one[COUNT] = bytes_for(types[f, BOUND]), own[rows] - own[0]
        one[PER_EVENT], one[LENGTH_BYTES], one[SHARED] = -1, 0, f
        first, differs = own[min(rows, 1)] - own[0], np.int64(0)
        most: Any = np.int64(0)
        for i in range(rows):
            length = own[i + 1] - own[i]
            most = max(most, length)
            differs |= length ^ first
        if differs == 0:
            one[PER_EVENT] = first
            continue
        for other in range(f):
            is_like = described[other, LENGTH_BYTES] and described[other, COUNT] == one[COUNT]
            if is_like and _are_equal(offsets[other, : rows + 1], own[: rows + 1]):
                one[SHARED] = other
                break
        if one[SHARED] == f:
            one[LENGTH_BYTES] = min(bytes_for(most + 1), 4)


@uncounted
def bytes_for(bound: int) -> int:
    """The bytes of numbers below ``bound``: 1, 2, 4 or 8."""
    if bound <= 1 << 8:
        return 1
    if bound <= 1 << 16:
        return 2
    return 4 if bound <= 1 << 32 else 8


@uncounted
def _are_equal(theirs: Array, own: Array) -> bool:
    differs, apart = np.int64(0), own[0] - theirs[0]
    for i in range(len(own)):
        differs |= own[i] - theirs[i] - apart
    return bool(differs == 0)


@compiled
def survey(described: Array, types: Array, rows: int, most: int) -> tuple[int, int]:
    """The first input that is described as no batch is, or has more than ``most`` bytes, -1 for none; and the ids of all inputs."""
    total: Any = np.int64(0)
    for f in range(len(described)):
        width, count, per_event, length_bytes, shared = described[f]
        if width != bytes_for(types[f, BOUND]) or not 0 <= count <= most // width or not 0 <= shared <= f:
            return f, 0
        if types[f, WEIGHTED] and count > most // 4:
            return f, 0
        if per_event >= 0:
            if shared != f or length_bytes or per_event != count // max(rows, 1) or count % max(rows, 1):
                return f, 0
        elif per_event != -1:
            return f, 0
        elif shared == f:
            if length_bytes != 1 and length_bytes != 2 and length_bytes != 4:
                return f, 0
        elif length_bytes or not described[shared, LENGTH_BYTES] or described[shared, COUNT] != count:
            return f, 0
        total += count
    return -1, total


@compiled
def place(described: Array, types: Array, rows: int, begin: int, places: Array) -> int:
    """Fill ``places`` with where each input is from the byte ``begin`` on; returns the end. Descriptions must be sound."""
    at = begin
    places[:] = -1
    for f in range(len(described)):
        one = described[f]
        places[f, IDS_AT] = at
        at += (one[COUNT] * one[WIDTH] + 7) // 8 * 8
        if one[LENGTH_BYTES]:
            places[f, LENGTHS_AT] = at
            at += (rows * one[LENGTH_BYTES] + 7) // 8 * 8
        if types[f, WEIGHTED]:
            places[f, WEIGHTS_AT] = at
            at += (4 * one[COUNT] + 7) // 8 * 8
    return at


@compiled
def pack(
    ids: Array, offsets: Array, weights: Array, rows: int, described: Array, places: Array, types: Array, out: Array
) -> None:
    """Write all inputs into ``out`` (uint8) at ``places``; ``weights`` is not read of inputs without any."""
    for f in range(len(described)):
        own, one, where = offsets[f], described[f], places[f]
        begin, count, width = own[0], one[COUNT], one[WIDTH]
        source, target = ids[begin : begin + count], out[where[IDS_AT] : where[IDS_AT] + count * width]
        if width == 1:
            _narrow(source, target)
        elif width == 2:
            _narrow(source, target.view(np.uint16))
        elif width == 4:
            _narrow(source, target.view(np.uint32))
        else:
            _narrow(source, target.view(np.int64))
        size = one[LENGTH_BYTES]
        lengths = out[where[LENGTHS_AT] : where[LENGTHS_AT] + rows * size] if size else out[:0]
        if size == 1:
            _lengths_of(own, lengths)
        elif size == 2:
            _lengths_of(own, lengths.view(np.uint16))
        elif size == 4:
            _lengths_of(own, lengths.view(np.uint32))
        if types[f, WEIGHTED]:
            _narrow(
                weights[begin : begin + count], out[where[WEIGHTS_AT] : where[WEIGHTS_AT] + 4 * count].view(np.float32)
            )


@uncounted
def _narrow(source: Array, out: Array) -> None:
    for i in range(len(out)):
        out[i] = source[i]


@uncounted
def _lengths_of(offsets: Array, out: Array) -> None:
    for i in range(len(out)):
        out[i] = offsets[i + 1] - offsets[i]


@compiled
def unpack(
    content: Array,
    described: Array,
    types: Array,
    rows: int,
    dense_at: int,
    labels_at: int,
    inputs_at: int,
    label_bytes: int,
    most_labels: Array,
    ids: Array,
    offsets: Array,
    id_weights: Array,
    dense: Array,
    labels: Array,
    weights: Array,
) -> tuple[int, int]:
    """Fill the arrays of a batch from its bytes; events from ``rows`` on are empty, zeros and of weight 0.

    Args:
        described: sound, with as many ids as ``ids`` has.
        dense_at, labels_at, inputs_at: where the bytes of numbers, labels and inputs begin; those of inputs are the last.
        most_labels: of each label, the largest of those that are stored as bytes; others are not checked.
        ids, offsets, id_weights, dense, labels, weights: those of the batch; ``id_weights`` may be empty, ``dense`` are bits in a row.

    Returns what is wrong with which input, number or label, else zeros.
    """
    places = np.empty((len(described), PLACES), np.int64)
    if place(described, types, rows, inputs_at, places) != len(content):
        return BAD_SIZE, 0
    wrong, f = _unpack_ids(content, described, places, types, rows, ids, offsets, id_weights)
    if wrong:
        return wrong, f
    events, tasks, size = len(weights), len(most_labels), rows * (len(dense) // len(weights))
    if _copy_finite(content[dense_at : dense_at + 4 * size].view(np.uint32), dense[:size]):
        return BAD_NUMBER, 0
    dense[size:] = np.uint32(0)
    stored = content[labels_at : labels_at + rows * tasks * label_bytes]
    if label_bytes == 1:
        for t in range(tasks):
            if _above(stored, t, tasks, most_labels[t]):
                return BAD_LABEL, t
        _narrow(stored, labels[: rows * tasks])
    else:
        _narrow(stored.view(np.float32), labels[: rows * tasks])
    labels[rows * tasks :] = np.float32(0.0)
    weights[:rows] = np.float32(1.0)
    weights[rows:events] = np.float32(0.0)
    return 0, 0


@uncounted
def _above(stored: Array, first: int, step: int, most: int) -> bool:
    found = False
    for i in range(first, len(stored), step):
        found |= stored[i] > most
    return found


@compiled
def _unpack_ids(
    content: Array,
    described: Array,
    places: Array,
    types: Array,
    rows: int,
    ids: Array,
    offsets: Array,
    weights: Array,
) -> tuple[int, int]:
    """Fill the bags of all inputs; returns what is wrong with which of them, else zeros."""
    at: Any = np.int64(0)  # numba would compile what is called with a literal 0 once more, for literals
    for f in range(len(described)):
        one, where, row = described[f], places[f], offsets[f]
        count, width, per_event, shared = one[COUNT], one[WIDTH], one[PER_EVENT], one[SHARED]
        row[0] = at
        if per_event >= 0:
            _end_each(at, per_event, row[1 : rows + 1])
        elif shared != f:
            _shift(offsets[shared, : rows + 1], at, row[: rows + 1])
        else:
            size = one[LENGTH_BYTES]
            lengths = content[where[LENGTHS_AT] : where[LENGTHS_AT] + rows * size]
            if size == 1:
                _sum(lengths, at, row)
            elif size == 2:
                _sum(lengths.view(np.uint16), at, row)
            else:
                _sum(lengths.view(np.uint32), at, row)
        if row[rows] != at + count:
            return BAD_LENGTHS, f
        row[rows + 1 :] = at + count
        source, out = content[where[IDS_AT] : where[IDS_AT] + count * width], ids[at : at + count]
        last = types[f, BOUND] - 1
        if width == 1:
            wrong = _widen(source, out) > last
        elif width == 2:
            wrong = _widen(source.view(np.uint16), out) > last
        elif width == 4:
            wrong = _widen(source.view(np.uint32), out) > last
        else:
            wrong = _copy_below(source.view(np.int64), out, np.uint64(last))
        if wrong:
            return BAD_ID, f
        if len(weights):
            if not types[f, WEIGHTED]:
                weights[at : at + count] = np.float32(1.0)
            elif _copy_finite(
                content[where[WEIGHTS_AT] : where[WEIGHTS_AT] + 4 * count].view(np.uint32),
                weights[at : at + count].view(np.uint32),
            ):
                return BAD_WEIGHT, f
        at += count
    return 0, 0


@uncounted
def _end_each(at: Any, per_event: Any, out: Array) -> None:
    if per_event == 1:  # without a product, which takes several times as long
        for i in range(len(out)):
            out[i] = at + 1 + i
        return
    for i in range(len(out)):
        out[i] = at + (i + 1) * per_event


@uncounted
def _shift(theirs: Array, at: Any, out: Array) -> None:
    by = at - theirs[0]
    for i in range(len(out)):
        out[i] = theirs[i] + by


@uncounted
def _sum(lengths: Array, at: Any, row: Array) -> None:
    total = at
    for i in range(len(lengths)):
        total += np.int64(lengths[i])
        row[i + 1] = total


@uncounted
def _widen(source: Array, out: Array) -> int:
    """Copy unsigned ids; returns the largest. Each width is compared in its own, since lanes of 64 bits take three times as long."""
    most = source[0] if len(source) else source.dtype.type(0)
    for i in range(len(out)):
        one = source[i]
        most = max(most, one)
        out[i] = one
    return np.int64(most)  # type: ignore[return-value]


@uncounted
def _copy_below(source: Array, out: Array, last: Any) -> bool:
    """Copy ids of 64 bits; whether one is not in [0, last]."""
    wrong = np.uint64(0)
    for i in range(len(out)):
        one = np.uint64(source[i])
        wrong |= one | (last - one)
        out[i] = np.int64(one)
    return bool(wrong >> np.uint64(63))


@uncounted
def _copy_finite(source: Array, out: Array) -> Any:
    """Copy the bits of floats; not 0 if one is NaN or infinite."""
    found = np.uint32(0)
    for i in range(len(out)):
        one = source[i]
        found |= np.uint32((one & np.uint32(0x7F800000)) == np.uint32(0x7F800000))
        out[i] = one
    return found
