"""Explain why each input of a model is a hit or a miss, how it is read, and the costs. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from sqlalchemy import Connection, select

from warehouse.catalog import schema
from warehouse.matching.causes import Cause, find_causes
from warehouse.matching.decision import (
    Costs,
    Decision,
    match_decision,
    raw_decision,
    ready_decision,
    unjoined_decision,
    unkept_decision,
)
from warehouse.matching.match import MemoAction
from warehouse.matching.model_match import MatchResult, match_model
from warehouse.matching.plan_context import AgedPricing, CostedGraph, PlanContext
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import get_model, stored_inputs
from warehouse.planning.cheapest import Alternatives, Label
from warehouse.planning.regret import Advisor
from warehouse.tables.manifests import PlacedFragment, current_units, get_table
from warehouse.warehouse import Warehouse

__all__ = ["Decision", "explain_model"]


def explain_model(
    warehouse: Warehouse,
    model_name: str,
    version: int | None = None,
    *,
    costs_of: Collection[str] = (),
    newest: int | None = None,
) -> tuple[Decision, ...]:
    """A decision for every input and fragment of a submitted model, input by input, in time order.

    The decisions of the inputs in ``costs_of`` have the costs of the alternatives. ``newest``: only those over so many of the last
    fragments. Raises :class:`~warehouse.errors.UnknownModel`.
    """
    with warehouse.catalog.read() as connection:
        model = get_model(connection, model_name, version)
        fragments = current_units(connection, model.table)
        fragments = fragments if newest is None else fragments[-newest:]
        inputs = stored_inputs(connection, model.id)
        table = get_table(connection, model.table)
        context = PlanContext(connection, warehouse.config, table, fragments, warehouse.clock())
        graph = MergedGraph(tuple(item.component for item in inputs))
        keep = context.keep_decision(model, graph)
        found = match_model(connection, inputs, fragments, keep)
        missing = [one for one in found.all_matches if one.action is MemoAction.QUEUE]
        causes = find_causes(connection, model.table, missing, found.graph.operations, found.rows)
        decisions = decisions_of(found, causes, versions_of(connection, model_name), model.policy)
        pricing = keep.pricing or context.aged_pricing(found.graph, model.name)
        priced = _Priced(found, pricing, frozenset(costs_of), is_adaptive=keep.pricing is not None)
        return tuple(
            replace(
                priced.decision(at, decision), last_partition=fragments[at].last_partition, start=fragments[at].start
            )
            for at, decision in decisions
        )


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
            lacking = found.missing_joins(item.fingerprint, position)
            if lacking:
                yield position, unjoined_decision(item, placed.partition, placed.fragment, lacking)
            elif item.is_raw:
                yield position, raw_decision(item, placed.partition, placed.fragment)
            elif one is not None:
                yield position, match_decision(item, one, causes.get(one.request.memo_key), mine)
            elif found.is_ready(item.fingerprint, position):
                yield position, ready_decision(item, placed.partition, placed.fragment)
            else:
                yield position, unkept_decision(item, placed.partition, placed.fragment, policy)


class _Priced:
    """Adds actions, costs and reasons of prices to decisions; fragments that are alike are decided once."""

    def __init__(
        self, found: MatchResult, pricing: AgedPricing, costs_of: frozenset[str], *, is_adaptive: bool
    ) -> None:
        self._found, self._pricing, self._costs_of, self._is_adaptive = found, pricing, costs_of, is_adaptive
        self._reading: dict[frozenset[str], Mapping[str, Label]] = {}
        self._costed: dict[tuple[int, frozenset[str]], CostedGraph] = {}
        self._alternatives: dict[tuple[str, frozenset[str], int], Alternatives] = {}

    def decision(self, position: int, decision: Decision) -> Decision:
        """The decision with its action and costs."""
        if decision.action in ("raw", "wait"):
            return decision
        ready = frozenset(self._found.coverage.slots(position))
        if ready not in self._reading:
            self._reading[ready], _ = self._pricing.costed.reading(ready)
        loaded = self._reading[ready][decision.fingerprint] is Label.LOAD
        decision = replace(decision, action="load" if loaded else "compute")
        placed = self._found.fragments[position]
        if self._is_adaptive and decision.reason_code in ("ready", "not_kept", "evicted"):
            decision = replace(decision, reason=self._with_prices(decision, placed, ready))
        if decision.input not in self._costs_of:
            return decision
        return self._with_costs(decision, ready, self._pricing.bucket(placed))

    def _with_prices(self, decision: Decision, placed: PlacedFragment, ready: frozenset[str]) -> str:
        advisor = self._pricing.advisor(placed)
        if advisor is not Advisor.FORECAST:
            return f"{decision.reason}; the account of the table follows the policy {advisor} here"
        return f"{decision.reason}; {self._pricing.storage_text(decision.fingerprint, placed, ready)}"

    def _with_costs(self, decision: Decision, ready: frozenset[str], bucket: int) -> Decision:
        if (bucket, ready) not in self._costed:
            self._costed[bucket, ready] = replace(self._pricing.costed, reuse=self._pricing.requests(bucket, ready))
        costed, question = self._costed[bucket, ready], (decision.fingerprint, ready, bucket)
        if question not in self._alternatives:
            self._alternatives[question] = costed.alternatives(decision.fingerprint, ready)
        per_row = self._alternatives[question]
        load, compute, keep = (
            secs * decision.rows for secs in (per_row.load_secs, per_row.compute_secs, per_row.keep_secs)
        )
        return replace(decision, costs=Costs(load, compute, keep, costed.requests(decision.fingerprint)))
