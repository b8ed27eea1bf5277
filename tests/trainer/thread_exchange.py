"""An exchange between threads of one process, for tests of what hosts do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.processes import PATIENCE_SECS
from trainer.tables.routes.partitioned.core_threads import CoreThreads, ThreadExchange


def on_hosts(hosts: int, work: Callable[[ThreadExchange], Any]) -> list[Any]:
    """The results of ``work`` in one thread per host, by rank; its first error is raised."""
    threads = CoreThreads(hosts, patience_secs=PATIENCE_SECS)
    return threads.run(lambda rank: work(threads.exchanges[rank]))
