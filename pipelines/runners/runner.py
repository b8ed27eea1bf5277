"""How a pipeline is run: the runner, its options and its counters.

``DirectRunner`` means Beam's own in-process runner, ``FnApiRunner``, with one thread a core. Beam 2.77's class of that
name first tries to download and start the Prism binary and falls back without a word; a job must not depend on what a
network does, so the in-process runner is asked for by name. Any other runner, and every pipeline option, goes to Beam
as given, once :mod:`pipelines.runners.options` has found it to be one of Beam's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.runners.runner import PipelineResult

from pipelines.errors import RunnerFailed
from pipelines.runners.dataflow import translate_errors
from pipelines.runners.options import check_runner_name, parse_options
from pipelines.runners.running_job import RunningJob
from transforms.errors import HeadraceError, InputError


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """Which runner, and with which of Beam's pipeline options.

    ``workers``: threads of ``DirectRunner``; 0 means one a core. ``flags``: Beam pipeline options as a command line has
    them, ``--name=value``, ``--name`` ``value`` or ``--name``. Raises :class:`InputError` for a runner or an option that
    Beam does not know.
    """

    runner: str = "DirectRunner"
    workers: int = 0
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.runner or self.workers < 0:
            raise InputError("a runner needs a name and no negative number of workers",
                             value=(self.runner, self.workers))  # fmt: skip
        check_runner_name(self.runner)
        if self.flags:
            parse_options(self.runner, self.flags)

    @property
    def is_in_process(self) -> bool:
        """Whether every step runs in the process that runs the job."""
        return self.runner == "DirectRunner"

    @property
    def threads(self) -> int:
        """How many threads a step may use by itself: as many as workers in process, one where the runner has its own."""
        return (self.workers or os.cpu_count() or 1) if self.is_in_process else 1


def pipeline_options(options: RunnerOptions, *, one_step: bool = False) -> PipelineOptions:
    """Beam's options for ``options``; see :func:`run_pipeline`."""
    flags = list(options.flags)
    if options.runner == "DirectRunner":
        flags += ["--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"]
        mode, workers = ("in_memory", 1) if one_step else ("multi_threading", options.threads)
        flags += [f"--direct_running_mode={mode}", f"--direct_num_workers={workers}"]
    else:
        flags.append(f"--runner={options.runner}")
    built = PipelineOptions(flags)
    built.view_as(SetupOptions).save_main_session = False
    return built


def run_pipeline(
    build: Callable[[beam.Pipeline], None],
    options: RunnerOptions,
    *,
    one_step: bool = False,
    job: RunningJob | None = None,
) -> PipelineResult:
    """Build a pipeline with ``build``, run it to its end, and return Beam's result with its counters.

    ``one_step``: the pipeline is one step that uses :attr:`RunnerOptions.threads` by itself, so the in-process runner
    need not start workers that speak gRPC. ``job``: through which another thread can end it. A job on other machines is
    also cancelled when waiting for it is cut short. Being told to stop is raised as it came. Raises :class:`InputError` for options that the runner refuses; what
    the steps raised in this process; what :func:`~pipelines.runners.dataflow.translate_errors` makes of Dataflow's errors; and
    :class:`~pipelines.errors.RunnerFailed` when another runner gave the job up.
    """
    try:
        pipeline = beam.Pipeline(options=pipeline_options(options, one_step=one_step))
    except ValueError as error:
        raise InputError("Beam has no such runner, or refuses its options", value=options.runner,
                         allowed=str(error)) from error  # fmt: skip
    build(pipeline)
    job = job or RunningJob()
    try:
        with translate_errors(options.runner):
            result = pipeline.run()
            job.began(result)
            try:
                result.wait_until_finish()
            except BaseException as error:  # also when this process is told to stop: the job would go on by itself
                job.end(error)
                raise
    except HeadraceError:
        raise
    except Exception as error:
        if (told := _told_to_stop(error)) is not None:
            raise told from None
        if options.runner == "DirectRunner":
            raise
        raise RunnerFailed("the runner did not finish the job", where=f"--runner {options.runner}", value=str(error),
                           next_step="see the runner's log") from error  # fmt: skip
    return result


def _told_to_stop(error: BaseException | None) -> BaseException | None:
    """Ctrl-C or an exit that met this process while it was in a step: Beam makes an error of the step's of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
        error = error.__cause__ or error.__context__
    return error


def counters(result: PipelineResult, namespace: str) -> dict[str, int]:
    """The committed (where the runner commits, else attempted) counters of one namespace, by name."""
    found = result.metrics().query()["counters"]
    return {
        metric.key.metric.name: int(metric.committed if metric.committed is not None else metric.attempted)
        for metric in found
        if metric.key.metric.namespace == namespace
    }
