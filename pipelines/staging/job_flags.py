"""Options that install Headrace on Dataflow's workers: packed once per run, uploaded for every job.

Workers start from Beam's image. They install the pinned requirements and then this version of Headrace as a wheel
(``--requirements_file``, ``--extra_package``); the submitting program's session is not pickled. With
``--sdk_container_image`` everything is in the image, and nothing is packed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.runners.dataflow import DataflowOptions, check_buckets, dataflow_options, default_flags, job_flags
from pipelines.runners.options import is_dataflow
from pipelines.runners.remote import require_runnable
from pipelines.runners.runner import RunnerOptions
from pipelines.staging.own_wheel import own_metadata, source_folder, write_wheel
from pipelines.staging.requirements import download_wheels, pinned_requirements
from transforms.errors import InputError


@contextmanager
def prepare_options(options: RunnerOptions, home: str) -> Iterator[RunnerOptions]:
    """Check and complete the options of jobs over ``home``; files that they name are removed at the end.

    Only Dataflow's differ from ``options``. Raises :class:`InputError` and :class:`~transforms.errors.StorageError` before
    anything is uploaded.
    """
    require_runnable(options, home)
    if not is_dataflow(options.runner):
        yield options
        return
    given = dataflow_options(options.flags)
    check_buckets(given, home)
    with TemporaryDirectory(prefix="headrace-package-") as folder:
        flags = (*default_flags(given), *package_flags(given, Path(folder)))
        yield replace(options, flags=(*flags, *options.flags))


def package_flags(given: DataflowOptions, folder: Path) -> tuple[str, ...]:
    """Write the packages of workers into ``folder``; Beam's options for them, none with an image.

    A given requirements file is used as it is, with its pins.
    """
    if given.image:
        return ()
    source = source_folder()
    metadata = own_metadata(source)
    package = f"--extra_package={write_wheel(folder, source, metadata)}"
    if given.requirements_file:
        return (package,)
    pins = folder / "requirements.txt"
    pins.write_text("".join(f"{pin}\n" for pin in pinned_requirements(metadata.requirements)), encoding="utf-8")
    flags = (package, f"--requirements_file={pins}")
    if not given.wheels_travel:
        return flags
    (folder / "wheels").mkdir()
    return (*flags, *(f"--files_to_stage={wheel}" for wheel in download_wheels(pins, folder / "wheels")))


def job_options(options: RunnerOptions, worker: str, job: str) -> RunnerOptions:
    """The options of one job of ``worker``: on Dataflow, with a name and labels."""
    if not is_dataflow(options.runner):
        return options
    return replace(options, flags=(*job_flags(dataflow_options(options.flags), worker, job), *options.flags))


def template_location(options: RunnerOptions) -> str:
    """The path of the job template; empty for a job to run."""
    return dataflow_options(options.flags).template_location if is_dataflow(options.runner) else ""


def refuse_template(options: RunnerOptions) -> None:
    """Raise :class:`InputError` if these options write a template."""
    if place := template_location(options):
        raise InputError("--template_location must not be given for a job to run", where="--template_location", value=place,
                         next_step="call headrace.pipelines.worker.template.write_template")  # fmt: skip
