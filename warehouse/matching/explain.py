"""Explain why each input of a model is a hit or a miss, how it is read, and the costs. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from sqlalchemy import Connection, select

from warehouse.catalog import schema
from warehouse.matching.causes import Cause, find_causes
from warehouse.matching.decision import Costs, Decision, match_decision, raw_decision, ready_decision, unkept_decision
from warehouse.matching.match import MemoAction
from warehouse.matching.model_match import MatchResult, match_model
from warehouse.matching.plan_context import CostedGraph, PlanContext
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import get_model, stored_inputs
from warehouse.planning.cheapest import Alternatives, Label
from warehouse.planning.policy import Adaptive
from warehouse.tables.manifests import current_units, get_table
from warehouse.warehouse import Warehouse

__all__ = ["Decision", "explain_model"]


def explain_model(
    warehouse: Warehouse, model_name: str, version: int | None = None, *, costs_of: Collection[str] = ()
) -> tuple[Decision, ...]:
    """A decision for every input and fragment of a submitted model, input by input, in time order.

    The decisions of the inputs in ``costs_of`` have the costs of the alternatives. Raises
    :class:`~warehouse.errors.UnknownModel`.
    """
    with warehouse.catalog.read() as connection:
        model = get_model(connection, model_name, version)
        fragments = current_units(connection, model.table)
        inputs = stored_inputs(connection, model.id)
        table = get_table(connection, model.table)
        context = PlanContext(connection, warehouse.config, table, fragments, warehouse.clock())
        graph = MergedGraph(tuple(item.component for item in inputs))
        found = match_model(connection, inputs, fragments, context.keep_decision(model, graph))
        missing = [one for one in found.all_matches if one.action is MemoAction.QUEUE]
        causes = find_causes(connection, model.table, missing, found.graph.operations, found.rows)
        decisions = decisions_of(found, causes, versions_of(connection, model_name), model.policy)
        costed = context.cost_graph(found.graph, Adaptive(), model.name)
        priced = _Priced(found, costed, frozenset(costs_of))
        return tuple(priced.decision(at, decision) for at, decision in decisions)


def versions_of(connection: Connection, name: str) -> frozenset[int]:
    """The catalog rows of all versions of a model."""
    return frozenset(connection.execute(select(schema.models.c.id).where(schema.models.c.name == name)).scalars())


def decisions_of(
    found: MatchResult, causes: Mapping[str, Cause], mine: frozenset[int], policy: str
) -> Iterator[tuple[int, Decision]]:
    """Every decision with the position of its fragment; ``mine``: the rows of this model's versions."""
    for item in found.inputs:
        for position, placed in enumerate(found.fragments):
            one = found.matches.get(item.fingerprint, {}).get(position)
            if item.is_raw:
                yield position, raw_decision(item, placed.partition, placed.fragment)
            elif one is not None:
                yield position, match_decision(item, one, causes.get(one.request.memo_key), mine)
            elif found.is_ready(item.fingerprint, position):
                yield position, ready_decision(item, placed.partition, placed.fragment)
            else:
                yield position, unkept_decision(item, placed.partition, placed.fragment, policy)


class _Priced:
    """Adds actions and costs to decisions; fragments with the same ready memos are decided once."""

    def __init__(self, found: MatchResult, costed: CostedGraph, costs_of: frozenset[str]) -> None:
        self._found, self._costed, self._costs_of = found, costed, costs_of
        self._reading: dict[frozenset[str], Mapping[str, Label]] = {}
        self._alternatives: dict[tuple[str, frozenset[str]], Alternatives] = {}

    def decision(self, position: int, decision: Decision) -> Decision:
        """The decision with its action and costs."""
        if decision.action == "raw":
            return decision
        ready = frozenset(self._found.coverage.slots(position))
        if ready not in self._reading:
            self._reading[ready], _ = self._costed.reading(ready)
        loaded = self._reading[ready][decision.fingerprint] is Label.LOAD
        decision = replace(decision, action="load" if loaded else "compute")
        return decision if decision.input not in self._costs_of else self._with_costs(decision, ready)

    def _with_costs(self, decision: Decision, ready: frozenset[str]) -> Decision:
        question = decision.fingerprint, ready
        if question not in self._alternatives:
            self._alternatives[question] = self._costed.alternatives(*question)
        per_row = self._alternatives[question]
        load, compute, keep = (
            secs * decision.rows for secs in (per_row.load_secs, per_row.compute_secs, per_row.keep_secs)
        )
        costs = Costs(load, compute, keep, self._costed.requests(decision.fingerprint))
        return replace(decision, costs=costs)
