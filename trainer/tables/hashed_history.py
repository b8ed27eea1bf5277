"""What decides about later places of a hashed or pruned table, beside its rows."""

from __future__ import annotations

from dataclasses import dataclass

from transforms.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class KeptHistory:
    """What a hashed table has beside its rows, or the numbers of a pruned one.

    Attributes:
        step: the steps of the table.
        candidates: uint64, the counts of ids that wait for admission, or some of them; of a pruned table other numbers, see
            :func:`~trainer.tables.stores.pruned.history.kept_numbers`.
        evicted: rows that have lost their place already.
    """

    step: int
    candidates: Array
    evicted: int = 0
