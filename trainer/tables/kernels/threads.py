"""Threads of an engine, and how the work of a batch is divided among them. The division changes no bit."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from transforms.arrays import Array

#: Where the events of a batch may be divided.
_GRID = 128
#: The floats for which a further thread is called: to call it takes as long as to add so many.
_FLOATS_OF_THREAD = 1 << 17


def available_threads() -> int:
    """The processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Team:
    """``threads`` threads, of which the caller is one; the others are started at the first use."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._others = ThreadPoolExecutor(threads - 1, "embedding") if threads > 1 else None

    def threads_for(self, floats: int) -> int:
        """The threads among which work on so many floats is divided: one for little work."""
        return min(self.threads, 1 + floats // _FLOATS_OF_THREAD)

    def run(self, works: Sequence[Callable[[], object]]) -> None:
        """Call all ``works``, at most one a thread, and return when all are done. Raises the error of one that failed."""
        if not works:
            return
        if len(works) == 1:
            works[0]()
            return
        first, *rest = works
        if self._others is None:
            for work in works:
                work()
            return
        running = [self._others.submit(work) for work in rest]
        try:
            first()
        finally:
            wait(running)  # none may go on after an error
        for one in running:
            one.result()


def split_events(offsets: Array, costs: Array, threads: int) -> list[tuple[int, int]]:
    """Divide the events of a batch into at most ``threads`` runs of about equal cost.

    ``offsets``: of the bags, int64 [features, events + 1]; ``costs``: of one id and of one bag of each feature.
    """
    events = offsets.shape[1] - 1
    if threads == 1:
        return [(0, events)] if events else []
    places = np.arange(_GRID + 1) * events // _GRID
    ends = costs @ (offsets[:, places] - offsets[:, :1] + places)
    cuts = places[np.searchsorted(ends, ends[-1] * np.arange(1, threads) / threads)]
    bounds = [0, *cuts.tolist(), events]
    return [(first, stop) for first, stop in itertools.pairwise(bounds) if first < stop]


def split_evenly(costs: Array, threads: int) -> list[slice]:
    """Cut a sequence of works into at most ``threads`` runs of about equal cost."""
    if not len(costs):
        return []
    if threads == 1:
        return [slice(0, len(costs))]
    ends = np.cumsum(costs)
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, threads) / threads, side="left") + 1
    bounds = [0, *np.minimum(cuts, len(costs)).tolist(), len(costs)]
    return [slice(first, stop) for first, stop in itertools.pairwise(bounds) if first < stop]
