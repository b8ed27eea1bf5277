"""What a checkpoint has of a hashed table beside its rows, and how it is divided over the servers or hosts that load it. Pure.

Whatever the number of servers or hosts, rows and their ages are those of the table. The counts of ids that wait for admission are those of
each, since they are by a hash of its own numbers of ids: another number of servers or hosts begins without them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainer.errors import TornCheckpoint
from trainer.options.hashed import MOST_STEPS
from trainer.tables.engine import TableState
from trainer.tables.hashed_history import KeptHistory
from transforms.arrays import Array

_CANDIDATE_STEP_BITS = 24
#: The sections of a hashed table: the ages of its rows, the steps of servers, and the counts of ids that wait for admission.
SECTIONS = AGES, STEPS, CANDIDATES = "ages", "steps", "candidates"


@dataclass(frozen=True, slots=True, eq=False)
class LoadedHistory:
    """The history of a part that is loaded: what it has beside its rows, and the ages of those of a hashed one."""

    kept: KeptHistory
    ages: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SavedHistory:
    """The history of a hashed table over all servers.

    Attributes:
        ages: int64, the steps since the last use of each saved row, in their order.
        steps: int64, the steps of the table on each server.
        candidates: uint64, the counts of ids that wait for admission, server after server.
    """

    ages: Array
    steps: Array
    candidates: Array

    @classmethod
    def read(cls, table: str, state: TableState, servers: int) -> SavedHistory:
        """The history of a table; of a state that has none all rows were used at one step. Raises :class:`TornCheckpoint`."""
        arrays = state.sections.arrays
        rows = len(state.rows)
        found = cls(np.zeros(rows, np.int64), np.full(servers, min(rows, 1), np.int64), np.zeros(0, np.uint64))
        if AGES in arrays and STEPS in arrays and CANDIDATES in arrays:
            found = cls(arrays[AGES], arrays[STEPS], arrays[CANDIDATES])
        found.check(table, state)
        return found

    def check(self, table: str, state: TableState) -> None:
        """Raise :class:`TornCheckpoint` unless it is the history of these rows."""
        types = [str(one.dtype) for one in (self.ages, self.steps, self.candidates)]
        shapes = [one.ndim for one in (self.ages, self.steps, self.candidates)]
        steps, ages = self.steps, self.ages
        if (
            types != ["int64", "int64", "uint64"] or shapes != [1, 1, 1] or ages.shape != state.rows.shape or not len(steps)
            or int(steps.min()) < 0 or int(steps.max()) > MOST_STEPS
            or (len(ages) and not 0 <= int(ages.min()) <= int(ages.max()) < int(steps.max()))
        ):  # fmt: skip
            raise TornCheckpoint("the history of a hashed table must fit its rows", where=f"table {table}",
                                 value=(*types, len(ages), len(steps)), allowed=f"{len(state.rows)} ages below the steps")  # fmt: skip

    def own_arrays(self, mine: Array, owner: int, owners: int) -> dict[str, Array]:
        """The sections of one of some owners, which has the rows of ``mine``, a mask: those that it saves itself."""
        is_same = len(self.steps) == owners
        each = len(self.candidates) // owners if is_same else 0
        own = slice(owner, owner + 1) if is_same else slice(None)
        return {
            AGES: self.ages[mine],
            STEPS: self.steps[own],
            CANDIDATES: self.candidates[owner * each : (owner + 1) * each],
        }

    def part(self, server: int, servers: int, ages: Array, candidates: int, evicted: int) -> LoadedHistory:
        """The history of a server that loads rows of these ages, and has so many candidates.

        Steps are as few as the ages allow, so that they do not run out.
        """
        own = np.zeros(0, np.uint64)
        is_same = len(self.steps) == servers
        if is_same and len(self.candidates) == servers * candidates:
            own = self.candidates[server * candidates : (server + 1) * candidates]
        step = int(self.steps[server]) if is_same else int(self.steps.max())
        return loaded_history(step, ages, own, evicted)


def loaded_history(step: int, ages: Array, candidates: Array, evicted: int) -> LoadedHistory:
    """The history of a server whose table was at a step at least, with rows of these ages."""
    step = max(step, int(ages.max()) + 1 if len(ages) else 0)
    return LoadedHistory(KeptHistory(shortened(step, ages), candidates, evicted), ages)


def shortened(step: int, ages: Array) -> int:
    """As few steps as the ages of rows, and the bits of candidates' steps, allow, so that steps never run out."""
    oldest = int(ages.max()) if len(ages) else 0
    left_out = max(step - oldest - 1, 0) >> _CANDIDATE_STEP_BITS << _CANDIDATE_STEP_BITS
    return step - left_out


def newest_rows(state: TableState, ages: Array, most: int) -> tuple[TableState, Array, int]:
    """The ``most`` rows that were used last, with their ages, and the number of those that are left out.

    Of rows of one age those with the largest ids stay: the order in which a table evicts them.
    """
    left_out = len(state.rows) - most
    if left_out <= 0:
        return state, ages, 0
    kept = np.sort(np.lexsort((state.rows, -ages))[left_out:])
    return TableState(state.rows[kept], state.weights[kept], state.slots[kept]), ages[kept], left_out
