"""The warehouse that a loader reads: opened by each process for itself, and pinned while it reads."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from headrace.reading import opened_home, parsed_name
from trainer.run.reading.stream import ReadFragment
from transforms.errors import InputError
from transforms.time_range import Moment, moment
from warehouse.solution.solution import ReadSolution


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """A pinned read of a model.

    Attributes:
        solution: its partitions and fragments.
        read: reads a fragment with the stored event of each row; memos are loaded, the rest is computed.
        read_labels: reads the labels of all stored events of a fragment.
    """

    solution: ReadSolution
    read: ReadFragment
    read_labels: ReadFragment


@dataclass(frozen=True, slots=True)
class FeatureSource:
    """A range of a model's inputs. It holds nothing open, so it can be sent to other processes.

    Attributes:
        home, catalog_url: the warehouse.
        model, version: the model; a version of None is the newest.
        start, end: the partitions that start in ``[start, end)``; None is no bound.
    """

    home: str
    catalog_url: str
    model: str
    version: int | None
    start: datetime | None
    end: datetime | None

    @classmethod
    def of(cls, model: str, start: Moment | None, end: Moment | None, home: str, catalog_url: str) -> FeatureSource:
        """The source of the arguments that loaders have. Raises :class:`InputError`."""
        name, version = parsed_name(model)
        first, last = (None if at is None else moment(at) for at in (start, end))
        return cls(home if "://" in home else os.path.abspath(home), catalog_url, name, version, first, last)

    @contextmanager
    def opened(self, table_version: int | None) -> Iterator[OpenedSource]:
        """The data at a version of the table, or at the newest; pinned until the block ends.

        Raises :class:`InputError` for a range without partitions, and :class:`~transforms.errors.NotFound` for an unknown model.
        """
        from warehouse.memos.memos import damage_recorder
        from warehouse.reading.pinned import pinned_solution
        from warehouse.reading.reader import read_fragment, read_labels

        holder = f"headrace.loaders on {socket.gethostname()}, process {os.getpid()}"
        with (
            opened_home(self.home, self.catalog_url) as warehouse,
            pinned_solution(
                warehouse,
                self.model,
                holder=holder,
                version=self.version,
                start=self.start,
                end=self.end,
                table_version=table_version,
            ) as solution,
        ):
            if not solution.partitions:
                asked = (
                    f"{self.start.isoformat() if self.start else '…'} to {self.end.isoformat() if self.end else '…'}"
                )
                raise InputError("the range must hold partitions", where=f"model {self.model}, table {solution.table}", value=asked,
                                 next_step=f"headrace table show {solution.table} lists the partitions")  # fmt: skip
            record = damage_recorder(warehouse)
            storage = warehouse.storage
            yield OpenedSource(
                solution,
                partial(read_fragment, storage, solution, rows=True, on_damage=record),
                partial(read_labels, storage, solution),
            )
