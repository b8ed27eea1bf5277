"""Read a solution and keep it pinned while a job uses it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from transforms.errors import HeadraceError
from warehouse.costs.reuse import record_read
from warehouse.matching.solve import read_solution
from warehouse.models.merged_graph import MergedGraph
from warehouse.models.models import get_model, stored_inputs
from warehouse.reading.pins import Pin, heartbeat_pin, make_pin, narrow_pin, read_fingerprints, release_pin
from warehouse.solution.solution import ReadSolution
from warehouse.warehouse import Warehouse

_LOG = logging.getLogger(__name__)


@contextmanager
def pinned_solution(
    warehouse: Warehouse,
    model_name: str,
    *,
    holder: str,
    version: int | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
    table_version: int | None = None,
) -> Iterator[ReadSolution]:
    """:func:`~warehouse.matching.solve.read_solution`, pinned while the ``with`` block runs, and noted as a read of the model: what
    is read often is expected to be asked for again (:mod:`warehouse.costs.reuse`).

    Everything that the solution could load is pinned before it is read, so nothing is evicted in between; what it then
    does not load is let go. A daemon thread keeps the pin alive. When this process dies, the pin runs out by itself after
    ``pin_ttl_secs``. Raises :class:`~warehouse.errors.UnknownModel`.
    """

    def make(connection: Connection) -> Pin:
        model = get_model(connection, model_name, version)
        graph = MergedGraph(tuple(item.component for item in stored_inputs(connection, model.id)))
        return make_pin(
            connection,
            warehouse,
            model_name,
            holder,
            graph.operations.keys(),
            version=model.version,
            start=start,
            end=end,
        )

    pin = warehouse.catalog.run(make)
    try:
        solution = read_solution(
            warehouse, model_name, version=pin.model_version, start=start, end=end, table_version=table_version
        )
        warehouse.catalog.run(partial(_note_read, solution=solution, start=start, end=end, now=warehouse.clock()))
        pin = narrow_pin(warehouse, pin, read_fingerprints(solution))
        with kept_alive(warehouse, pin):
            yield solution
    finally:
        release_pin(warehouse, pin)


def _note_read(
    connection: Connection, solution: ReadSolution, start: datetime | None, end: datetime | None, now: float
) -> None:
    model = get_model(connection, solution.model, solution.model_version)
    start_at, end_at = (None if moment is None else moment.timestamp() for moment in (start, end))
    record_read(connection, model.id, solution.table, start_at, end_at, solution.rows, now)


@contextmanager
def kept_alive(warehouse: Warehouse, pin: Pin) -> Iterator[None]:
    """A daemon thread sends the pin's heartbeats, three in the time that it holds, while the block runs."""
    ended = threading.Event()
    every_secs = (pin.expires_at - pin.created_at) / 3
    thread = threading.Thread(target=_beat, args=(warehouse, pin, every_secs, ended), name="pin", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _beat(warehouse: Warehouse, pin: Pin, every_secs: float, ended: threading.Event) -> None:
    while not ended.wait(every_secs):
        try:
            if not heartbeat_pin(warehouse, pin):
                _LOG.warning("the pin of %s had run out; what was evicted meanwhile is computed", pin.holder)
        except HeadraceError as error:
            # The catalog may be busy or out of reach for a while; the next beat comes before the pin runs out.
            _LOG.warning("a heartbeat of the pin of %s failed, and is tried again: %s", pin.holder, error)
