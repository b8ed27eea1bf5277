"""The seconds of each core in a step under a plan, and the paper's load imbalance (its equation 1). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainer.errors import ConfigError
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.planning.tables import TableFacts
from trainer.planning.topologies import PlanTopology
from trainer.planning.work import PHASES, TableWork, Way
from transforms.arrays import Array


@dataclass(frozen=True, eq=False)
class Loads:
    """What a plan costs.

    Attributes:
        core_secs: float64 [cores, phases], of a core's shards.
        core_bytes: int64 [cores], of its tables.
        reader_secs: of each core for its own events.
        step_secs: of a step: the slowest core in each phase, what a core does for its own events, and what a step costs anyway.
    """

    core_secs: Array
    core_bytes: Array
    reader_secs: float
    step_secs: float

    @property
    def imbalance(self) -> float:
        """The load of the slowest core by the mean load; 1 is perfect (equation 1 of the paper)."""
        return load_imbalance(self.core_secs.sum(axis=1))


def load_imbalance(loads: Array) -> float:
    """The largest load by the mean one; 1 for loads of zero."""
    mean = float(np.mean(loads))
    return float(np.max(loads)) / mean if mean else 1.0


def loads_of(plan: PartitionPlan, tables: Sequence[TableFacts], topology: PlanTopology, batch_events: int) -> Loads:
    """What a plan costs on a topology. Raises :class:`ConfigError` for a plan of other tables or of another number of cores."""
    if plan.cores != topology.cores:
        raise ConfigError("a plan must have the cores of its topology", value=plan.cores, allowed=str(topology.cores))
    if [(one.name, one.rows, one.columns) for one in plan.tables] != [
        (one.name, one.rows, one.columns) for one in tables
    ]:
        raise ConfigError("a plan must have the tables of the model", value=[one.name for one in plan.tables][:8],
                          allowed=", ".join(one.name for one in tables)[:200])  # fmt: skip
    core_secs = np.zeros((plan.cores, len(PHASES)))
    core_bytes = np.zeros(plan.cores, np.int64)
    reader = 0.0
    for planned, facts in zip(plan.tables, tables, strict=True):
        work = TableWork(facts, topology, batch_events)
        reader += add_table(planned, work, core_secs, core_bytes)
    return Loads(core_secs, core_bytes, reader, step_secs(core_secs, reader, topology))


def step_secs(core_secs: Array, reader_secs: float, topology: PlanTopology) -> float:
    """The seconds of a step: in each phase all cores wait for the slowest one."""
    return float(core_secs.max(axis=0).sum()) + reader_secs + topology.rates.step_secs


def add_table(planned: TablePlan, work: TableWork, core_secs: Array, core_bytes: Array) -> float:
    """Add the shards of a table to the loads of the cores; returns what each core takes for its own events."""
    facts = work.table
    for one in planned.slices:
        cores = np.array(one.cores)
        way = Way(len(planned.slices), 1 if planned.is_replicated else len(cores), planned.is_replicated)
        core_secs[cores] += secs_of_slice(work, way, one)
        rows = [shard.rows for shard in planned.shards() if shard.slice_ is one]
        core_bytes[cores] += np.array(rows) * facts.slice_row_bytes(one.columns)
    return work.reader_secs(Way(len(planned.slices), 1, planned.is_replicated))


def secs_of_slice(work: TableWork, way: Way, one: Slice) -> Array:
    """The seconds of each place of a slice, by phase; blocks have equal numbers of rows, or are counted by the places of the hot rows."""
    if not one.row_ends:
        return work.secs(way, one.columns)
    return work.block_secs(way, one.columns, one.row_ends)
