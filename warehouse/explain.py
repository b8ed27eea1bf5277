"""Why each input of a model is a hit or a miss, fragment by fragment. Reads only."""

from __future__ import annotations

from warehouse.causes import find_causes
from warehouse.decision import Decision
from warehouse.enqueue import survey
from warehouse.matching import Action
from warehouse.models import get_model, stored_inputs
from warehouse.submit import decide, model_rows
from warehouse.warehouse import Warehouse

__all__ = ["Decision", "explain_model"]


def explain_model(warehouse: Warehouse, model_name: str, version: int | None = None) -> tuple[Decision, ...]:
    """A decision for every input and fragment of a submitted model, input by input, in time order.

    Raises :class:`~warehouse.errors.UnknownModel`.
    """
    with warehouse.catalog.read() as connection:
        model = get_model(connection, model_name, version)
        found = survey(connection, model.table, stored_inputs(connection, model.id))
        missing = [one for one in found.all_matches if one.action is Action.QUEUE]
        causes = find_causes(connection, model.table, missing, found.inputs, found.rows)
        return decide(found, causes, model_rows(connection, model_name))
