"""The checkpoints of a training run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from transforms.errors import NotFound

if TYPE_CHECKING:
    from headrace.screens.checkpoints import CheckpointScreen, CheckpointsScreen, ComparisonScreen
    from trainer.checkpoints.inspection import CommitDescription
    from trainer.checkpoints.run_files import RunFiles


def opened_run(folder: str) -> RunFiles:
    """The files of a run. Raises :class:`NotFound` for a folder without checkpoints."""
    from trainer.checkpoints.open_run import open_run
    from trainer.checkpoints.run_files import newest_first

    files = open_run(folder)
    if not newest_first(files):
        raise NotFound("the run directory must hold a checkpoint", where=folder, next_step="train first")
    return files


def existing_epochs(files: RunFiles, folder: str, epochs: int) -> int:
    """The number of epochs of a checkpoint. Raises :class:`NotFound`."""
    from trainer.checkpoints.run_files import epochs_of, newest_first

    known = sorted(map(epochs_of, newest_first(files)))
    if epochs not in known:
        raise NotFound("a run must have the checkpoint of this number of epochs", where=folder, value=epochs,
                       allowed=", ".join(map(str, known)))  # fmt: skip
    return epochs


def listed(folder: str) -> CheckpointsScreen:
    """The checkpoints of a run, newest first; arrays are not read."""
    from headrace.screens.checkpoints import CheckpointsScreen
    from trainer.checkpoints.inspection import list_commits

    return CheckpointsScreen(folder, list_commits(opened_run(folder), time.time()))


def shown(folder: str, epochs: int | None, tell: Callable[[str], None]) -> CheckpointScreen:
    """What a checkpoint holds; None: the newest with intact manifests, and ``tell`` is given each that is skipped.

    Raises :class:`~trainer.errors.TornCheckpoint`, and :class:`NotFound` for an unknown number of epochs.
    """
    from headrace.screens.checkpoints import CheckpointScreen
    from trainer.checkpoints.inspection import describe_commit

    files = opened_run(folder)
    if epochs is None:
        found = _newest(files, folder, tell)
    else:
        found = describe_commit(files, existing_epochs(files, folder, epochs))
    return CheckpointScreen(folder, found, _calibration_texts(found))


def compared(folder: str, before: int, after: int) -> ComparisonScreen:
    """Two checkpoints of a run, both read and verified."""
    from headrace.screens.checkpoints import ComparisonScreen
    from trainer.checkpoints.inspection import compare_commits

    files = opened_run(folder)
    epochs = [existing_epochs(files, folder, one) for one in (before, after)]
    return ComparisonScreen(folder, compare_commits(files, *epochs))


def _newest(files: RunFiles, folder: str, tell: Callable[[str], None]) -> CommitDescription:
    from trainer.checkpoints.inspection import describe_commit
    from trainer.checkpoints.run_files import epochs_of, newest_first
    from trainer.errors import TornCheckpoint

    for name in newest_first(files):
        try:
            return describe_commit(files, epochs_of(name))
        except TornCheckpoint as error:
            tell(f"a checkpoint was skipped: {name}: {error.what} ({error.where})")
    raise TornCheckpoint("a run must have an intact checkpoint", where=folder,
                         next_step=f"headrace ckpt verify {folder} lists what is damaged")  # fmt: skip


def _calibration_texts(description: CommitDescription) -> tuple[str, ...]:
    """The map of each label's predictions in words. Raises :class:`TornCheckpoint` for an invalid one."""
    from trainer.model.calibration import Calibration
    from trainer.options.document_field import DocumentField

    found = (
        (name, Calibration.read(DocumentField(one, "calibrations"))) for name, one in description.calibrations.items()
    )
    return tuple(f"{name}, {one.text()}" if name else one.text() for name, one in found)
