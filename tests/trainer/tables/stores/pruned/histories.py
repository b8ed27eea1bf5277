"""The importance of pruned tables in their states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trainer.tables.engine import TableState
from trainer.tables.stores.pruned.history import PrunedHistory


def histories_of(states: Mapping[str, TableState]) -> dict[str, PrunedHistory]:
    """The histories of tables, by name; a host that has no row of a table has no history of it."""
    read = {name: PrunedHistory.read(name, one.sections) for name, one in states.items()}
    return {name: one for name, one in read.items() if one is not None}


def with_histories(states: Mapping[str, TableState], histories: Mapping[str, PrunedHistory]) -> dict[str, TableState]:
    """States with these histories, and no other ones."""
    return {name: replace(one, sections=histories[name].sections()) for name, one in states.items()}
