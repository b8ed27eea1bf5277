"""Training jobs that an error holds, and their release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from transforms.errors import Busy, HeadraceError, NotFound

if TYPE_CHECKING:
    from headrace.screens.holds import HoldsScreen, ReleasedScreen
    from trainer.job.control.job_files import JobFiles
    from trainer.scheduling.orders import Hold

#: Finds the hold of a job; None if it is not held.
FindHold: TypeAlias = "Callable[[JobFiles], Hold | None]"


def held_of_home(home: str | Path, find: FindHold | None = None) -> HoldsScreen:
    """The held jobs of a local home, also those of runs in buckets; a job that cannot be read has its reason. ``find``: see :func:`held`."""
    from headrace.runs.run_folders import job_folders_of_home

    return held(job_folders_of_home(home), are_named=False, find=find)


def held(folders: Sequence[Path], *, are_named: bool, find: FindHold | None = None) -> HoldsScreen:
    """The jobs in these folders that are held, with the reasons.

    Args:
        folders: of jobs.
        are_named: a folder without a job, and a damaged one, are errors.
        find: finds the hold of a job; None: in its log, each time.
    """
    from headrace.screens.holds import HoldRow, HoldsScreen
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.holds import find_hold

    rows = []
    for folder in folders:
        try:
            hold = (find or find_hold)(JobFiles(folder))
        except NotFound:
            if are_named:
                raise
            continue
        except HeadraceError as error:  # a damaged run must not hide the others
            if are_named:
                raise
            rows.append(HoldRow(str(folder), "", "", error.what))
            continue
        if hold is not None:
            rows.append(HoldRow(str(folder), str(hold.error_class), hold.role, hold.reason))
    return HoldsScreen(tuple(rows))


def released(folder: Path, *, run: str, seen: str = "") -> ReleasedScreen:
    """Release the hold of the job in a folder.

    Args:
        folder: with the files of the job.
        run: the folder or the location of its run.
        seen: the key of the hold that the user has looked at; empty: whichever there is.

    Raises :class:`~trainer.errors.IllegalEvent` for a job that is not held, :class:`Busy` for one that another error holds by now, and as
    :func:`~trainer.job.launch.holds.release_hold`.
    """
    from headrace.screens.holds import HoldRow, ReleasedScreen
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.holds import release_hold

    now = held([folder], are_named=True).holds
    if seen and now and now[0].key != seen:
        raise Busy("the hold must be the one that was looked at", where=run, value=now[0].reason,
                   next_step="look at the hold again: another error holds the job by now")  # fmt: skip
    hold = release_hold(JobFiles(folder))
    return ReleasedScreen(HoldRow(run, str(hold.error_class), hold.role, hold.reason))
