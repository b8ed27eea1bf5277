"""Run a pipeline: the runner, its options and its counters.

``DirectRunner`` means Beam's in-process runner, ``FnApiRunner``, with one thread per core. Beam 2.77's class of that name
first tries to download and start the Prism binary and falls back silently; a job must not depend on the network, so the
in-process runner is requested by name. Any other runner and all pipeline options reach Beam unchanged, after the checks of
:mod:`pipelines.runners.options`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.errors import RunnerFailed
from pipelines.runners.beam_packages import require_beam
from pipelines.runners.dataflow import translate_errors
from pipelines.runners.options import check_runner_name, parse_options
from pipelines.runners.running_job import RunningJob
from transforms.errors import HeadraceError, InputError

if TYPE_CHECKING:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineResult


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """A runner and Beam's pipeline options.

    Attributes:
        runner: The name of the runner.
        workers: Threads of ``DirectRunner``; 0 means one per core.
        flags: Beam pipeline options in command-line syntax: ``--name=value``, ``--name`` ``value`` or ``--name``.

    Raises:
        InputError: An unknown runner or option.
        ModuleNotFoundError: Beam is not installed.
    """

    runner: str = "DirectRunner"
    workers: int = 0
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.runner or self.workers < 0:
            raise InputError("a runner must have a name and 0 or more workers", value=(self.runner, self.workers))
        require_beam()
        check_runner_name(self.runner)
        if self.flags:
            parse_options(self.runner, self.flags)

    @property
    def is_in_process(self) -> bool:
        """Whether every step runs in the process that runs the job."""
        return self.runner == "DirectRunner"

    @property
    def threads(self) -> int:
        """Threads of a step: as many as workers in process, one where the runner has its own workers."""
        return (self.workers or os.cpu_count() or 1) if self.is_in_process else 1


def pipeline_options(options: RunnerOptions, *, one_step: bool = False) -> PipelineOptions:
    """Beam's options for ``options``; see :func:`run_pipeline`."""
    from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions

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
    """Build a pipeline, run it to its end, and return Beam's result with its counters.

    A job on other machines is cancelled when this process stops waiting for it. A signal's exception is raised unchanged.

    Args:
        build: Adds the steps to a pipeline.
        options: The runner.
        one_step: Whether the pipeline is one step with its own threads (:attr:`RunnerOptions.threads`), so that the
            in-process runner needs no workers that communicate by gRPC.
        job: The handle through which another thread can end the job.

    Raises:
        InputError: The runner refuses the options.
        RunnerFailed: A runner other than ``DirectRunner`` failed.
        Exception: What steps raised in this process, and the errors of
            :func:`~pipelines.runners.dataflow.translate_errors`.
    """
    import apache_beam as beam

    try:
        pipeline = beam.Pipeline(options=pipeline_options(options, one_step=one_step))
    except ValueError as error:
        raise InputError(
            "Beam has no such runner, or refuses its options", value=options.runner, allowed=str(error)
        ) from error
    build(pipeline)
    job = job or RunningJob()
    try:
        with translate_errors(options.runner):
            result = pipeline.run()
            job.record_start(result)
            try:
                result.wait_until_finish()
            except BaseException as error:  # also at a signal: the job would go on
                job.end(error)
                raise
    except HeadraceError:
        raise
    except Exception as error:
        if (interrupt := _interrupt_in(error)) is not None:
            raise interrupt from None
        if options.runner == "DirectRunner":
            raise
        raise RunnerFailed("the runner failed to finish the job", where=f"--runner {options.runner}", value=str(error),
                           next_step="see the runner's log") from error  # fmt: skip
    return result


def _interrupt_in(error: BaseException | None) -> BaseException | None:
    """The Ctrl-C or exit that ended a step in this process, which Beam wraps in an error."""
    while error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
        error = error.__cause__ or error.__context__
    return error


def counters(result: PipelineResult, namespace: str) -> dict[str, int]:
    """The counters of one namespace by name: committed values, or attempted where the runner commits none."""
    found = result.metrics().query()["counters"]
    return {
        metric.key.metric.name: int(metric.committed if metric.committed is not None else metric.attempted)
        for metric in found
        if metric.key.metric.namespace == namespace
    }
