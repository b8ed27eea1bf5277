"""The work of a reader: read fragments by read solutions, and cut work units out of them. No network.

A fragment is read once for its units that follow each other: the fragments that were read last are kept, up to a number of bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from trainer.errors import BadFeature
from trainer.model.inputs import InputLayout, TypedInput
from trainer.model.task_heads import heads_of
from trainer.run.reading.columns import ROW_COLUMN, StoredColumns, read_columns
from trainer.run.reading.packed_units import UnitLayout, pack_unit
from trainer.run.reading.unit_requests import UnitRequest
from transforms.arrays import Array
from transforms.errors import DataError
from warehouse.errors import MemoDamaged
from warehouse.reading.reader import read_fragment
from warehouse.solution.parts import SolutionFragment
from warehouse.solution.solution import ReadSolution
from warehouse.storage.storage import Storage

#: Reads one fragment by a solution, with the column of stored events, as :func:`read_by_solution` does.
ReadBySolution = Callable[[ReadSolution, SolutionFragment], pa.Table]
#: The read solution with a digest. Raises :class:`DataError` if there is none.
FindSolution = Callable[[str], ReadSolution]
_KEPT_SOLUTIONS = 4
#: Damaged memos beyond this number are not reported.
_MOST_REPORTED = 100_000


#: Called as ``report(memo, path of its file, error)`` for the first use of a damaged memo, before it is computed instead.
Report = Callable[[str, str, MemoDamaged], None]


def read_by_solution(storage: Storage, report: Report | None = None) -> ReadBySolution:
    """Read fragments from storage; memos that are missing or damaged are computed, with the same result."""
    lock, reported = threading.Lock(), set[str]()

    def on_damage(memo: str, path: str, error: MemoDamaged) -> None:
        with lock:
            is_new = memo not in reported and len(reported) < _MOST_REPORTED
            if is_new:
                reported.add(memo)
        if is_new and report is not None:
            report(memo, path, error)

    return lambda solution, fragment: read_fragment(storage, solution, fragment, rows=True, on_damage=on_damage)


@dataclass
class _Kept:
    """A fragment that is being read, or was."""

    ready: threading.Event = field(default_factory=threading.Event)
    columns: StoredColumns | None = None
    error: BaseException | None = None

    @property
    def size_bytes(self) -> int:
        return 0 if self.columns is None else self.columns.size_bytes


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """A solution, its fragments by key, and the layout of its inputs."""

    solution: ReadSolution
    fragments: dict[str, SolutionFragment]
    layout: InputLayout
    unit_layout: UnitLayout


class UnitReader:
    """Reads work units; any number of threads may call it.

    ``kept_bytes``: how much of fragments that were read is kept; the newest fragment always is.
    """

    def __init__(self, find: FindSolution, read: ReadBySolution, *, kept_bytes: int) -> None:
        self._find, self._read, self._kept_bytes = find, read, kept_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._solutions: OrderedDict[str, _Known] = OrderedDict()

    def read(self, request: UnitRequest) -> StoredColumns:
        """The columns of the events that are asked for and are not deleted, with the stored event of each.

        Raises :class:`DataError` for a unit that the solution does not have, and what reading raises.
        """
        known = self._known(request.solution)
        fragment = known.fragments.get(request.fragment)
        if fragment is None:
            raise DataError("a unit must name a fragment of its read solution", where=f"solution {request.solution[:12]}",
                            value=request.fragment)  # fmt: skip
        if request.first_row + request.rows > fragment.rows or not request.rows:
            raise DataError("a unit must be events of its fragment", where=f"fragment {request.fragment}",
                            value=f"{request.rows} events from {request.first_row} on", allowed=f"1 to {fragment.rows}")  # fmt: skip
        columns = self._columns(request, known, fragment)
        first, stop = request.first_row, request.first_row + request.rows
        if columns.rows != fragment.rows:
            assert columns.positions is not None  # checked when it was read
            first, stop = np.searchsorted(columns.positions, [first, stop]).tolist()
        part = columns.part(first, stop)
        chosen = request.chosen
        if chosen is None:
            return part
        assert part.positions is not None, "a part has the number of each event"
        return part.take(np.flatnonzero(chosen[part.positions - request.first_row]))

    def pack(self, request: UnitRequest) -> tuple[Array, int]:
        """The bytes of a unit, uint8, and its events. Raises what :meth:`read` and :func:`pack_unit` raise."""
        columns = self.read(request)
        return pack_unit(columns, self._known(request.solution).unit_layout), columns.rows

    def _known(self, digest: str) -> _Known:
        """A solution and its fragments by key; the last few are kept, since a new one comes with new data."""
        with self._lock:
            if digest not in self._solutions:
                solution = self._find(digest)
                fragments = {
                    f"{part.key}#{position}": fragment
                    for part in solution.partitions
                    for position, fragment in enumerate(part.fragments)
                }
                inputs = [TypedInput(item.name, item.type) for item in solution.inputs]
                embedded = tuple(item for item in inputs if item.type.buckets is not None)
                dense = tuple(item for item in inputs if item.type.buckets is None)
                layout = InputLayout(embedded, dense, ())
                self._solutions[digest] = _Known(
                    solution, fragments, layout, UnitLayout.of(layout, heads_of(solution.target))
                )
                while len(self._solutions) > _KEPT_SOLUTIONS:
                    self._solutions.popitem(last=False)
            self._solutions.move_to_end(digest)
            return self._solutions[digest]

    def _columns(self, request: UnitRequest, known: _Known, fragment: SolutionFragment) -> StoredColumns:
        key = (request.solution, request.fragment)
        with self._lock:
            kept = self._kept.get(key)
            mine = kept is None
            if kept is None:
                kept = self._kept[key] = _Kept()
            self._kept.move_to_end(key)
        if mine:
            try:
                kept.columns = _checked(self._read(known.solution, fragment), known.layout, fragment, request.fragment)
            except BaseException as error:
                kept.error = error
                with self._lock:
                    self._kept.pop(key, None)  # the next request reads it again
            kept.ready.set()
            self._forget()
        kept.ready.wait()
        if kept.error is not None:
            raise kept.error
        assert kept.columns is not None
        return kept.columns

    def _forget(self) -> None:
        """Let go of the fragments that were not asked for longest."""
        with self._lock:
            held = sum(one.size_bytes for one in self._kept.values())
            for key in list(self._kept)[:-1]:
                if held <= self._kept_bytes:
                    return
                if self._kept[key].ready.is_set():
                    held -= self._kept.pop(key).size_bytes


def _checked(table: pa.Table, layout: InputLayout, fragment: SolutionFragment, key: str) -> StoredColumns:
    """The columns of a fragment, with a number for each event unless none is deleted."""
    if table.num_rows != fragment.live_rows:
        raise BadFeature("a fragment must have the rows that the read solution states", where=f"fragment {key}",
                         value=table.num_rows, allowed=str(fragment.live_rows))  # fmt: skip
    columns = read_columns(table, layout, key)
    if columns.positions is None and columns.rows != fragment.rows:
        raise BadFeature("a reader that leaves deleted events out must return a column of event numbers",
                         where=f"fragment {key}", allowed=f"a column {ROW_COLUMN}",
                         next_step="read_fragment(..., rows=True)")  # fmt: skip
    return columns
