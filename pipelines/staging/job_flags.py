"""How Headrace gets to machines that do not have it: packed once, and sent along with every job of a run.

Remote workers start from Beam's image. They install the pinned requirements and then this very Headrace, as a wheel
(``--requirements_file``, ``--extra_package``); no session of the submitting program is pickled. With
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
    """The options with which jobs over ``home`` are run; what they name is removed at the end.

    Only Dataflow's differ from ``options``. Raises :class:`InputError` and
    :class:`~transforms.errors.StorageError` for what cannot work, before anything is sent.
    """
    require_runnable(options, home)
    if not is_dataflow(options.runner):
        yield options
        return
    asked = dataflow_options(options.flags)
    check_buckets(asked, home)
    with TemporaryDirectory(prefix="headrace-package-") as folder:
        flags = (*default_flags(asked), *package_flags(asked, Path(folder)))
        yield replace(options, flags=(*flags, *options.flags))


def package_flags(asked: DataflowOptions, folder: Path) -> tuple[str, ...]:
    """Write into ``folder`` what workers install, and say so in Beam's options; nothing for an image that has it all.

    A requirements file that was given is kept: it is then on it to pin what workers get.
    """
    if asked.image:
        return ()
    source = source_folder()
    metadata = own_metadata(source)
    package = f"--extra_package={write_wheel(folder, source, metadata)}"
    if asked.requirements_file:
        return (package,)
    pins = folder / "requirements.txt"
    pins.write_text("".join(f"{pin}\n" for pin in pinned_requirements(metadata.requirements)), encoding="utf-8")
    flags = (package, f"--requirements_file={pins}")
    if not asked.wheels_travel:
        return flags
    (folder / "wheels").mkdir()
    return (*flags, *(f"--files_to_stage={wheel}" for wheel in download_wheels(pins, folder / "wheels")))


def job_options(options: RunnerOptions, worker: str, job: str) -> RunnerOptions:
    """The options of one job of ``worker``'s: on Dataflow, a name and labels."""
    if not is_dataflow(options.runner):
        return options
    return replace(options, flags=(*job_flags(dataflow_options(options.flags), worker, job), *options.flags))


def template_location(options: RunnerOptions) -> str:
    """Where a job is to be written instead of being run; empty when it is to run."""
    return dataflow_options(options.flags).template_location if is_dataflow(options.runner) else ""


def refuse_template(options: RunnerOptions) -> None:
    """Raise :class:`InputError` if these options would write a template where a job is to run."""
    if place := template_location(options):
        raise InputError("a template runs nothing", where="--template_location", value=place,
                         next_step="call pipelines.worker.template.write_template")  # fmt: skip
