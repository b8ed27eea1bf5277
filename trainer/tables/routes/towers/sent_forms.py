"""How the tables of a batch are sent, by the bytes that this takes: as rows or bags between hosts, as rows or sums inside a tower. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.tables.wire.encoded_values import FP14, FP16
from transforms.arrays import Array

_ROW_NUMBER_BITS = 64
#: About the bits of a value between hosts, by how values are encoded.
_VALUE_BITS = {0: 32, FP16: 16, FP14: 14}
_LENGTH_BITS = 32
_WEIGHT_BITS = 32


@dataclass(frozen=True, slots=True, eq=False)
class TableUse:
    """What a batch needs of each table, int64 by table.

    Attributes:
        ids: in all bags of its features.
        distinct: rows among them.
        bags: of its features.
        values: of the combined bags, or of the rows of sequences.
        dims: values of a row.
    """

    ids: Array
    distinct: Array
    bags: Array
    values: Array
    dims: Array


def sent_as_rows(use: TableUse, *, id_bytes: int, has_weights: bool, flag: int) -> Array:
    """Whether each table needs fewer bytes between hosts as rows, and has places for them, bool by table.

    Values pass twice, those of gradients on the way back.

    Args:
        id_bytes: of an id in a message.
        has_weights: whether bags have a weight for each id; rows need none.
        flag: how values are encoded, see :mod:`~trainer.tables.wire.encoded_values`.
    """
    value_bits = 2 * _VALUE_BITS[flag]
    as_rows = use.distinct * (8 * id_bytes + use.dims * value_bits)
    as_bags = use.ids * (8 * id_bytes + has_weights * _WEIGHT_BITS) + use.bags * _LENGTH_BITS + use.values * value_bits
    found: Array = (as_rows < as_bags) & (use.distinct * use.dims <= use.values)
    return found


def summed_by_owners(use: TableUse, *, owners: int, has_weights: bool, flag: int) -> Array:
    """Whether each table needs fewer bytes inside a tower if its owners add their rows of each bag, bool by table.

    Then a worker gets a sum for each bag from each other owner; else each distinct row from its owner. ``owners``: the workers of the tower; ``has_weights``
    and ``flag``: as of :func:`sent_as_rows`.
    """
    value_bits, others = 2 * _VALUE_BITS[flag], (owners - 1) / owners
    as_rows = others * use.distinct * (_ROW_NUMBER_BITS + use.dims * value_bits)
    as_sums = others * use.ids * (_ROW_NUMBER_BITS + has_weights * _WEIGHT_BITS) + (owners - 1) * (
        use.bags * _LENGTH_BITS + use.values * value_bits
    )
    found: Array = as_sums < as_rows
    return found
