"""``headrace table add`` of a lake: a Delta or Iceberg table, once or for as long as the command runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.terminal.output import emit, emit_line, say
from headrace.terminal.progress import progress_bar
from headrace.terminal.quantities import span_of
from headrace.terminal.stopping import ended_by_signals
from transforms.errors import Busy, InputError, StorageError
from warehouse.errors import MissingFile

if TYPE_CHECKING:
    from headrace.screens.lakes import LakeScreen
    from warehouse.warehouse import Warehouse

#: The wait between looks of ``--follow``.
EVERY = "60s"


@dataclass(frozen=True, slots=True)
class LakeCommand:
    """The options of ``headrace table add`` that a lake has.

    Attributes:
        time_column: the column of event times.
        time_unit: its unit, if it holds integers.
        partition_by: ``hour`` or ``day``.
        keys: the columns that identify a row.
        version: the version of the lake; empty for the newest.
        follow: go on with each new version.
        every: the wait between looks; empty for :data:`EVERY`.
        invalid_text: the rule for text that is not UTF-8.
    """

    time_column: str = ""
    time_unit: str = ""
    partition_by: str = ""
    keys: tuple[str, ...] = ()
    version: str = ""
    follow: bool = False
    every: str = ""
    invalid_text: str = "refuse"

    @property
    def given(self) -> str:
        """The first given option that only a lake has, or ""."""
        options = {
            "--time-unit": self.time_unit,
            "--partition-by": self.partition_by,
            "--key": self.keys,
            "--lake-version": self.version,
            "--follow": self.follow,
            "--every": self.every,
        }
        return next((option for option, value in options.items() if value), "")


def add_lake(warehouse: Warehouse, name: str, location: str, command: LakeCommand, *, as_json: bool) -> None:
    """Add the table, or bring it to the lake's version, and print what changed; with ``follow`` again and again."""
    every_secs = span_of("--every", command.every or EVERY)
    if command.follow and command.version:
        raise InputError("--follow must go without --lake-version: it brings the newest version", where="--lake-version",
                         value=command.version, next_step="leave one of them out")  # fmt: skip
    if command.every and not command.follow:
        raise InputError("--every must go with --follow: it is the wait between looks", where="--every", value=command.every,
                         next_step="add --follow, or leave it out")  # fmt: skip
    if every_secs <= 0:
        raise InputError("the wait between looks must be longer than 0", where="--every", value=command.every)
    if not command.follow:
        emit(refresh(warehouse, name, location, command), as_json=as_json)
        return
    with ended_by_signals():
        emit_line(refresh(warehouse, name, location, command), as_json=as_json)
        while True:
            time.sleep(every_secs)
            with _patient():
                screen = refresh(warehouse, name, location, command)
                if screen.done.before != screen.done.lake.version:
                    emit_line(screen, as_json=as_json)


def refresh(warehouse: Warehouse, name: str, location: str, command: LakeCommand) -> LakeScreen:
    """Bring the table to the version of the lake, and return the screen."""
    from headrace.screens.lakes import LakeScreen
    from warehouse.lakes.open_lake import open_lake
    from warehouse.lakes.refresh import LakeOptions, refresh_lake

    options = LakeOptions(
        command.time_column, command.time_unit, command.partition_by, command.keys, command.invalid_text
    )
    snapshot = open_lake(warehouse.storage, location, command.version)
    with progress_bar(f"adding {name}", "files") as report:
        return LakeScreen(refresh_lake(warehouse, name, location, snapshot, options, progress=report))


@contextmanager
def _patient() -> Iterator[None]:
    """What may pass is reported and tried again at the next look, also a file that the lake deleted meanwhile."""
    try:
        yield
    except (StorageError, Busy, MissingFile) as error:
        say(f"tried again later: {error}")
