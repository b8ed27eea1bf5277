"""The importance of all rows of pruned tables: where it is added up, how it decays, and what a sample says of it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from trainer.options.pruning import PruningOptions
from trainer.planning.pruning_rounds import crossing_share, draw_rows, sample_rows
from trainer.planning.row_groups import RowGroup
from trainer.tables.kernels.importance import Importance
from trainer.tables.kernels.threads import Team
from trainer.tables.stores.pruned.addresses import Addresses
from trainer.tables.stores.pruned.candidates import Candidates, low_places
from trainer.tables.stores.pruned.job_places import JobPlaces
from trainer.tables.stores.pruned.job_sample import JobSample, scale_of_sample, scale_rows
from trainer.tables.stores.pruned.memory import PrunedMemory
from trainer.tables.stores.pruned.round import (
    TableRound,
    TableRows,
    cut_off_bits,
    list_rounds,
    percentile_of,
    team_map,
)
from trainer.tables.stores.pruned.selection import gather_importance, read_importance
from transforms.arrays import Array

#: What an update may count for before the importance of all rows is divided by it.
_MOST_GAIN = float(1 << 40)
_GATHERED_ROWS = 1 << 18


def scale_of(importance: Array, options: PruningOptions, team: Team) -> float:
    """What the importance of a table is multiplied by before tables are compared."""
    if not options.normalised:
        return 1.0
    high = percentile_of(importance, team)
    return 1.0 / high if high else 0.0


def chosen_of(importance: Array, options: PruningOptions, seed: int, step: int, t: int) -> Array:
    """By what a round compares the rows of a table: their importance, or by the metric ``random`` a number for each row that has any."""
    if options.metric != "random":
        return importance
    drawn = np.random.default_rng([seed, step, t]).random(len(importance), np.float32)
    return np.where(importance > 0, drawn + np.float32(1e-6), np.float32(0.0)).astype(np.float32)


class RowImportance:
    """The importance of the rows of all tables: of a row with a place by its place, which an update has at hand.

    Args:
        addresses: of the rows.
        row_base: where the places of each table's group begin.
        places: of all groups, with their rows of zeros.
        options: what makes a row important.
        seed: of samples.
        team: the threads.
        memory: has the values.
    """

    def __init__(
        self, addresses: Addresses, row_base: Array, places: int, options: PruningOptions, seed: int, team: Team, memory: PrunedMemory
    ) -> None:  # fmt: skip
        self._addresses, self._row_base = addresses, row_base
        self._options, self._seed, self._team = options, seed, team
        self._rows = memory.array("importance", int(addresses.first_row[-1]), np.float32)
        self._places = memory.array("place_importance", places, np.float32)
        self._gain = memory.array("gain", 1, np.float64)
        self._of_rows, self._of_places = self._rows.values, self._places.values
        if memory.is_fresh:
            self.clear()

    def clear(self) -> None:
        """No row has any importance."""
        self._of_rows[:], self._of_places[:], self.gain = 0.0, 0.0, 1.0

    @property
    def gain(self) -> float:
        """What an update counts for now; it grows in place of all values becoming smaller."""
        return float(self._gain.values[0])

    @gain.setter
    def gain(self, gain: float) -> None:
        self._gain.keep_all()
        self._gain.values[0] = gain

    def keep(self, places: Array, rows: Array) -> None:
        """Before the importance of places, of all groups, and of rows, of all tables, changes."""
        self._places.keep(places, 1)
        self._rows.keep(rows, 1)

    def noted(self) -> Importance:
        """Where an update adds to the importance of rows without a place, and by what metric."""
        return Importance(self._of_rows, self._factors())

    def noted_places(self) -> Importance:
        """As :meth:`noted`, for rows by their places."""
        return Importance(self._of_places, self._factors())

    def _factors(self) -> Array:
        metric = self._options.metric
        return np.array([self.gain, "frequency" in metric, "gradient" in metric], np.float32)

    def decay(self) -> bool:
        """Multiply the importance of all rows by the option ``decay``; whether the values of all have changed."""
        gain = self.gain / self._options.decay
        is_divided = gain > _MOST_GAIN
        if is_divided:
            for one in (self._places, self._rows):
                one.keep_all()
                one.values[:] *= np.float32(1 / gain)
            gain = 1.0
        self.gain = gain
        return is_divided

    def leave(self, t: int, rows: Array, places: Array) -> None:
        """Rows of a table leave their places, and keep their importance. As what :meth:`gather` writes, it is not undone."""
        of_rows = int(self._addresses.first_row[t]) + rows
        self._of_rows[of_rows] = self._of_places[int(self._row_base[t]) + places]

    def carry(self, t: int, rows: Array, places: Array) -> None:
        """Rows of a table have got these places: their importance comes along."""
        of_places, of_rows = int(self._row_base[t]) + places, int(self._addresses.first_row[t]) + rows
        self.keep(of_places, of_rows)
        self._of_places[of_places] = self._of_rows[of_rows]

    def gather(self, tables: Sequence[int] | None = None) -> None:
        """Bring :meth:`of_table` of some tables up to date; None: of all.

        The importance of placed rows is written beside that of the others. It is not undone: until a row leaves its place, nothing reads it there,
        and that of a row that an undone change has placed was kept when it got its place.
        """
        addresses, works = self._addresses, []
        for t in range(len(self._row_base)) if tables is None else tables:
            base = int(self._row_base[t])
            for first in range(int(addresses.first_row[t]), int(addresses.first_row[t + 1]), _GATHERED_ROWS):
                stop = min(first + _GATHERED_ROWS, int(addresses.first_row[t + 1]))
                works.append(
                    partial(gather_importance, first, stop, addresses.address, base, self._of_places, self._of_rows)
                )
        team_map(self._team, works)

    def of_table(self, t: int) -> Array:
        """The importance of a table's rows, as of the last :meth:`gather`."""
        found: Array = self._of_rows[int(self._addresses.first_row[t]) : int(self._addresses.first_row[t + 1])]
        return found

    def candidates(self, t: int, candidates: Candidates) -> list[TableRows]:
        """The rows of a table that a round has to look at."""
        return candidates.of_table(t, int(self._row_base[t]), self._of_places, self.of_table(t), self._team)

    def select_of_full(
        self, tables: Sequence[int], places: int, kept: int, candidates: Candidates, *, is_all: bool
    ) -> tuple[list[TableRows], list[TableRound]]:
        """What a round changes in the tables of a group whose places all have rows: the rows that it may move, and the changes of each piece of them.

        Args:
            tables: the tables.
            places: the places of the group.
            kept: how many rows have a place afterwards.
            candidates: the rows that the round has to look at.
            is_all: whether it has to look at all rows.
        """
        base, team = int(self._row_base[tables[0]]), self._team
        placed = self._of_places[base : base + places].view(np.uint32)
        waiting = [piece for t in tables for piece in candidates.waiting(t, self.of_table(t), team, is_all=is_all)]
        least, ties = cut_off_bits([placed, *(one.view(np.uint32) for one in waiting)], kept, team)
        low = low_places(placed, least)
        rows = [piece for t in tables
                for piece in candidates.near(t, low, least, base, self._of_places, self.of_table(t), team, is_all=is_all)]  # fmt: skip
        return rows, list_rounds([one.importance.view(np.uint32) for one in rows], rows, least, ties, team)

    def of(self, t: int, rows: Array) -> tuple[Array, Array]:
        """The importance of rows of a table now, and whether they have places."""
        found, is_kept = np.empty(len(rows), np.float32), np.empty(len(rows), bool)
        read_importance(rows, self._addresses.of_table(t), int(self._row_base[t]), self._of_places, self.of_table(t), found, is_kept)  # fmt: skip
        return found, is_kept

    def chosen(self, t: int, step: int) -> Array:
        """See :func:`chosen_of`."""
        return chosen_of(self.of_table(t), self._options, self._seed, step, t)

    def scale(self, importance: Array) -> float:
        """See :func:`scale_of`."""
        return scale_of(importance, self._options, self._team)

    def crossing(self, group: RowGroup, draw: np.random.Generator) -> float:
        """The share of the rows of a group without free places that have crossed its cut-off, by a sample."""
        sizes = [len(self._addresses.of_table(t)) for t in group.tables]
        if group.rows >= sum(sizes):
            return 0.0
        drawn = draw_rows(draw, sizes, sample_rows(self._options.deviation))
        found = []
        for t, one in zip(group.tables, drawn, strict=True):
            scale = self._sampled_scale(t, draw)
            importance, is_kept = self.of(t, one.rows)
            importance *= scale
            found.append((importance, is_kept, one.times))
        return crossing_share(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def crossings_of_job(self, job: JobPlaces, groups: Sequence[int], draw: np.random.Generator) -> list[float]:
        """As :meth:`crossing` of groups of a job, by one sample of the rows of all hosts, which call this at once."""
        sample = JobSample(job, self.of)
        for g in groups:
            group = job.tables.groups[g]
            drawn = draw_rows(draw, [job.tables.sizes[t] for t in group.tables], sample_rows(self._options.deviation))
            for t, one in zip(group.tables, drawn, strict=True):
                rows = job.tables.sizes[t]
                compared = scale_rows(rows, draw) if self._options.normalised else None
                sample.add(g, t, one, compared)
        return sample.crossing_shares()

    def _sampled_scale(self, t: int, draw: np.random.Generator) -> float:
        """As :meth:`scale`, from a sample of the table's rows."""
        if not self._options.normalised:
            return 1.0
        values, _ = self.of(t, scale_rows(len(self._addresses.of_table(t)), draw))
        return scale_of_sample(values)
