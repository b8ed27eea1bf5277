"""Kernels that join the items of lists to text."""

from __future__ import annotations

import numpy as np

from transforms.columns.columns import Array, Column, Numbers, RaggedItems, Strings
from transforms.columns.positions import check_positions
from transforms.kernels.buffers import dense, positions, spans
from transforms.kernels.casting import cast
from transforms.kernels.compiled import compiled
from transforms.kernels.lists import lists_of
from transforms.kernels.spans import copy_bytes, frozen
from transforms.types import DType


def zip_lists(column: Column, others: Column, *, joiner: str) -> Column:
    """The items of two lists joined one by one, as far as the shorter list goes."""
    left, right = lists_of(column), lists_of(others)
    left_offsets, right_offsets = positions(left.offsets), positions(right.offsets)
    lengths = np.minimum(np.diff(left_offsets), np.diff(right_offsets))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)  # no more
    between = frozen(np.frombuffer(joiner.encode(), np.uint8))
    one, other = _text(left.items), _text(right.items)
    ends = _ends(offsets, left_offsets, *one[1:], right_offsets, *other[1:], len(between))
    check_positions(int(ends[-1]) if len(ends) else 0, "bytes of joined text")
    data = _joined(offsets, left_offsets, *one, right_offsets, *other, between, ends)
    starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
    return RaggedItems(offsets, Strings(data, starts.astype(np.int32), ends.astype(np.int32)))


def _text(items: Numbers | Strings) -> tuple[Array, Array, Array]:
    text = dense(cast(items, dtype=DType.STRING)) if isinstance(items, Numbers) else items
    assert isinstance(text, Strings), "a cast to text gives text"
    return spans(text)


@compiled
def _ends(
    offsets: Array, left: Array, left_starts: Array, left_ends: Array,
    right: Array, right_starts: Array, right_ends: Array, between: int,
) -> Array:  # fmt: skip
    """The end of each joined text in the concatenation of all."""
    ends = np.empty(offsets[-1], np.int64)
    at = np.int64(0)
    for row in range(len(offsets) - 1):
        for i in range(offsets[row + 1] - offsets[row]):
            one, other = left[row] + i, right[row] + i
            at += (left_ends[one] - left_starts[one]) + between + (right_ends[other] - right_starts[other])
            ends[offsets[row] + i] = at
    return ends


@compiled
def _joined(
    offsets: Array, left: Array, left_data: Array, left_starts: Array, left_ends: Array,
    right: Array, right_data: Array, right_starts: Array, right_ends: Array, between: Array, ends: Array,
) -> Array:  # fmt: skip
    data = np.empty(ends[-1] if len(ends) else 0, np.uint8)
    at = 0
    for row in range(len(offsets) - 1):
        for i in range(offsets[row + 1] - offsets[row]):
            one, other = left[row] + i, right[row] + i
            copy_bytes(left_data, left_starts[one], left_ends[one] - left_starts[one], data, at)
            at += left_ends[one] - left_starts[one]
            copy_bytes(between, 0, len(between), data, at)
            at += len(between)
            copy_bytes(right_data, right_starts[other], right_ends[other] - right_starts[other], data, at)
            at += right_ends[other] - right_starts[other]
    return data
