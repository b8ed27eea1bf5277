"""The argument that names a training run: its folder, or the name of a model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.options.session import home_folder
from transforms.errors import InputError, NotFound

Run = Annotated[
    str,
    typer.Argument(help="Folder of a run, gs://bucket/path, or the name of a model: runs/MODEL-vVERSION in the home."),
]
RunVersion = Annotated[
    int, typer.Option("--version", help="The model's version. Default: the newest with a run.", show_default=False)
]
_VERSION = re.compile("v([1-9][0-9]{0,8})")


def run_folder_of(run_dir: str, model: str, version: int, home: str) -> str:
    """``--run-dir``, or the folder of a model version's run in the home. Raises :class:`InputError` for a home in a bucket."""
    return run_dir or str(Path(home_folder(home, "a run without --run-dir")) / "runs" / f"{model}-v{version}")


def run_folder(run: str, version: int, home: str) -> str:
    """The folder of a run. Raises :class:`NotFound` for a model without a run."""
    folder = run if _is_folder(run) else _folder_of_model(run, version, home)
    if version and folder == run:
        raise InputError("--version must go with the name of a model, got a folder", where="--version", value=version)
    return folder


def runs_of_home(home: str) -> tuple[Path, ...]:
    """The run folders in the home, by name."""
    runs = Path(home_folder(home, "a list of runs")) / "runs"
    return tuple(sorted(path for path in runs.glob("*") if path.is_dir()))


def _is_folder(run: str) -> bool:
    return "/" in run or Path(run).is_dir()


def _folder_of_model(model: str, version: int, home: str) -> str:
    """The run folder of a model in the home. Raises :class:`NotFound`."""
    runs = Path(home_folder(home, "the run of a model")) / "runs"
    matched = ((path, _VERSION.fullmatch(path.name.removeprefix(f"{model}-"))) for path in runs.glob(f"{model}-v*"))
    found = {int(version_of[1]): path for path, version_of in matched if version_of and path.is_dir()}
    number = version or max(found, default=0)
    if number not in found:
        raise NotFound("a run must be a folder or the name of a trained model", where=str(runs),
                       value=f"{model}-v{version}" if version else model,
                       next_step=f"headrace train {model}, or give the folder of a run")  # fmt: skip
    return str(found[number])
