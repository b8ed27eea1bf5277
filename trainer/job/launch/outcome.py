"""How a job ended: the last status of its controller, in a file for its supervisor."""

from __future__ import annotations

from trainer.checkpoints.manifest import canonical_json
from trainer.job.control.job_files import JobFiles, replace_file
from trainer.job.control.messages import JobStatus
from trainer.scheduling.transitions import FINAL

_NAME = "outcome.json"


def write_outcome(files: JobFiles, status: JobStatus) -> None:
    """Write the status of a job that ended."""
    if status.state in FINAL:
        replace_file(files.folder / _NAME, canonical_json(status.to_document()))


def read_outcome(files: JobFiles) -> JobStatus | None:
    """The status of a job that ended; None if it has not."""
    try:
        return JobStatus.read((files.folder / _NAME).read_bytes())
    except FileNotFoundError:
        return None


def remove_outcome(files: JobFiles) -> None:
    """The job goes on."""
    (files.folder / _NAME).unlink(missing_ok=True)
