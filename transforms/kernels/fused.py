"""Kernels that compute several operators in one pass, without intermediate columns.

Each is bit-equal to the operators that it replaces; :mod:`transforms.execution.fusion` applies them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, RaggedItems, Strings
from transforms.errors import DataError
from transforms.kernels.buffers import piece_bound, spans
from transforms.kernels.compiled import compiled, inlined
from transforms.kernels.farmhash import fingerprint64
from transforms.kernels.sets import LANES, Keyed, few_pairs, settle, sift_few, sift_many, tied
from transforms.kernels.spans import copy_bytes, frozen, prefix
from transforms.kernels.words import most_words, write_words


def common_words(left: Column, right: Column) -> Column:
    """``intersect(unigrams(left), unigrams(right))``: sorted, each once, as spans of ``left``."""
    texts = _strings(left)
    data, starts, ends = spans(texts)
    piece_bound(starts, ends)  # a bound on the number of words
    offsets, begins, stops = _common_words(data, starts, ends, *spans(_strings(right)))
    return RaggedItems(offsets, Strings(texts.data, begins, stops))


def hashed_words(column: Column, *, buckets: int, salt: str) -> Column:
    """``hash_buckets(unigrams(column), buckets, salt)``."""
    salted = frozen(np.frombuffer(salt.encode(), np.uint8))
    data, starts, ends = spans(_strings(column))
    bound = piece_bound(starts, ends)
    offsets, ids = _hashed_words(data, starts, ends, salted, np.uint64(buckets), bound)
    return RaggedItems(offsets, Numbers(ids))


def _strings(column: Column) -> Strings:
    if not isinstance(column, Strings):
        raise DataError("the argument of a text kernel must be text", value=type(column).__name__)
    return column


@inlined
def _write_keys(data: Array, begins: Array, stops: Array, count: Any, keys: Array) -> None:
    for i in range(count):
        keys[i] = prefix(data, begins[i], stops[i])


@compiled
def _common_words(
    data: Array, starts: Array, ends: Array, other_data: Array, other_starts: Array, other_ends: Array
) -> tuple[Array, Array, Array]:
    most, most_others = most_words(starts, ends), most_words(other_starts, other_ends) + LANES  # whole blocks of keys
    keys, word_begins, word_ends = np.empty(most, np.uint64), np.empty(most, np.int32), np.empty(most, np.int32)
    other_keys, other_begins, other_stops = (
        np.empty(most_others, np.uint64),
        np.empty(most_others, np.int32),
        np.empty(most_others, np.int32),
    )
    words = Keyed(keys, data, word_begins, word_ends)
    others = Keyed(other_keys, other_data, other_begins, other_stops)
    picks = np.empty(most + 1, np.int32)
    bound = 0
    for row in range(len(starts)):
        bound += (min(ends[row] - starts[row], other_ends[row] - other_starts[row]) + 1) >> 1
    offsets, begins, stops = np.empty(len(starts) + 1, np.int32), np.empty(bound, np.int32), np.empty(bound, np.int32)
    at = np.int64(0)
    offsets[0] = 0
    for row in range(len(starts)):
        count = write_words(data, starts[row], ends[row], word_begins, word_ends, np.int64(0))
        other_count = write_words(
            other_data, other_starts[row], other_ends[row], other_begins, other_stops, np.int64(0)
        )
        _write_keys(data, word_begins, word_ends, count, keys)
        _write_keys(other_data, other_begins, other_stops, other_count, other_keys)
        if few_pairs(count, other_count):
            kept = sift_few(words, np.int64(0), count, others, np.int64(0), other_count, True, picks, np.int64(0))
            if tied(keys, picks, np.int64(0), kept):
                kept = settle(words, picks, np.int64(0), kept)
        else:
            kept = sift_many(words, np.int64(0), count, others, np.int64(0), other_count, True, picks, np.int64(0))
        for i in range(kept):
            begins[at], stops[at] = word_begins[picks[i]], word_ends[picks[i]]
            at += 1
        offsets[row + 1] = at
    return offsets, begins[:at], stops[:at]


@compiled
def _hashed_words(
    data: Array, starts: Array, ends: Array, salt: Array, buckets: Any, bound: int
) -> tuple[Array, Array]:
    most = most_words(starts, ends)
    begins, stops = np.empty(most, np.int32), np.empty(most, np.int32)
    salted = np.empty(len(salt) + 2 * most, np.uint8)
    copy_bytes(salt, 0, len(salt), salted, 0)
    offsets, ids = np.empty(len(starts) + 1, np.int32), np.empty(bound, np.int64)
    at = 0
    offsets[0] = 0
    for row in range(len(starts)):
        count = write_words(data, starts[row], ends[row], begins, stops, np.int64(0))
        for i in range(count):
            size = stops[i] - begins[i]
            if len(salt):
                copy_bytes(data, begins[i], size, salted, len(salt))
                ids[at] = np.int64(fingerprint64(salted, 0, len(salt) + size) % buckets)
            else:
                ids[at] = np.int64(fingerprint64(data, begins[i], size) % buckets)
            at += 1
        offsets[row + 1] = at
    return offsets, ids[:at]
