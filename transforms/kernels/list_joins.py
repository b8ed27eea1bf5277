"""Kernels that join the items of lists to text."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, RaggedItems, Strings
from transforms.columns.positions import check_positions
from transforms.kernels.buffers import dense, positions, spans
from transforms.kernels.casting import cast
from transforms.kernels.compiled import compiled
from transforms.kernels.lists import lists_of
from transforms.kernels.spans import copy_bytes, frozen
from transforms.types import DType


class TextLists(NamedTuple):
    """Lists of text: row i has the items from ``offsets[i]`` to ``offsets[i + 1]``, item j is ``data[starts[j]:ends[j]]``."""

    offsets: Array
    data: Array
    starts: Array
    ends: Array


def zip_lists(column: Column, others: Column, *, joiner: str) -> Column:
    """The items of two lists joined one by one, as far as the shorter list goes."""
    left, right = _text_lists(lists_of(column)), _text_lists(lists_of(others))
    lengths = np.minimum(np.diff(left.offsets), np.diff(right.offsets))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)  # no more
    between = frozen(np.frombuffer(joiner.encode(), np.uint8))
    ends = _ends(offsets, left, right, len(between))
    check_positions(int(ends[-1]) if len(ends) else 0, "bytes of joined text")
    data = _joined(offsets, left, right, between, ends)
    starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
    return RaggedItems(offsets, Strings(data, starts.astype(np.int32), ends.astype(np.int32)))


def _text_lists(lists: RaggedItems) -> TextLists:
    text = dense(cast(lists.items, dtype=DType.STRING)) if isinstance(lists.items, Numbers) else lists.items
    assert isinstance(text, Strings), "a cast to text gives text"
    return TextLists(positions(lists.offsets), *spans(text))


@compiled
def _ends(offsets: Array, left: TextLists, right: TextLists, between: int) -> Array:
    """The end of each joined text in the concatenation of all."""
    left_offsets, _, left_starts, left_ends = left
    right_offsets, _, right_starts, right_ends = right
    ends = np.empty(offsets[-1], np.int64)
    at = np.int64(0)
    for row in range(len(offsets) - 1):
        for i in range(offsets[row + 1] - offsets[row]):
            one, other = left_offsets[row] + i, right_offsets[row] + i
            at += (left_ends[one] - left_starts[one]) + between + (right_ends[other] - right_starts[other])
            ends[offsets[row] + i] = at
    return ends


@compiled
def _joined(offsets: Array, left: TextLists, right: TextLists, between: Array, ends: Array) -> Array:
    left_offsets, left_data, left_starts, left_ends = left
    right_offsets, right_data, right_starts, right_ends = right
    data = np.empty(ends[-1] if len(ends) else 0, np.uint8)
    at = 0
    for row in range(len(offsets) - 1):
        for i in range(offsets[row + 1] - offsets[row]):
            one, other = left_offsets[row] + i, right_offsets[row] + i
            copy_bytes(left_data, left_starts[one], left_ends[one] - left_starts[one], data, at)
            at += left_ends[one] - left_starts[one]
            copy_bytes(between, 0, len(between), data, at)
            at += len(between)
            copy_bytes(right_data, right_starts[other], right_ends[other] - right_starts[other], data, at)
            at += right_ends[other] - right_starts[other]
    return data
