"""When components were last asked for, and by how many models: what a budget goes by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, case, func, select

from warehouse import schema
from warehouse.catalog import chunks


@dataclass(frozen=True, slots=True)
class LastRequest:
    """``requested_at``: the newest submission of a model that has the component, in epoch seconds.

    ``readers``: how many live models have it. A model has what is an input of it and what is inside one.
    """

    requested_at: float
    readers: int


def last_requests(connection: Connection, fingerprints: Sequence[str]) -> dict[str, LastRequest]:
    """By component; those that no model ever had are absent."""
    models, inputs, parts, asked = (
        schema.models, schema.model_inputs, schema.component_subgraphs, schema.submissions
    )  # fmt: skip
    newest = select(asked.c.model, func.max(asked.c.submitted_at).label("at")).group_by(asked.c.model).subquery()
    found: dict[str, LastRequest] = {}
    for chunk in chunks(fingerprints):
        having = (
            select(parts.c.subgraph, inputs.c.model)
            .join(inputs, inputs.c.fingerprint == parts.c.fingerprint)
            .where(parts.c.subgraph.in_(chunk))
            .distinct()
            .subquery()
        )
        query = (
            select(having.c.subgraph, func.max(func.coalesce(newest.c.at, models.c.submitted_at)),
                   func.sum(case((models.c.live.is_(True), 1), else_=0)))
            .join(models, models.c.id == having.c.model)
            .join(newest, newest.c.model == models.c.id, isouter=True)
            .group_by(having.c.subgraph)
        )  # fmt: skip
        for fingerprint, at, readers in connection.execute(query):
            found[fingerprint] = LastRequest(float(at), int(readers))
    return found
