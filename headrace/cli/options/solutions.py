"""The read solution of a model over a range, pinned while a command runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from transforms.errors import InputError

if TYPE_CHECKING:
    from warehouse.solution.solution import ReadSolution
    from warehouse.warehouse import Warehouse


@contextmanager
def pinned(
    warehouse: Warehouse,
    model: str,
    version: int,
    start: datetime | None,
    end: datetime | None,
    command: str,
    table_version: int = 0,
) -> Iterator[ReadSolution]:
    """The read solution; its memos and files are pinned until the block ends.

    Version 0 is the newest. Raises :class:`InputError` for a range without events, and what
    :func:`~warehouse.matching.solve.read_solution` raises.
    """
    from warehouse.reading.pinned import pinned_solution

    with pinned_solution(
        warehouse,
        model,
        holder=f"headrace {command} on {socket.gethostname()}, process {os.getpid()}",
        version=version or None,
        start=start,
        end=end,
        table_version=table_version or None,
    ) as solution:
        if not solution.rows:
            asked = f"{start.isoformat() if start else '…'} to {end.isoformat() if end else '…'}"
            raise InputError("the range must hold events", where=f"model {model}, table {solution.table}", value=asked,
                             next_step=f"headrace table show {solution.table} lists the partitions")  # fmt: skip
        yield solution
