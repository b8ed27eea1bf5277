"""Threads in a step: every element is processed, outputs are in order, failures fail the bundle."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import ClassVar

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from pipelines.runners.bundle_threads import BundleThreads
from pipelines.runners.runner import RunnerOptions, pipeline_options, run_pipeline
from tests.support.processes import PATIENCE_SECS

MEET = threading.Barrier(2, timeout=PATIENCE_SECS)


class Doubled(BundleThreads):
    def work(self, element: int) -> int:
        if element < 0:
            raise ValueError(f"negative: {element}")
        if self._threads > 1 and element in (0, 1):
            MEET.wait()  # only two threads at once get past this
        return 2 * element

    def emit(self, result: int) -> Iterable[int]:
        return [result, result + 1]


@pytest.mark.parametrize("threads", [1, 2])
def test_every_element_is_worked_on_in_order(threads: int) -> None:
    def build(pipeline: beam.Pipeline) -> None:
        doubled = pipeline | beam.Create(range(50), reshuffle=False) | beam.ParDo(Doubled(threads))
        assert_that(doubled, equal_to([n for element in range(50) for n in (2 * element, 2 * element + 1)]))

    run_pipeline(build, RunnerOptions(), one_step=True)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_work_raises_fails_the_job(threads: int) -> None:
    def build(pipeline: beam.Pipeline) -> None:
        _ = pipeline | beam.Create([5, -7, 9], reshuffle=False) | beam.ParDo(Doubled(threads))

    with pytest.raises(Exception, match="negative: -7"):
        run_pipeline(build, RunnerOptions(), one_step=True)


class Waits(BundleThreads):
    """The first element raises once every thread is at an element."""

    begun: ClassVar[list[int]] = []
    meet: ClassVar[threading.Barrier] = threading.Barrier(2, timeout=PATIENCE_SECS)

    def work(self, element: int) -> int:
        Waits.begun.append(element)
        if element < 2:
            Waits.meet.wait()
        if element == 0:
            raise SystemExit(143)
        time.sleep(0.2)
        return element

    def emit(self, result: int) -> Iterable[int]:
        return [result]


def test_no_element_starts_after_an_error() -> None:
    def build(pipeline: beam.Pipeline) -> None:
        _ = pipeline | beam.Create(range(1000), reshuffle=False) | beam.ParDo(Waits(2))

    with pytest.raises(SystemExit) as told:
        run_pipeline(build, RunnerOptions(), one_step=True)
    assert told.value.code == 143, "as it came, and no error of the step's"
    assert len(Waits.begun) < 1000


def test_the_runner_has_threads_or_workers_but_not_both() -> None:
    assert RunnerOptions(workers=3).threads == 3
    assert RunnerOptions("FlinkRunner").threads == 1
    one_step = pipeline_options(RunnerOptions(workers=3), one_step=True).get_all_options()
    assert (one_step["direct_running_mode"], one_step["direct_num_workers"]) == ("in_memory", 1)
    several = pipeline_options(RunnerOptions(workers=3)).get_all_options()
    assert (several["direct_running_mode"], several["direct_num_workers"]) == ("multi_threading", 3)
