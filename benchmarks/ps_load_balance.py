"""Load of parameter servers: the most loaded one over the mean, rows spread as the engine does against blocks of rows.

    python -m benchmarks.ps_load_balance [--events N ...] [--servers N ...] [--batches N]

The tables are the 26 of Criteo's log (33.8 M rows), whose vocabularies are sorted by frequency; ids follow a power law of exponent 1.2. Small
tables have 16 columns and large ones 64. Batches go through the engine's own requests, which deduplicate: counted are rows that a batch fetches
from each server, their bytes, and the lookups before deduplication. Printed is the maximum over the mean of servers: the mean over batches, and
of all batches together. A few hundred rows of a batch on a server vary by chance, which no plan without the batch can prevent.
"Stacked" is the engine's plan; "cyclic" spreads each table's rows from the first server on; "blocks" gives each server a range of each table's
rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.support.drawn_tables import DrawnSet, DrawnTable
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan
from trainer.tables.batches import IdBatch
from trainer.tables.kernels.layout import feature_layout, table_layout
from trainer.tables.kernels.threads import Team
from trainer.tables.routes.partitioned.requests import RequestMaker
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers.stacked_plan import stacked_plan, width_order
from trainer.tables.spec import FeatureSpec, TableSpec, tables_of

Array = np.ndarray[Any, np.dtype[Any]]

TARGET = 1.05
_SKEW, _FEW_ROWS, _FEW_COLUMNS, _COLUMNS = 1.2, 10_000, 16, 64
#: Distinct values of the categorical inputs of Criteo's log.
_CRITEO = (
    1461, 584, 10131227, 2202608, 306, 24, 12518, 634, 4, 93146, 5684, 8351593, 3195, 28, 14993, 5461306, 11, 5653, 2173, 4,
    7046547, 18, 16, 286181, 105, 142572,
)  # fmt: skip


def _blocks_plan(tables: Sequence[TableSpec], servers: int) -> PartitionPlan:
    """Each server has a range of each table's rows; a table with fewer rows than servers is on as many as it has rows."""
    plans = []
    for table in tables:
        rows, count = table.vocabulary_size, min(servers, table.vocabulary_size)
        ends = tuple(rows * (place + 1) // count for place in range(count))
        plans.append(TablePlan(table.name, rows, table.dim, (Slice(0, table.dim, tuple(range(count)), ends),)))
    return PartitionPlan(servers, tuple(plans))


def _cyclic_plan(tables: Sequence[TableSpec], servers: int) -> PartitionPlan:
    return cyclic_plan([(one.name, one.vocabulary_size, one.dim) for one in tables], servers)


PLANS: dict[str, Callable[[Sequence[TableSpec], int], PartitionPlan]] = {
    "stacked": stacked_plan,
    "cyclic": _cyclic_plan,
    "blocks": _blocks_plan,
}


def _counts(
    features: Sequence[FeatureSpec], plan: PartitionPlan, batch: IdBatch, *, deduplicates: bool
) -> tuple[Array, Array]:
    """Rows [servers, parts] that a batch asks for, and the columns of parts."""
    tables = tables_of(features)
    stacked = tuple(tables[t] for t in width_order(tables))
    of_features = feature_layout(features, stacked)
    parts = TableParts(stacked, plan.cores, plan)
    layout = table_layout(of_features, stacked, 1)
    maker = RequestMaker(features, of_features, layout, parts=parts, core=0, team=Team(1), deduplicates=deduplicates)
    return maker.make(batch).reads.counts, parts.layout.dims


def _loads(features: Sequence[FeatureSpec], plan: PartitionPlan, batches: Sequence[IdBatch]) -> Array:
    """Rows, bytes and lookups of each server, int64 [batches, 3, servers]."""
    found = []
    for batch in batches:
        distinct, dims = _counts(features, plan, batch, deduplicates=True)
        looked_up, _ = _counts(features, plan, batch, deduplicates=False)
        found.append([distinct.sum(axis=1), distinct @ (4 * dims), looked_up.sum(axis=1)])
    return np.array(found)


def _imbalance(loads: Array) -> Array:
    """The most loaded server over the mean."""
    found: Array = loads.max(axis=-1) / loads.mean(axis=-1)
    return found


def _line(found: Sequence[Array]) -> str:
    return "   ".join(" ".join(f"{one[kind]:7.3f}" for one in found) for kind in range(3))


def _measure(drawn: DrawnSet, servers: int, batches: Sequence[IdBatch]) -> tuple[float, float]:
    """Print a case; returns the largest imbalance of the engine's plan for rows and bytes: of a batch, and of all batches together."""
    features = drawn.features()
    tables = [one.table for one in features]
    loads = [_loads(features, plan(tables, servers), batches) for plan in PLANS.values()]
    each, whole = ([_imbalance(one).mean(axis=0) for one in loads], [_imbalance(one.sum(axis=0)) for one in loads])
    rows = loads[0][:, 0].sum(axis=-1).mean()
    print(f"{drawn.events:>7,} {servers:>7} {rows:>13,.0f}   a batch  {_line(each)}")
    print(f"{'':>29}   together {_line(whole)}", flush=True)
    return float(each[0][:2].max()), float(whole[0][:2].max())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, nargs="+", default=[4_096, 65_536])
    parser.add_argument("--servers", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument("--batches", type=int, default=20)
    given = parser.parse_args()
    tables = [DrawnTable(rows, _FEW_COLUMNS if rows < _FEW_ROWS else _COLUMNS, 1, _SKEW) for rows in _CRITEO]
    print("maximum over mean of servers                    fetched rows                bytes                lookups")
    print(" events servers distinct rows            " + "   ".join([" ".join(f"{name:>7}" for name in PLANS)] * 3))
    found = {}
    for events in given.events:
        drawn = DrawnSet(tuple(tables), events, has_slots=True)
        batches = drawn.batches(given.batches, seed=1)
        for servers in given.servers:
            found[events, servers] = _measure(drawn, servers, batches)
    for (events, servers), (each, whole) in found.items():
        print(f"{events:,} events, {servers} servers: rows and bytes {each:.3f} a batch, {whole:.3f} together "
              f"(target under {TARGET}: {_verdict(each)}, {_verdict(whole)})")  # fmt: skip


def _verdict(imbalance: float) -> str:
    return "met" if imbalance < TARGET else "missed"


if __name__ == "__main__":
    main()
