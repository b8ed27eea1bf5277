"""What the sample of an epoch says of plans: the seconds of a step by each, the best plan now, and what a move costs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer.errors import ConfigError
from trainer.planning.feature_statistics import FeatureStatistics
from trainer.planning.loads import Loads, loads_of
from trainer.planning.plan import PartitionPlan, cyclic_plan
from trainer.planning.plan_changes import changes_between
from trainer.planning.planner import make_plan
from trainer.planning.tables import FeatureLoad, TableFacts
from trainer.planning.topologies import PlanTopology
from trainer.tables.planned_tables import tables_to_plan
from trainer.tables.spec import FeatureSpec, tables_of

#: What a move is expected to cost before one was measured: restoring a commit, and reading the tables with their slots.
_RESTORE_SECS, _READ_BYTES_PER_SEC = 2.0, 100e6


@dataclass(frozen=True, slots=True)
class EpochPricing:
    """Prices plans by samples.

    Attributes:
        features: of the model's deep part.
        topology: a core for each host.
        batch_events: of a step of all hosts.
    """

    features: tuple[FeatureSpec, ...]
    topology: PlanTopology
    batch_events: int

    def facts(self, sampled: Mapping[str, FeatureStatistics]) -> tuple[TableFacts, ...]:
        """The tables as features have used them; ``sampled``: by feature. One without a sample of this table is assumed to have one id per event."""
        loads = {}
        for one in self.features:
            rows = one.table.vocabulary_size
            found = sampled.get(one.name)
            if found is None or found.frequencies.rows != rows:
                loads[one.name] = FeatureLoad.assumed(one.name, rows, (), has_one_id=True)
            else:
                loads[one.name] = FeatureLoad.sampled(one.name, found)
        return tables_to_plan(self.features, loads)

    @property
    def spread(self) -> PartitionPlan:
        """The rows of every table spread over all hosts, as without a plan."""
        tables = [(one.name, one.vocabulary_size, one.dim) for one in tables_of(self.features)]
        return cyclic_plan(tables, self.topology.cores)

    def loads(self, plan: PartitionPlan | None, facts: tuple[TableFacts, ...]) -> Loads:
        """What a plan costs; None: rows are spread."""
        return loads_of(self.spread if plan is None else plan, facts, self.topology, self.batch_events)

    def best(self, facts: tuple[TableFacts, ...]) -> PartitionPlan | None:
        """The plan that is best for the sample, as the planner finds it without a search.

        None if the tables do not fit into the memory that the cost model gives a host.
        """
        try:
            return make_plan(facts, self.topology, self.batch_events).plan
        except ConfigError:
            return None

    def moved_bytes(
        self, before: PartitionPlan | None, after: PartitionPlan | None, facts: tuple[TableFacts, ...]
    ) -> int:
        """The values and slots of the rows that another host has after a move."""
        by_name = {one.name: one.table_bytes for one in facts}
        changes = changes_between(self.spread if before is None else before, self.spread if after is None else after)
        return round(sum(one.moved_share * by_name[one.name] for one in changes))

    def move_secs(self, facts: tuple[TableFacts, ...]) -> float:
        """What a move is expected to cost before one was measured: each host reads the tables of the last commit."""
        return _RESTORE_SECS + sum(one.table_bytes for one in facts) / _READ_BYTES_PER_SEC
