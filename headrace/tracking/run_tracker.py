"""Copies the metric history of a run to other tools, after each commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.run_files import epochs_of, newest_first
from trainer.errors import TornCheckpoint
from trainer.run.history.history_file import read_history
from trainer.run.history.run_history import RunHistory
from transforms.errors import HeadraceError


class Destination(Protocol):
    """Where points of a history go."""

    @property
    def place(self) -> str:
        """The folder or the address, for people."""

    def add(self, history: RunHistory) -> int:
        """Add the points that are not there yet, and return their number. Raises :class:`HeadraceError`."""

    def close(self) -> None:
        """No more points follow."""


class RunTracker:
    """Copies the history of the run in ``folder``. Training goes on without a destination that fails: the next commit tries it again.

    Args:
        tell: is called with the first problem of each destination.
    """

    def __init__(self, folder: str, destinations: Sequence[Destination], tell: Callable[[str], None]) -> None:
        self._folder, self._destinations, self._tell = folder, destinations, tell
        self._problems: dict[str, HeadraceError] = {}
        self._seen: int | None = None

    def look(self) -> None:
        """Copy what the newest commit has."""
        if not self._destinations:
            return
        newest = next(iter(newest_first(open_run(self._folder))), None)
        if newest is None or (epochs_of(newest) == self._seen and not self._problems):
            return
        try:
            history = read_history(open_run(self._folder), epochs_of(newest))
        except TornCheckpoint as error:  # a newer commit may have replaced it
            self._note("", error)
            return
        self._problems.pop("", None)
        self._seen = epochs_of(newest)
        for one in self._destinations if history is not None else ():
            try:
                one.add(history)  # type: ignore[arg-type]
            except HeadraceError as error:
                self._note(one.place, error)
            else:
                self._problems.pop(one.place, None)

    def check(self) -> None:
        """Raise the error of a destination that lacks points."""
        for error in self._problems.values():
            self._tell(
                "training is done and committed, but a copy of its history lacks points: the same command adds them"
            )
            raise error

    def _note(self, place: str, error: HeadraceError) -> None:
        if place not in self._problems:
            self._tell(f"points of the history are not copied yet: {error.what}: {error.where}")
        self._problems[place] = error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._destinations:
            one.close()
