"""Plans of work units over generated fragments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer.scheduling.work_units import UnitPlan, cumulated, units_of_epoch


def plan_of(
    epochs: Sequence[Sequence[int]],
    *,
    hosts: int = 1,
    batch_rows: int = 1,
    most_rows: int = 1 << 16,
    passes: int = 1,
    first_unit: int = 0,
) -> UnitPlan:
    """Epochs of fragments with these rows, each a partition that ends 10 seconds after the one before, ``passes`` times; all events are due."""
    visits = [n for _ in range(passes) for n in range(len(epochs))]
    firsts = cumulated(np.array([len(rows) for rows in epochs]))
    rows = np.array([count for n in visits for count in epochs[n]], np.int32)
    counts = [sum(epochs[n]) for n in visits]
    units = [units_of_epoch(count, hosts=hosts, batch_rows=batch_rows, most_rows=most_rows) for count in counts]
    fragments = sum(len(one) for one in epochs)
    return UnitPlan(
        most_rows=most_rows,
        keys=tuple(f"f{n}#0" for n in range(fragments)),
        partitions=np.repeat(np.arange(len(epochs), dtype=np.int32), np.diff(firsts)),
        end_secs=10.0 * np.arange(fragments),
        fragment=np.array([f for n in visits for f in range(firsts[n], firsts[n + 1])], np.int32),
        first_row=np.zeros(len(rows), np.int32),
        rows=rows,
        due=rows,
        pass_number=np.repeat(np.arange(passes, dtype=np.uint8), fragments),
        section_units=cumulated(np.array(units), first_unit),
        section_due=cumulated(np.array(counts)),
    )
