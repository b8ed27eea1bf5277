from __future__ import annotations

import pytest

from pipelines.worker.progress import WorkMeter, WorkProgress


def test_there_is_no_estimate_before_the_first_result() -> None:
    meter = WorkMeter()
    assert meter.progress == WorkProgress()
    meter.record_lease(tasks=10, work_secs=20.0, queued=5, now=100.0)
    assert meter.progress == WorkProgress(tasks_total=15)


def test_the_rest_takes_as_long_as_what_was_done_by_its_estimate() -> None:
    meter = WorkMeter()
    meter.record_lease(tasks=10, work_secs=20_000.0, queued=5, now=100.0)
    meter.record_fragment(tasks=4, work_secs=8_000.0, rows=50, raw_bytes=700, now=4_100.0)
    # 8,000 estimated seconds took 4,000; 12,000 are leased, and 5 queued tasks of 2,000 each.
    assert meter.progress == WorkProgress(4, 15, 1, 50, 700, pytest.approx(11_000.0, rel=0.01))
    meter.record_fragment(tasks=6, work_secs=12_000.0, rows=50, raw_bytes=700, now=10_100.0)
    assert meter.progress == WorkProgress(10, 15, 2, 100, 1400, pytest.approx(5_000.0, rel=0.01))


def test_the_start_of_a_job_is_not_extrapolated_from_one_small_fragment() -> None:
    meter = WorkMeter()
    meter.record_lease(tasks=101, work_secs=1_000.01, queued=0, now=0.0)
    meter.record_fragment(tasks=1, work_secs=0.01, rows=1, raw_bytes=1, now=3.0)
    # At 300 seconds per estimated second, which the start of the job makes, it would be three and a half days.
    assert meter.progress.left_secs is not None
    assert 1_000 < meter.progress.left_secs < 5_000


@pytest.mark.parametrize("pace", [0.1, 1.0, 20.0])
def test_the_estimate_approaches_the_measured_pace(pace: float) -> None:
    meter = WorkMeter()
    meter.record_lease(tasks=1_000, work_secs=1_000.0, queued=0, now=0.0)
    errors = []
    for done in range(1, 1_000):
        meter.record_fragment(tasks=1, work_secs=1.0, rows=1, raw_bytes=1, now=3.0 + pace * done)
        assert meter.progress.left_secs is not None
        errors.append(abs(meter.progress.left_secs - (1_000 - done) * pace) / (1_000 * pace))
    assert max(errors[900:]) < 0.05
    assert errors[900] <= errors[100] <= errors[0] + 0.05


def test_waiting_between_jobs_is_no_work() -> None:
    meter = WorkMeter()
    meter.record_lease(tasks=1, work_secs=2.0, queued=1, now=0.0)
    meter.record_fragment(tasks=1, work_secs=2.0, rows=1, raw_bytes=1, now=2.0)
    meter.record_job_end(now=2.0)
    meter.record_lease(tasks=1, work_secs=2.0, queued=0, now=1000.0)
    assert meter.progress.left_secs == pytest.approx(2.0)


def test_released_tasks_are_queued_again() -> None:
    meter = WorkMeter()
    meter.record_lease(tasks=3, work_secs=3.0, queued=1, now=0.0)
    meter.record_fragment(tasks=1, work_secs=1.0, rows=1, raw_bytes=1, now=1.0)
    meter.record_job_end(now=1.0)
    assert (meter.progress.tasks_done, meter.progress.tasks_total) == (1, 4)
    assert meter.progress.left_secs == pytest.approx(3.0)


def test_waiting_ends_with_the_next_lease() -> None:
    meter = WorkMeter()
    meter.record_wait(7)
    assert meter.progress == WorkProgress(waits_for=7)
    meter.record_lease(tasks=7, work_secs=1.0, queued=0, now=0.0)
    assert meter.progress == WorkProgress(tasks_total=7)
