"""The values of a read solution: its inputs, plans, partitions and fragments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from transforms.graphs.graph import Node, component_from_document
from transforms.types import ColumnType
from warehouse.files.column_files import MemoRef
from warehouse.tables.table import Fragment

#: ``load``: read the memoized column; ``compute``: run the component, on raw columns and on the memoized subgraphs that
#: the plan loads; ``raw``: the input is a column.
Action = Literal["load", "compute", "raw"]
ACTIONS: tuple[Action, ...] = ("load", "compute", "raw")


@dataclass(frozen=True)
class ReadPlan:
    """How fragments that look alike are read. Many fragments share one.

    ``actions``: one for every input, in order. ``loads``: the memoized columns to read, by fingerprint (which is also the
    column's name), each with the position of its file among the fragment's ``files``: inputs, and subgraphs of inputs.
    ``secs_a_row``: what reading and computing cost, as far as the catalog's measurements go.
    """

    actions: tuple[Action, ...]
    loads: Mapping[str, int]
    secs_per_row: float = 0.0


@dataclass(frozen=True)
class SolutionInput:
    """One model input: its name, the fingerprint, the type and the document of the component that feeds it."""

    name: str
    fingerprint: str
    type: ColumnType
    component: Mapping[str, Any]

    @cached_property
    def root(self) -> Node:
        """The component as a graph."""
        return component_from_document(dict(self.component))


@dataclass(frozen=True)
class SolutionFragment(Fragment):
    """A fragment, the number of the plan by which it is read, and the memo files that the plan's loads name."""

    plan: int
    files: tuple[MemoRef, ...]


@dataclass(frozen=True)
class SolutionPartition:
    """One partition at one manifest version; ``[start, end)`` in UTC."""

    key: str
    start: datetime
    end: datetime
    version: int
    fragments: tuple[SolutionFragment, ...]

    @property
    def rows(self) -> int:
        """Events in the partition that were not retracted."""
        return sum(fragment.live_rows for fragment in self.fragments)
