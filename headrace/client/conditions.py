"""Conditions on components, as keyword arguments of methods. Pure."""

from __future__ import annotations

from typing import Any, TypedDict, Unpack

from transforms.comparison.pattern import Pattern
from transforms.errors import InputError
from warehouse.search.query import ComponentQuery, state_of


class Conditions(TypedDict, total=False):
    """What a component must meet, all of it; see :class:`~warehouse.search.query.ComponentQuery`.

    ``pattern`` is the text of a pattern, and ``state`` the name of a state of memos.
    """

    column: str
    operator: str
    subgraph: str
    pattern: str
    fingerprint: str
    model: str
    client: str
    table: str
    min_size_bytes: int
    max_size_bytes: int
    min_hits: int
    min_saved_secs: float
    state: str


def query_of(
    created_before: float | None = None, created_after: float | None = None, **conditions: Unpack[Conditions]
) -> ComponentQuery:
    """The query of conditions; the times are epoch seconds. Raises :class:`InputError`, also for a condition that there is not."""
    if unknown := sorted(set(conditions) - set(Conditions.__annotations__)):
        raise InputError(
            "a condition must be a known one", value=", ".join(unknown), allowed=", ".join(Conditions.__annotations__)
        )
    given: dict[str, Any] = {**conditions}
    if "pattern" in given:
        given["pattern"] = Pattern.parse(given["pattern"])
    if "state" in given:
        given["state"] = state_of(given["state"])
    return ComponentQuery(created_before=created_before, created_after=created_after, **given)
