"""How a pipeline is run: the runner, its options and its counters.

``DirectRunner`` means Beam's own in-process runner, ``FnApiRunner``, with one thread a core. Beam 2.77's class of that
name first tries to download and start the Prism binary and falls back without a word; a job must not depend on what a
network does, so the in-process runner is asked for by name. Any other runner name and option goes to Beam as given.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, SetupOptions
from apache_beam.runners.runner import PipelineResult, PipelineState

from pipelines.dataflow import explained
from transforms.errors import InputError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """``workers`` 0 means one a core; ``flags`` are Beam pipeline options, ``--name=value`` or ``--name`` each."""

    runner: str = "DirectRunner"
    workers: int = 0
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.runner or self.workers < 0:
            raise InputError("a runner needs a name and no negative number of workers",
                             value=(self.runner, self.workers))  # fmt: skip
        for flag in self.flags:
            if not flag.startswith("--") or flag == "--":
                raise InputError("not a Beam pipeline option", value=flag, allowed="--name=value, or --name")

    @property
    def threads(self) -> int:
        """How many threads a step may use by itself: as many as workers in process, one where the runner has its own."""
        return (self.workers or os.cpu_count() or 1) if self.runner == "DirectRunner" else 1


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
    build: Callable[[beam.Pipeline], None], options: RunnerOptions, *, one_step: bool = False
) -> PipelineResult:
    """Build a pipeline with ``build``, run it to its end, and return Beam's result with its counters.

    ``one_step``: the pipeline is one step that uses :attr:`RunnerOptions.threads` by itself, so the in-process runner
    need not start workers that speak gRPC. A job that a service runs is cancelled when waiting for it is cut short.
    Raises :class:`InputError` for a runner that Beam does not know.
    """
    try:
        pipeline = beam.Pipeline(options=pipeline_options(options, one_step=one_step))
    except ValueError as error:
        raise InputError("Beam has no such runner, or refuses its options", value=options.runner,
                         allowed=str(error)) from error  # fmt: skip
    build(pipeline)
    with explained(options.runner):
        result = pipeline.run()
        try:
            result.wait_until_finish()
        except BaseException as error:  # also when this process is told to stop: a service would go on by itself
            _cancel(result, error)
            raise
    return result


def _cancel(result: PipelineResult, why: BaseException) -> None:
    """Ask whoever runs the job to end it. If that fails, ``why`` says so too: it is what the caller hears of."""
    try:
        if not PipelineState.is_terminal(result.state):
            _LOG.warning("cancelling the job: %s", type(why).__name__)
            result.cancel()
    except Exception as error:
        why.add_note(f"the job may go on: it could not be cancelled: {error}")
        _LOG.warning("the job may go on: it could not be cancelled: %s", error)


def counters(result: PipelineResult, namespace: str) -> dict[str, int]:
    """The committed (where the runner commits, else attempted) counters of one namespace, by name."""
    found = result.metrics().query()["counters"]
    return {
        metric.key.metric.name: int(metric.committed if metric.committed is not None else metric.attempted)
        for metric in found
        if metric.key.metric.namespace == namespace
    }
