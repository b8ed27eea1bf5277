"""Build a read solution and keep it pinned while a job uses it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from transforms.errors import HeadraceError
from warehouse.costs.reuse import ReadCosts, record_read
from warehouse.matching.solve import priced_solution
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
    """:func:`~warehouse.matching.solve.read_solution`, pinned while the ``with`` block runs.

    It is recorded as a read of the model, for expected requests (:mod:`warehouse.costs.reuse`). All components that the
    solution could load are pinned before it is built, so that no memo is evicted in between; those that it does not load are
    released then. A daemon thread renews the pin. If the process ends, the pin expires after
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
        solution, costs = priced_solution(
            warehouse, model_name, version=pin.model_version, start=start, end=end, table_version=table_version
        )
        warehouse.catalog.run(
            partial(_note_read, solution=solution, costs=costs, start=start, end=end, now=warehouse.clock())
        )
        pin = narrow_pin(warehouse, pin, read_fingerprints(solution))
        with kept_alive(warehouse, pin):
            yield solution
    finally:
        release_pin(warehouse, pin)


def _note_read(
    connection: Connection,
    solution: ReadSolution,
    costs: ReadCosts,
    start: datetime | None,
    end: datetime | None,
    now: float,
) -> None:
    model = get_model(connection, solution.model, solution.model_version)
    start_at, end_at = (None if moment is None else moment.timestamp() for moment in (start, end))
    record_read(connection, model.id, solution.table, start_at, end_at, solution.rows, now, costs)


@contextmanager
def kept_alive(warehouse: Warehouse, pin: Pin) -> Iterator[None]:
    """Renew the pin from a daemon thread while the block runs, three times per lifetime of the pin."""
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
                _LOG.warning("the pin of %s had expired; memos that were evicted meanwhile are computed", pin.holder)
        except HeadraceError as error:
            # The catalog may be busy or unreachable for a while; the next heartbeat is before the pin expires.
            _LOG.warning("a heartbeat of the pin of %s failed and will be repeated: %s", pin.holder, error)
