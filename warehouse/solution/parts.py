"""The values of a read solution: its inputs, plans, partitions and fragments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Literal

from transforms.derived_documents import Form, Name, Named, Omitted, Row, number, whole
from transforms.documents import Part
from transforms.graphs.graph import Node, component_from_document
from transforms.types import ColumnType, type_document, type_from_document
from warehouse.files.column_files import MemoRef
from warehouse.tables.table import MOST_ROWS, Fragment

#: ``load``: read the memo; ``compute``: run the component on raw columns and on the memos of subgraphs that
#: the plan loads; ``raw``: read the raw column.
Action = Literal["load", "compute", "raw"]
ACTIONS: tuple[Action, ...] = ("load", "compute", "raw")
LARGEST_VERSION = 2**31 - 1
_Version = Annotated[int, whole(most=LARGEST_VERSION)]


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
    loads: Mapping[str, _Version]
    secs_per_row: Annotated[float, number(0.0), Named("secs_a_row")] = 0.0


@dataclass(frozen=True)
class SolutionInput:
    """One model input: its name, with the fingerprint, type and document of its component."""

    name: str
    fingerprint: str
    type: Annotated[ColumnType, Form(type_from_document, type_document)]
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

    first_row: Annotated[int, whole(most=MOST_ROWS)]
    rows: Annotated[int, whole(most=MOST_ROWS)]


@dataclass(frozen=True)
class SolutionFragment(Fragment):
    """A fragment, the number of its plan, and the memo files that the plan loads.

    ``window``: where the fragment's events are in the files of a merged fragment; None if the files are its own.
    """

    plan: int
    files: tuple[Row[MemoRef], ...]
    window: Omitted[MemoWindow | None] = None

    @classmethod
    def of(
        cls, fragment: Fragment, plan: int, files: tuple[MemoRef, ...], window: MemoWindow | None
    ) -> SolutionFragment:
        """A fragment of a table with its plan and files. A solution has many: the fields are copied at once."""
        made = object.__new__(cls)
        made.__dict__.update(vars(fragment), plan=plan, files=files, window=window)
        return made

    def check_read(self, part: Part) -> None:
        """Raise :class:`~transforms.errors.DataError` for parts that contradict each other."""
        super().check_read(part)
        if self.members:
            raise part.at("members").refused("absent")
        if self.window is not None and self.window.first_row + self.rows > self.window.rows:
            raise part.at("window").refused("a part of the files' rows")


@dataclass(frozen=True)
class SolutionPartition:
    """One partition at one manifest version; ``[start, end)`` in UTC."""

    key: Name
    start: datetime
    end: datetime
    version: _Version
    fragments: tuple[SolutionFragment, ...]

    def check_read(self, part: Part) -> None:
        """Raise :class:`~transforms.errors.DataError` for a partition that ends before its start."""
        if self.start > self.end:
            raise part.at("end").refused("no earlier than the start")

    @property
    def rows(self) -> int:
        """Events in the partition that are not deleted."""
        return sum(fragment.live_rows for fragment in self.fragments)
