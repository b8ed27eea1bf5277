"""Open the checkpoints of a run directory: a local folder, or ``gs://bucket/path``."""

from __future__ import annotations

from pathlib import Path

from trainer.checkpoints.local_run import LocalRun
from trainer.checkpoints.run_files import CHECKPOINTS, RunFiles
from warehouse.storage.locations import is_gcs


def open_run(run_dir: str | Path) -> RunFiles:
    """The files of a run's checkpoints."""
    if isinstance(run_dir, str) and is_gcs(run_dir):
        from trainer.checkpoints.bucket_run import BucketRun  # the client is loaded only for buckets

        return BucketRun(run_dir)
    return LocalRun(Path(run_dir) / CHECKPOINTS)
