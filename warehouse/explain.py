"""Why each input of a model is a hit or a miss, fragment by fragment. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, select

from warehouse import schema
from warehouse.causes import Cause, find_causes
from warehouse.decision import Decision, match_decision, raw_decision, ready_decision, unkept_decision
from warehouse.enqueue import Survey, survey
from warehouse.keeping import Market
from warehouse.manifests import current_fragments, get_table
from warehouse.matching import Action
from warehouse.models import ModelRecord, get_model, stored_inputs
from warehouse.warehouse import Warehouse

__all__ = ["Decision", "explain_model"]


def explain_model(warehouse: Warehouse, model_name: str, version: int | None = None) -> tuple[Decision, ...]:
    """A decision for every input and fragment of a submitted model, input by input, in time order.

    Raises :class:`~warehouse.errors.UnknownModel`.
    """
    with warehouse.catalog.read() as connection:
        model = get_model(connection, model_name, version)
        fragments = current_fragments(connection, model.table)
        inputs = stored_inputs(connection, model.id)
        table = get_table(connection, model.table)
        keeps = Market(connection, warehouse.config, table, fragments, warehouse.clock()).keeps(model)
        found = survey(connection, inputs, fragments, keeps)
        missing = [one for one in found.all_matches if one.action is Action.QUEUE]
        causes = find_causes(connection, model.table, missing, found.graph.operations, found.rows)
        return tuple(_decisions(model, found, causes, _versions_of(connection, model_name)))


def _versions_of(connection: Connection, name: str) -> frozenset[int]:
    """The rows of all versions of a model."""
    return frozenset(connection.execute(select(schema.models.c.id).where(schema.models.c.name == name)).scalars())


def _decisions(
    model: ModelRecord, found: Survey, causes: Mapping[str, Cause], mine: frozenset[int]
) -> Iterator[Decision]:
    for item in found.inputs:
        for position, placed in enumerate(found.fragments):
            one = found.matches.get(item.fingerprint, {}).get(position)
            if item.is_raw:
                yield raw_decision(item, placed.partition, placed.fragment)
            elif one is not None:
                yield match_decision(item, one, causes.get(one.wanted.memo_key), mine)
            elif found.is_ready(item.fingerprint, position):
                yield ready_decision(item, placed.partition, placed.fragment)
            else:
                yield unkept_decision(item, placed.partition, placed.fragment, model.policy)
