"""What a planner says of its plan: estimates, the load of every core, and the ways that each table had. Pure.

A plan's document has it beside the plan; engines do not read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.planner import Planned
from trainer.planning.tables import TableFacts
from trainer.planning.ways import PricedWay, ways_of
from trainer.planning.work import TableWork, Way
from transforms.derived_documents import Omitted, document_of

_MOST_WAYS = 64


@dataclass(frozen=True, slots=True)
class CoreLoad:
    """The shards of a core: their bytes with slots, and their seconds of each phase of a step."""

    size_bytes: int
    lookup_secs: float
    exchange_secs: float
    update_secs: float

    @property
    def secs(self) -> float:
        """The seconds of all phases."""
        return self.lookup_secs + self.exchange_secs + self.update_secs


@dataclass(frozen=True, slots=True)
class WayReport:
    """A way that a table had.

    Attributes:
        partition: its kind, as :attr:`~trainer.planning.plan.TablePlan.partition` names it.
        column_slices, places: the slices of columns, and the cores of each.
        step_secs: what the table adds to a step if this work is spread evenly over all cores.
        largest_secs: of its largest shard.
        core_bytes: of its largest shard.
        is_chosen: whether the plan has it.
    """

    partition: str
    column_slices: int
    places: int
    step_secs: float
    largest_secs: float
    core_bytes: int
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class TableReport:
    """What the planner knew of a table; ``statistics``: where that came from."""

    name: str
    ids_per_event: float
    distinct_rows: float
    row_bytes: int
    statistics: str
    ways: tuple[WayReport, ...]

    def check_read(self, part: DocumentField) -> None:
        """Raise :class:`TornCheckpoint` for more ways than a table has."""
        if len(self.ways) > _MOST_WAYS:
            raise part.at("ways").refused(f"a list of at most {_MOST_WAYS} ways")


@dataclass(frozen=True, slots=True)
class StackLimits:
    """The limits of SparseCore's buffers for the tables of a stack: ids, and distinct rows."""

    tables: tuple[str, ...]
    ids: int
    rows: int


@dataclass(frozen=True, slots=True)
class PlanReport:
    """The estimates of a plan.

    Attributes:
        topology: what it was made for.
        memory_bytes: of a core.
        batch_events: of a step, on all cores.
        step_secs, bound_secs: the estimated step, and the least of any plan of the ways that were considered.
        reader_secs: of each core for its own events.
        imbalance: the load of the slowest core by the mean.
        method: how the plan was found.
        cores: the load of each core.
        tables: the tables, in the order of the plan.
        limits: of the buffers of SparseCores, by statistics; none for another topology, or without statistics of all features.
    """

    topology: str
    memory_bytes: int
    batch_events: int
    step_secs: float
    bound_secs: float
    reader_secs: float
    imbalance: float
    method: str
    cores: tuple[CoreLoad, ...]
    tables: tuple[TableReport, ...]
    limits: Omitted[tuple[StackLimits, ...]] = ()

    @property
    def gap(self) -> float:
        """How much longer a step is than the bound, as a share of the step."""
        return max(1 - self.bound_secs / self.step_secs, 0.0) if self.step_secs else 0.0

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        return {"report": document_of(self)}

    @classmethod
    def read(cls, about: Mapping[str, Any], where: str) -> PlanReport | None:
        """The report of a plan's document; None if it has none. Raises :class:`ConfigError` for an invalid one."""
        if "report" not in about:
            return None
        try:
            return OPEN.read(PlanReport, DocumentField(about["report"], f"{where}.report"))
        except TornCheckpoint as error:
            raise ConfigError(error.what, where=error.where, value=error.value, allowed=error.allowed,
                              next_step="headrace plan make writes a plan") from error  # fmt: skip


def report_of(planned: Planned, tables: Sequence[TableFacts], statistics: Mapping[str, str]) -> PlanReport:
    """The report of a plan; ``statistics``: by table, where its statistics came from."""
    loads, topology = planned.loads, planned.topology
    reports = []
    for facts, table in zip(tables, planned.plan.tables, strict=True):
        work = TableWork(facts, topology, planned.batch_events)
        chosen = Way(len(table.slices), 1 if table.is_replicated else len(table.slices[0].cores), table.is_replicated)
        batch_ids = facts.ids_per_event * planned.batch_events
        reports.append(
            TableReport(
                name=facts.name,
                ids_per_event=facts.ids_per_event,
                distinct_rows=facts.frequencies().distinct(batch_ids),
                row_bytes=facts.row_bytes,
                statistics=statistics[facts.name],
                ways=tuple(_way_report(one, chosen, topology.cores) for one in _shown(ways_of(work), chosen)),
            )
        )
    return PlanReport(
        topology=topology.name,
        memory_bytes=topology.memory_bytes,
        batch_events=planned.batch_events,
        step_secs=loads.step_secs,
        bound_secs=float(planned.bound_secs),
        reader_secs=float(loads.reader_secs),
        imbalance=loads.imbalance,
        method=planned.method,
        cores=tuple(
            CoreLoad(size, *secs)
            for size, secs in zip(loads.core_bytes.tolist(), loads.core_secs.tolist(), strict=True)
        ),
        tables=tuple(reports),
    )


def _shown(ways: Sequence[PricedWay], chosen: Way) -> list[PricedWay]:
    """The chosen way, and the best one of each kind, by what they add to a step or by their largest shard."""
    found: dict[Way, PricedWay] = {one.way: one for one in ways if one.way == chosen}
    for kind in ("table", "row", "column", "column and row", "replicated"):
        of_kind = [one for one in ways if _kind(one.way) == kind]
        if of_kind:
            best = min(of_kind, key=lambda one: max(one.largest_secs, one.reader_secs + one.owner_secs))
            found.setdefault(best.way, best)
    return sorted(found.values(), key=lambda one: one.owner_secs)


def _kind(way: Way) -> str:
    if way.is_replicated:
        return "replicated"
    if way.column_slices > 1:
        return "column" if way.places == 1 else "column and row"
    return "table" if way.places == 1 else "row"


def _way_report(one: PricedWay, chosen: Way, cores: int) -> WayReport:
    return WayReport(
        _kind(one.way), one.way.column_slices, cores if one.way.is_replicated else one.way.places,
        float(one.step_secs(cores)), one.largest_secs, one.core_bytes, one.way == chosen,
    )  # fmt: skip
