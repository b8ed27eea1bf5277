"""Kernels of the hash family. Spans are hashed in place; only a salt needs a copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from transforms.arrays import Array
from transforms.columns.columns import Column, Numbers, RaggedItems, Strings, WeightedItems
from transforms.columns.positions import check_positions
from transforms.kernels.buffers import dense, rows_of, spans
from transforms.kernels.compiled import compiled
from transforms.kernels.decimals import write_decimal
from transforms.kernels.farmhash import fingerprint64, fingerprint_cat64
from transforms.kernels.spans import copy_bytes, frozen
from transforms.operators.hashing import CROSS_KEY

_DIGITS_MAX = 20


def hash_buckets(column: Column, *, buckets: int, salt: str) -> Column:
    """The bucket of every value."""
    prefix = frozen(np.frombuffer(salt.encode(), np.uint8))
    if isinstance(column, RaggedItems):
        return RaggedItems(column.offsets, Numbers(_buckets_of(column.items, buckets, prefix)))
    if isinstance(column, WeightedItems):
        return WeightedItems(column.offsets, Numbers(_buckets_of(column.items, buckets, prefix)), column.weights)
    return Numbers(_buckets_of(dense(column), buckets, prefix))


def _buckets_of(items: Numbers | Strings, buckets: int, salt: Array) -> Array:
    modulus = np.uint64(buckets)
    hashed: Array
    if isinstance(items, Numbers):
        hashed = _hash_integers(frozen(items.values), salt, modulus)
    elif len(salt):
        hashed = _hash_salted(*spans(items), salt, modulus)
    else:
        hashed = _hash_spans(*spans(items), modulus)
    return hashed


@compiled
def _hash_spans(data: Array, starts: Array, ends: Array, buckets: Any) -> Array:
    hashed = np.empty(len(starts), np.int64)
    for i in range(len(starts)):
        hashed[i] = np.int64(fingerprint64(data, starts[i], ends[i] - starts[i]) % buckets)
    return hashed


@compiled
def _hash_salted(data: Array, starts: Array, ends: Array, salt: Array, buckets: Any) -> Array:
    longest = 0
    for i in range(len(starts)):
        longest = max(longest, ends[i] - starts[i])
    hashed, salted = np.empty(len(starts), np.int64), np.empty(len(salt) + longest, np.uint8)
    copy_bytes(salt, 0, len(salt), salted, 0)
    for i in range(len(starts)):
        size = ends[i] - starts[i]
        copy_bytes(data, starts[i], size, salted, len(salt))
        hashed[i] = np.int64(fingerprint64(salted, 0, len(salt) + size) % buckets)
    return hashed


@compiled
def _hash_integers(values: Array, salt: Array, buckets: Any) -> Array:
    hashed, text = np.empty(len(values), np.int64), np.empty(len(salt) + _DIGITS_MAX, np.uint8)
    copy_bytes(salt, 0, len(salt), text, 0)
    for i in range(len(values)):
        size = write_decimal(values[i], text, len(salt))
        hashed[i] = np.int64(fingerprint64(text, 0, len(salt) + size) % buckets)
    return hashed


def cross(*columns: Column, buckets: int) -> Column:
    """Every combination of one value of each column, folded from left to right."""
    rows = len(columns[0])
    ragged = any(isinstance(column, RaggedItems) for column in columns)
    offsets = frozen(np.arange(rows + 1, dtype=np.int32))
    hashed = np.full(rows, CROSS_KEY, np.uint64)
    for column in columns:
        column_offsets, items = rows_of(column)
        if isinstance(column, RaggedItems):
            new_offsets = _product_offsets(offsets, column_offsets)
            check_positions(int(new_offsets[-1]), "combinations")
            hashed = _expand(offsets, frozen(hashed), column_offsets, _fingerprints(items), new_offsets)
            offsets = frozen(new_offsets.astype(np.int32))
        else:
            _fold(offsets, hashed, _fingerprints(items))
    ids = Numbers(_modulo(frozen(hashed), np.uint64(buckets)))
    return RaggedItems(offsets, ids) if ragged else ids


def _fingerprints(items: Numbers | Strings) -> Array:
    if isinstance(items, Numbers):
        return frozen(items.values.view(np.uint64))
    return frozen(_fingerprint_spans(*spans(items)))


@compiled
def _fingerprint_spans(data: Array, starts: Array, ends: Array) -> Array:
    hashed = np.empty(len(starts), np.uint64)
    for i in range(len(starts)):
        hashed[i] = fingerprint64(data, starts[i], ends[i] - starts[i])
    return hashed


@compiled
def _fold(offsets: Array, hashed: Array, values: Array) -> None:
    for row in range(len(values)):
        for i in range(offsets[row], offsets[row + 1]):
            hashed[i] = fingerprint_cat64(hashed[i], values[row])


@compiled
def _product_offsets(left: Array, right: Array) -> Array:
    offsets = np.empty(len(left), np.int64)
    offsets[0] = 0
    for row in range(len(left) - 1):
        pairs = np.int64(left[row + 1] - left[row]) * np.int64(right[row + 1] - right[row])
        offsets[row + 1] = offsets[row] + pairs
    return offsets


@compiled
def _expand(left: Array, hashed: Array, right: Array, values: Array, offsets: Array) -> Array:
    expanded = np.empty(offsets[-1], np.uint64)
    for row in range(len(left) - 1):
        at = offsets[row]
        for i in range(left[row], left[row + 1]):
            for j in range(right[row], right[row + 1]):
                expanded[at] = fingerprint_cat64(hashed[i], values[j])
                at += 1
    return expanded


@compiled
def _modulo(hashed: Array, buckets: Any) -> Array:
    ids = np.empty(len(hashed), np.int64)
    for i in range(len(hashed)):
        ids[i] = np.int64(hashed[i] % buckets)
    return ids
