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

from trainer.reading.columns import ROW_COLUMN
from trainer.reading.unit_requests import UnitRequest
from transforms.errors import DataError
from warehouse.solution.parts import SolutionFragment
from warehouse.solution.solution import ReadSolution

#: Reads one fragment by a solution, with the column of stored events: :func:`warehouse.reading.reader.read_fragment`.
ReadBySolution = Callable[[ReadSolution, SolutionFragment], pa.Table]
#: The read solution with a digest. Raises :class:`DataError` if there is none.
FindSolution = Callable[[str], ReadSolution]
_KEPT_SOLUTIONS = 4


@dataclass
class _Kept:
    """A fragment that is being read, or was."""

    ready: threading.Event = field(default_factory=threading.Event)
    table: pa.Table | None = None
    error: BaseException | None = None

    @property
    def size_bytes(self) -> int:
        return 0 if self.table is None else int(self.table.nbytes)


class UnitReader:
    """Reads work units; any number of threads may call it.

    ``kept_bytes``: how much of fragments that were read is kept; the newest fragment always is.
    """

    def __init__(self, find: FindSolution, read: ReadBySolution, *, kept_bytes: int) -> None:
        self._find, self._read, self._kept_bytes = find, read, kept_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._solutions: OrderedDict[str, tuple[ReadSolution, dict[str, SolutionFragment]]] = OrderedDict()

    def read(self, request: UnitRequest) -> pa.Table:
        """The columns of a unit's events that are not deleted, with the stored event of each as :data:`ROW_COLUMN`.

        Raises :class:`DataError` for a unit that the solution does not have, and what reading raises.
        """
        solution, fragments = self._solution(request.solution)
        fragment = fragments.get(request.fragment)
        if fragment is None:
            raise DataError("a unit must be of a fragment of its solution", where=f"solution {request.solution[:12]}",
                            value=request.fragment)  # fmt: skip
        if request.first_row + request.rows > fragment.rows or not request.rows:
            raise DataError("a unit must be events of its fragment", where=f"fragment {request.fragment}",
                            value=f"{request.rows} events from {request.first_row} on", allowed=f"1 to {fragment.rows}")  # fmt: skip
        table = self._table(request, solution, fragment)
        if request.rows == fragment.rows:
            return table
        if table.num_rows == fragment.rows:
            return table.slice(request.first_row, request.rows)
        positions = table.column(ROW_COLUMN).to_numpy()
        first, last = np.searchsorted(positions, [request.first_row, request.first_row + request.rows]).tolist()
        return table.slice(first, last - first)

    def _solution(self, digest: str) -> tuple[ReadSolution, dict[str, SolutionFragment]]:
        """A solution and its fragments by key; the last few are kept, since a new one comes with new data."""
        with self._lock:
            if digest not in self._solutions:
                solution = self._find(digest)
                fragments = {
                    f"{part.key}#{position}": fragment
                    for part in solution.partitions
                    for position, fragment in enumerate(part.fragments)
                }
                self._solutions[digest] = solution, fragments
                while len(self._solutions) > _KEPT_SOLUTIONS:
                    self._solutions.popitem(last=False)
            self._solutions.move_to_end(digest)
            return self._solutions[digest]

    def _table(self, request: UnitRequest, solution: ReadSolution, fragment: SolutionFragment) -> pa.Table:
        key = (request.solution, request.fragment)
        with self._lock:
            kept = self._kept.get(key)
            mine = kept is None
            if kept is None:
                kept = self._kept[key] = _Kept()
            self._kept.move_to_end(key)
        if mine:
            try:
                kept.table = self._read(solution, fragment)
            except BaseException as error:
                kept.error = error
                with self._lock:
                    self._kept.pop(key, None)  # the next request reads it again
            kept.ready.set()
            self._forget()
        kept.ready.wait()
        if kept.error is not None:
            raise kept.error
        assert kept.table is not None
        return kept.table

    def _forget(self) -> None:
        """Let go of the fragments that were not asked for longest."""
        with self._lock:
            held = sum(one.size_bytes for one in self._kept.values())
            for key in list(self._kept)[:-1]:
                if held <= self._kept_bytes:
                    return
                if self._kept[key].ready.is_set():
                    held -= self._kept.pop(key).size_bytes
