"""The folders of runs, and of their jobs, in a local home."""

from __future__ import annotations

import re
from pathlib import Path

from trainer.job.launch.job_folders import BUCKET_JOBS
from transforms.errors import NotFound

#: The folder of runs in a local home.
RUNS = "runs"
_VERSION = re.compile("v([1-9][0-9]{0,8})")


def is_folder(run: str) -> bool:
    """Whether a text names the folder of a run, not a model."""
    return "/" in run or Path(run).is_dir()


def folder_of_model(home: str, model: str, version: int = 0) -> str:
    """The run folder of a model in a local home; ``version`` 0: the newest one with a run. Raises :class:`NotFound`."""
    runs = Path(home) / RUNS
    matched = ((path, _VERSION.fullmatch(path.name.removeprefix(f"{model}-"))) for path in runs.glob(f"{model}-v*"))
    found = {int(version_of[1]): path for path, version_of in matched if version_of and path.is_dir()}
    number = version or max(found, default=0)
    if number not in found:
        raise NotFound("a run must be a folder or the name of a trained model", where=str(runs),
                       value=f"{model}-v{version}" if version else model,
                       next_step=f"headrace train {model}, or give the folder of a run")  # fmt: skip
    return str(found[number])


def folders_of_home(home: str | Path) -> tuple[Path, ...]:
    """The folders of the runs in a local home, by name."""
    return tuple(path for path in sorted((Path(home) / RUNS).glob("*")) if path.is_dir() and not path.name.startswith("."))  # fmt: skip


def job_folders_of_home(home: str | Path) -> tuple[Path, ...]:
    """The folders of a local home in which jobs may be: local runs, then jobs of runs in buckets, each by name."""
    places = (Path(home) / name for name in (RUNS, BUCKET_JOBS))
    return tuple(path for place in places for path in sorted(place.glob("*")) if path.is_dir())
