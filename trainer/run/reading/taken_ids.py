"""Copy the ids of some events of a fragment, so that a reader packs them as it packs a range of rows."""

from __future__ import annotations

import numpy as np

from trainer.run.reading import kernels
from trainer.run.reading.columns import HeldIds, IdColumns, StoredColumns, held_ids, refuse_ids
from transforms.arrays import Array


def with_own_ids(stored: StoredColumns) -> StoredColumns:
    """The same rows with ids of their own, if they are some rows of the fragment's ids.

    Raises :class:`BadFeature` for lists whose offsets do not ascend within their ids.
    """
    if stored.taken is None:
        return stored
    table, kept = stored.ids.table.copy(), []
    for f, described in enumerate(stored.ids.table):
        held = _taken(held_ids(described), stored.taken)
        if held is None:
            refuse_ids(stored.ids, stored.key)
            raise AssertionError("offsets that do not ascend are refused")
        kept.append(held)
        arrays = (held.ids, held.offsets, held.valid, held.weights)
        addresses = [0 if one is None else one.ctypes.data for one in arrays]
        table[f, [kernels.IDS, kernels.OFFSETS, kernels.VALID, kernels.WEIGHTS]] = addresses
        table[f, [kernels.EVENTS, kernels.COUNT, kernels.FIRST_BIT]] = held.events, len(held.ids), 0
    ids = IdColumns(stored.ids.inputs, table, kept)
    return StoredColumns(stored.key, stored.rows, ids, stored.dense, stored.labels, stored.present, stored.positions)


def _taken(held: HeldIds, rows: Array) -> HeldIds | None:
    """The ids of some rows; None if their offsets do not ascend within the ids."""
    if held.kind == kernels.LISTS:
        return _taken_lists(held, rows)
    ids = held.ids.reshape(-1, held.size)[rows].reshape(-1)
    if held.valid is None:
        return HeldIds(held.kind, held.size, len(rows), ids)
    bits = np.unpackbits(held.valid, bitorder="little")[rows + held.first_bit]
    return HeldIds(held.kind, held.size, len(rows), ids, valid=np.packbits(bits, bitorder="little"))


def _taken_lists(held: HeldIds, rows: Array) -> HeldIds | None:
    assert held.offsets is not None, "lists have offsets"
    begins, ends = held.offsets[rows], held.offsets[rows + 1]
    if (begins < 0).any() or (ends < begins).any() or (ends > len(held.ids)).any():
        return None
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(ends - begins, out=offsets[1:])
    places = np.repeat(begins.astype(np.int64) - offsets[:-1], ends - begins) + np.arange(offsets[-1])
    weights = None if held.weights is None else held.weights[places]
    return HeldIds(held.kind, 0, len(rows), held.ids[places], offsets, weights)
