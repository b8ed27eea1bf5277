"""Training jobs that an error holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transforms.errors import HeadraceError, NotFound

if TYPE_CHECKING:
    from headrace.screens.holds import HoldsScreen


def held(folders: Sequence[Path], *, are_named: bool) -> HoldsScreen:
    """The jobs in these folders that are held, with the reasons. ``are_named``: a folder without a job, and a damaged one, are errors."""
    from headrace.screens.holds import HoldRow, HoldsScreen
    from trainer.job.control.job_files import JobFiles
    from trainer.job.launch.holds import find_hold

    rows = []
    for folder in folders:
        try:
            hold = find_hold(JobFiles(folder))
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
