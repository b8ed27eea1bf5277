"""Conditions on components from Python values. Pure."""

from __future__ import annotations

from typing import Any

from transforms.comparison.pattern import Pattern
from transforms.errors import InputError
from warehouse.scheduling.task_states import MemoState
from warehouse.search.query import ComponentQuery


def query_of(*, pattern: str | None, state: str | None, **conditions: Any) -> ComponentQuery:
    """The query of conditions, of which ``pattern`` and ``state`` are text. Raises :class:`InputError`."""
    known = {one.lower(): one for one in MemoState}
    if state is not None and state.lower() not in known:
        raise InputError("state must be a state of memos", where="state", value=state, allowed=", ".join(known))
    return ComponentQuery(
        pattern=None if pattern is None else Pattern.parse(pattern),
        state=None if state is None else known[state.lower()],
        **conditions,
    )
