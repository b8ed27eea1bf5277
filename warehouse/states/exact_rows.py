"""The difference of two tables of rows as multisets, by the bits of their values. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.arrays import Array


def row_difference(before: pa.Table, after: pa.Table) -> tuple[Array, Array]:
    """The rows of ``before`` that ``after`` does not have, and those of ``after`` that ``before`` does not: ascending positions.

    Of equal rows the first ones of both sides stay.
    """
    codes = _codes([before, after])
    return _without(codes[0], codes[1]), _without(codes[1], codes[0])


def _without(rows: Array, others: Array) -> Array:
    """The positions of rows beyond as many equal ones as there are in ``others``."""
    size = int(max(rows.max(initial=-1), others.max(initial=-1))) + 1
    most = np.bincount(others, minlength=size)
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.searchsorted(ordered, np.arange(size))
    rank = np.arange(len(rows)) - starts[ordered]
    return np.sort(order[rank >= most[ordered]])


def _codes(tables: Sequence[pa.Table]) -> list[Array]:
    """A number of each row: equal rows, and they alone, have equal numbers."""
    found = np.zeros(sum(one.num_rows for one in tables), np.int64)
    for name in tables[0].column_names:
        column = pa.chunked_array([chunk for one in tables for chunk in one[name].chunks], tables[0].schema.field(name).type)  # fmt: skip
        values = _numbers(column)
        found = np.unique(found * (int(values.max(initial=0)) + 1) + values, return_inverse=True)[1].astype(np.int64)
    return list(np.split(found, np.cumsum([one.num_rows for one in tables])[:-1]))


def _numbers(column: pa.ChunkedArray) -> Array:
    """A number of each value, from 0 on; a null has the last one."""
    values = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_floating(values.type):  # by bits: -0.0 is not 0.0, and NaN is itself
        values = values.view(pa.int64() if values.type.bit_width == 64 else pa.int32())
    coded = values.dictionary_encode()
    return np.asarray(pc.fill_null(coded.indices, len(coded.dictionary))).astype(np.int64)
