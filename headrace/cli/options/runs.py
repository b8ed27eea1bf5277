"""The argument that names a training run: its folder or bucket, or the name of a model; and the folder of its job."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options.completions import model_names, run_names
from headrace.cli.options.session import home_folder, run_location
from headrace.runs.run_folders import folder_of_model, is_folder
from transforms.errors import InputError

Run = Annotated[
    str,
    typer.Argument(
        autocompletion=run_names,
        help="Folder of a run, gs://bucket/path, or the name of a model: runs/MODEL-vVERSION in the home.",
    ),
]
RunVersion = Annotated[
    int, typer.Option("--version", help="The model's version. Default: the newest with a run.", show_default=False)
]
RunDir = Annotated[
    str,
    typer.Option(
        "--run-dir",
        help="Folder of the model's run, or gs://bucket/path. Default: runs/MODEL-vVERSION in the home.",
        show_default=False,
    ),
]
ModelOrRun = Annotated[
    str,
    typer.Argument(
        autocompletion=model_names, help="Name of a submitted model, or the folder MODEL-vVERSION of its run."
    ),
]
ScoredVersion = Annotated[
    int, typer.Option("--version", help="The model's version. Default: the newest.", show_default=False)
]
ScoredFrom = Annotated[str, typer.Option("--start", help="Score partitions from this time on (ISO 8601, UTC).")]
ScoredUntil = Annotated[str, typer.Option("--end", help="Score partitions that start before this time.")]
_RUN_NAME = re.compile("(.+)-v([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A model version with the folder of its run; version 0: the newest, an empty folder: the default one."""

    model: str
    version: int
    run_dir: str


def named_run(model: str, version: int, run_dir: str = "") -> NamedRun:
    """What a command names: a model, or the folder of a run, whose name says the model and the version.

    Raises :class:`InputError` for a folder with another name, and for one beside ``--run-dir`` or ``--version``.
    """
    if "/" not in model and not (Path(model) / "checkpoints").is_dir():
        return NamedRun(model, version, run_dir)
    if run_dir or version:
        raise InputError("--run-dir and --version must go with the name of a model, got a folder", where="MODEL", value=model,
                         next_step="leave them out, or give the model's name")  # fmt: skip
    found = _RUN_NAME.fullmatch(model.rstrip("/").rpartition("/")[2])
    if found is None:
        raise InputError("the folder of a run must be named by its model and version", where="MODEL", value=model,
                         allowed="MODEL-vVERSION", next_step=f"give the model's name and --run-dir {model}")  # fmt: skip
    return NamedRun(found[1], int(found[2]), model)


def run_folder_of(run_dir: str, model: str, version: int, home: str) -> str:
    """``--run-dir``, or the folder of a model version's run in the home. Raises :class:`InputError` for a home in a bucket."""
    if run_dir:
        return run_location(run_dir)
    return str(Path(home_folder(home, "a run without --run-dir")) / "runs" / f"{model}-v{version}")


def run_folder(run: str, version: int, home: str, run_dir: str = "") -> str:
    """The folder of a run, or its location in a bucket; ``run_dir``: that of the model's run, if it is not in the home.

    Raises :class:`NotFound` for a model without a run.
    """
    if run_dir:
        return run_location(named_run(run, version, run_dir).run_dir)
    if not is_folder(run):
        return folder_of_model(home_folder(home, "the run of a model"), run, version)
    folder = run_location(run)
    if version:
        raise InputError("--version must go with the name of a model, got a folder", where="--version", value=version)
    return folder


def job_folder(run_dir: str, home: str, job_dir: str = "") -> Path:
    """The folder with the files of a run's job: the run directory; for a run in a bucket ``--job-dir``, or its default in the home.

    Raises :class:`InputError` for a home in a bucket without ``--job-dir``, and for a local run with ``--job-dir``.
    """
    from trainer.job.launch.job_folders import BUCKET_JOBS, job_folder_name
    from warehouse.storage.locations import is_gcs

    if not is_gcs(run_dir):
        if job_dir:
            raise InputError("--job-dir must go with a run directory in a bucket", where="--job-dir", value=job_dir,
                             allowed="--run-dir gs://bucket/path", next_step="leave --job-dir out")  # fmt: skip
        return Path(run_dir)
    if job_dir:
        return Path(job_dir)
    local = home_folder(home, "a job of a run in a bucket, without --job-dir")
    return Path(local) / BUCKET_JOBS / job_folder_name(run_dir)
