"""The dot products of an event's vectors in compiled code, and copies of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from trainer.tables.kernels.vectors import LANES, item, load, splat, store

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"contract"})
_ZERO = np.float32(0)
#: Rows that are multiplied together.
_GROUP = 4


@_compiled  # type: ignore[untyped-decorator]
def copy_rows(rows: int, n: int, source: Any, from_at: int, from_step: int, target: Any, at: int, step: int) -> None:
    """Copy ``n`` columns of some rows."""
    for row in range(rows):
        to, place = np.uintp(at + row * step), np.uintp(from_at + row * from_step)
        for k in range(np.uintp(n)):
            target[to + k] = source[place + k]


@_compiled  # type: ignore[untyped-decorator]
def add_rows(rows: int, n: int, source: Any, from_at: int, from_step: int, target: Any, at: int, step: int) -> None:
    """Add ``n`` columns of some rows."""
    for row in range(rows):
        to, place = np.uintp(at + row * step), np.uintp(from_at + row * from_step)
        for k in range(np.uintp(n)):
            target[to + k] += source[place + k]


@_compiled  # type: ignore[untyped-decorator]
def pairs_forward(rows: int, vectors: int, dim: int, work: Any, from_at: int, at: int, step: int) -> None:
    """Write the products of the vectors of each event: [vectors, dim] from ``from_at`` on, pair (i, j) with j < i at i (i - 1) / 2 + j."""
    padded = -(-vectors // LANES) * LANES
    grouped = -(-vectors // _GROUP) * _GROUP
    held = np.zeros(grouped * dim, np.float32)
    turned = np.zeros(dim * padded, np.float32)
    products = np.zeros(grouped * padded, np.float32)
    for row in range(rows):
        start = np.uintp(from_at + row * vectors * dim)
        for k in range(np.uintp(vectors * dim)):
            held[k] = work[start + k]
        for i in range(vectors):
            place = np.uintp(i * dim)
            for d in range(np.uintp(dim)):
                turned[d * np.uintp(padded) + np.uintp(i)] = held[place + d]
        _multiply(grouped, dim, held, turned, padded, products)
        to = np.uintp(at + row * step)
        for i in range(1, vectors):
            place = np.uintp(i * padded)
            for j in range(np.uintp(i)):
                work[to + j] = products[place + j]
            to += np.uintp(i)


@_compiled  # type: ignore[untyped-decorator]
def pairs_backward(
    rows: int, vectors: int, dim: int, work: Any, slopes: Any, from_at: int, at: int, step: int, adds: bool
) -> None:
    """The gradients of :func:`pairs_forward` by the vectors: the products are symmetric, so they are one product with a symmetric matrix."""
    padded = -(-dim // LANES) * LANES
    grouped = -(-vectors // _GROUP) * _GROUP
    held = np.zeros(vectors * padded, np.float32)
    square = np.zeros(grouped * vectors, np.float32)
    found = np.zeros(grouped * padded, np.float32)
    for row in range(rows):
        start = np.uintp(from_at + row * vectors * dim)
        for i in range(vectors):
            place, own = np.uintp(i * padded), start + np.uintp(i * dim)
            for d in range(np.uintp(dim)):
                held[place + d] = work[own + d]
        to = np.uintp(at + row * step)
        for i in range(1, vectors):
            place = np.uintp(i * vectors)
            for j in range(np.uintp(i)):
                slope = slopes[to + j]
                square[place + j] = slope
                square[j * np.uintp(vectors) + np.uintp(i)] = slope
            to += np.uintp(i)
        _multiply(grouped, vectors, square, held, padded, found)
        for i in range(vectors):
            place, own = np.uintp(i * padded), start + np.uintp(i * dim)
            if adds:
                for d in range(np.uintp(dim)):
                    slopes[own + d] += found[place + d]
            else:
                for d in range(np.uintp(dim)):
                    slopes[own + d] = found[place + d]


@_compiled  # type: ignore[untyped-decorator]
def _multiply(rows: int, inner: int, left: Any, right: Any, width: int, found: Any) -> None:
    """``found``, [rows, width]: [rows, inner] times [inner, width]; rows are a multiple of 4, the width of 16."""
    for row in range(0, rows, _GROUP):
        a, b, c, d = row * inner, (row + 1) * inner, (row + 2) * inner, (row + 3) * inner
        for column in range(0, width, LANES):
            one = two = three = four = splat(_ZERO)
            for k in range(inner):
                value = load(right, k * width + column)
                one = one + splat(item(left, a + k)) * value
                two = two + splat(item(left, b + k)) * value
                three = three + splat(item(left, c + k)) * value
                four = four + splat(item(left, d + k)) * value
            store(found, row * width + column, one)
            store(found, (row + 1) * width + column, two)
            store(found, (row + 2) * width + column, three)
            store(found, (row + 3) * width + column, four)
