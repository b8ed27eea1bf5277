"""Where ``headrace train`` copies the metric history of its run, for other tools."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

from headrace.cli.options.option_groups import Mark
from headrace.terminal.output import say
from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.tracking.event_folder import EventFolder
    from headrace.tracking.run_tracker import RunTracker


@dataclass(frozen=True, slots=True)
class TrackingOptions:
    """Copies of the metric history."""

    PANEL: ClassVar[str] = "Tracking"

    tensorboard: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Write the metric history as event files of TensorBoard, in a folder here with the name of the run: docs/runs.md.",
            show_default=False,
        ),
        Mark.PATH,
    ] = ""


@contextmanager
def open_tracking(options: TrackingOptions, run_dir: str) -> Iterator[RunTracker]:
    """Copies the history of the run in ``run_dir``; to nowhere without an option.

    Raises :class:`InputError` for a folder in a bucket, and :class:`~transforms.errors.StorageError` for one that cannot be written, before training.
    """
    from headrace.tracking.run_tracker import Destination, RunTracker

    destinations: list[Destination] = []
    if options.tensorboard:
        destinations.append(event_folder(options.tensorboard, run_dir, "--tensorboard"))
    with RunTracker(run_dir, destinations, say) as tracker:
        tracker.look()
        yield tracker


def event_folder(folder: str, run_dir: str, option: str) -> EventFolder:
    """The event files of a run, in the folder of its name in ``folder``. Raises :class:`InputError` for a bucket."""
    from headrace.tracking.event_folder import EventFolder

    if "://" in folder:
        raise InputError("event files must be in a local folder", where=option, value=folder, next_step="name a folder on this machine")  # fmt: skip
    return EventFolder(Path(folder) / PurePath(run_dir.partition("?")[0].rstrip("/")).name, time.time)
