"""Hit or miss of a model's inputs per partition, the reason, and the costs."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from transforms.errors import InputError, nearest

if TYPE_CHECKING:
    from headrace.screens.models import DecisionRow, ExplainScreen, NearestRow
    from warehouse.matching.decision import Decision
    from warehouse.models.models import ModelRecord
    from warehouse.search.nearest import NearestKnown
    from warehouse.warehouse import Warehouse

#: Reasons of a miss of a component that was never computed over any data.
_UNKNOWN = ("never_seen", "not_kept")

#: The number of inputs whose costs are computed by default: each takes some minimum cuts.
_PRICED_INPUTS = 50


def explanation(
    warehouse: Warehouse,
    name: str,
    version: int = 0,
    *,
    only: Collection[str] = (),
    misses: bool = False,
    partitions: bool = False,
    newest: int | None = None,
    priced: bool = True,
) -> ExplainScreen:
    """Hit or miss, and how each input is read; costs are of the first 50 inputs, or of those in ``only``.

    ``version`` 0: the newest; ``misses``: only those; ``partitions``: rendered by a line per input and partition; ``newest``: only the last so many
    fragments; ``priced``: whether costs are computed. Raises :class:`InputError` for an unknown
    input, and :class:`~transforms.errors.NotFound` for an unknown model.
    """
    from headrace.screens.models import ExplainScreen

    found, shown = _chosen_inputs(warehouse, name, version, only)
    decisions = _decisions(warehouse, found, shown, _PRICED_INPUTS if priced else 0, newest)
    nearest_known = _nearest_of_unknown(warehouse, found, decisions)
    return ExplainScreen(
        model=name,
        version=found.version,
        policy=found.policy,
        hits=sum(one.hit for one in decisions),
        misses=sum(not one.hit for one in decisions),
        decisions=tuple(_decision_row(one) for one in decisions if not (misses and one.hit)),
        nearest=tuple(map(_nearest_row, nearest_known)),
        summarised=not partitions,
        label=found.label,
        label_is_computed=found.target.is_computed,
    )


def _chosen_inputs(
    warehouse: Warehouse, name: str, version: int, only: Collection[str]
) -> tuple[ModelRecord, Sequence[str]]:
    """The model, and its inputs in order, all or those named."""
    from warehouse.models.models import get_model, stored_inputs

    with warehouse.catalog.read() as connection:
        found = get_model(connection, name, version or None)
        names = [item.name for item in stored_inputs(connection, found.id)]
    for wrong in sorted(set(only) - set(names)):
        raise InputError(
            "the model has no such input", where=f"model {name}", value=wrong, allowed=nearest(wrong, names)
        )
    return found, [one for one in names if not only or one in only]


def _decisions(
    warehouse: Warehouse, model: ModelRecord, inputs: Sequence[str], most_priced: int, newest: int | None
) -> Sequence[Decision]:
    from warehouse.matching.explain import explain_model

    decisions = explain_model(warehouse, model.name, model.version, costs_of=inputs[:most_priced], newest=newest)
    shown = set(inputs)
    return [one for one in decisions if one.input in shown]


def _nearest_of_unknown(
    warehouse: Warehouse, model: ModelRecord, decisions: Sequence[Decision]
) -> Sequence[NearestKnown]:
    """The nearest known component per input whose own component never had a memo."""
    from warehouse.search.nearest import nearest_known_of

    known = {one.input for one in decisions if one.reason_code not in _UNKNOWN}
    unknown = {one.input for one in decisions} - known
    return nearest_known_of(warehouse, model.name, unknown, model.version)


def _decision_row(decision: Decision) -> DecisionRow:
    from headrace.screens.models import DecisionRow

    return DecisionRow(
        input=decision.input,
        partition=decision.partition,
        last_partition=decision.last_partition,
        fragment=decision.fragment_id,
        rows=decision.rows,
        hit=decision.hit,
        state=decision.state,
        reason_code=decision.reason_code,
        reason=decision.reason,
        read=decision.action,
        start=decision.start,
        **_costs_of(decision),
    )


def _nearest_row(known: NearestKnown) -> NearestRow:
    from headrace.screens.models import NearestRow

    return NearestRow(
        input=known.input,
        fingerprint=known.fingerprint,
        expression=known.expression,
        models=known.models,
        distance=known.difference.distance,
        changes=tuple(change.to_document() for change in known.difference.changes),
    )


def _costs_of(decision: Decision) -> dict[str, float | None]:
    costs = decision.costs
    if costs is None:
        return {}
    secs = {"load_secs": costs.load_secs, "compute_secs": costs.compute_secs, "keep_secs": costs.keep_secs}
    finite = {name: value if math.isfinite(value) else None for name, value in secs.items()}
    return {**finite, "requests": costs.requests}
