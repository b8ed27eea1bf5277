"""The metrics of one process: sources that give their families when a scrape asks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from transforms.metrics.families import Family

#: Gives families at the moment of a scrape, in a thread of its own.
Source = Callable[[], Iterable[Family]]


class Registry:
    """The sources of a process by name; one that is added again replaces the source of this name."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}
        self._lock = threading.Lock()

    def add(self, name: str, source: Source) -> None:
        """Add a source, or replace the one of this name."""
        with self._lock:
            self._sources[name] = source

    def families(self) -> list[Family]:
        """What all sources give now. Raises what a source raises."""
        with self._lock:
            sources = tuple(self._sources.values())
        return [family for source in sources for family in source()]
