from __future__ import annotations

import pytest
from apache_beam.runners.runner import PipelineResult, PipelineState

from pipelines.runners.running_job import RunningJob


class Job(PipelineResult):  # type: ignore[misc]
    """A job that counts how often it is cancelled, and may refuse."""

    def __init__(self, state: str = PipelineState.RUNNING, refusal: str = "") -> None:
        super().__init__(state)
        self.refusal, self.cancelled = refusal, 0

    def cancel(self) -> None:
        self.cancelled += 1
        if self.refusal:
            raise OSError(self.refusal)


def test_a_job_is_ended_from_the_moment_it_has_begun() -> None:
    running, job = RunningJob(), Job()
    running.record_start(job)
    assert job.cancelled == 0
    running.end(KeyboardInterrupt())
    assert job.cancelled == 1


def test_a_job_that_was_to_be_ended_before_it_began_is_ended_as_it_begins() -> None:
    running, job = RunningJob(), Job()
    running.end(KeyboardInterrupt())
    running.record_start(job)
    assert job.cancelled == 1


@pytest.mark.parametrize("state", [PipelineState.DONE, PipelineState.FAILED, PipelineState.CANCELLED])
def test_what_has_ended_is_left_alone(state: str) -> None:
    running, job = RunningJob(), Job(state)
    running.record_start(job)
    running.end(KeyboardInterrupt())
    assert job.cancelled == 0


def test_the_reason_mentions_that_the_job_may_continue() -> None:
    running, why = RunningJob(), ValueError("enough")
    running.record_start(Job(refusal="nobody answers"))
    running.end(why)
    assert why.__notes__ == ["the job may still run: it could not be cancelled: nobody answers"]
