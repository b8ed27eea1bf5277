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

#: ``load``: read the memo; ``compute``: run the component on raw columns and on the memos of subgraphs that
#: the plan loads; ``raw``: read the raw column.
Action = Literal["load", "compute", "raw"]
ACTIONS: tuple[Action, ...] = ("load", "compute", "raw")


@dataclass(frozen=True)
class ReadPlan:
    """The actions for fragments with the same ready memos; many fragments share a plan.

    Attributes:
        actions: An action for every input, in order.
        loads: Memos of inputs and of subgraphs to read, by fingerprint, which is also the column's name; each with the position
            of its file in the fragment's ``files``.
        secs_per_row: Estimated seconds of reading and computing per row.
    """

    actions: tuple[Action, ...]
    loads: Mapping[str, int]
    secs_per_row: float = 0.0


@dataclass(frozen=True)
class SolutionInput:
    """One model input: its name, with the fingerprint, type and document of its component."""

    name: str
    fingerprint: str
    type: ColumnType
    component: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, root: Node, component: Mapping[str, Any]) -> SolutionInput:
        """The input of a component and its document, which is then not decoded again."""
        item = cls(name, root.identity, root.type, component)
        item.__dict__["root"] = root
        return item

    @cached_property
    def root(self) -> Node:
        """The component as a graph."""
        return component_from_document(dict(self.component))


@dataclass(frozen=True, slots=True)
class MemoWindow:
    """The part of memo files that holds a fragment's events: ``rows`` of the files, and the first of the fragment's."""

    first_row: int
    rows: int


@dataclass(frozen=True)
class SolutionFragment(Fragment):
    """A fragment, the number of its plan, and the memo files that the plan loads.

    ``window``: where the fragment's events are in the files of a merged fragment; None if the files are its own.
    """

    plan: int
    files: tuple[MemoRef, ...]
    window: MemoWindow | None = None


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
        """Events in the partition that are not deleted."""
        return sum(fragment.live_rows for fragment in self.fragments)
