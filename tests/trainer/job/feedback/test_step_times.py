"""Steps and pauses have the times that the looks at a job's status say, whenever these are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.job.control.messages import Progress
from trainer.job.feedback.step_times import StepTimes

_SECS = st.floats(0.01, 10.0)
_STEPS = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def status(attempt: int, step: int | None, *, partition: str = "", rank: int | None = 0, of: int | None = None) -> Any:
    """A status in which one host has trained ``step`` steps of the attempt ``of``, by default the newest."""
    progress = None if step is None else Progress(attempt if of is None else of, step)
    return SimpleNamespace(
        attempt=attempt, partition=partition, members=(SimpleNamespace(rank=rank, progress=progress),)
    )


def looks(times: StepTimes, attempt: int, begin: float, secs: float, gains: list[int]) -> tuple[int, float]:
    """Look twice at an attempt with steps of ``secs`` after every so many more of them; the number of steps, and when the last ended."""
    steps, at = 0, begin
    for gain in gains:
        steps += gain
        at = begin + steps * secs
        times.see(status(attempt, steps), at)
        times.see(status(attempt, steps), at + 0.9 * secs)
    return steps, at


@given(_SECS, _SECS, _STEPS, _STEPS, st.floats(0.0, 100.0))
def test_steps_and_pauses_take_the_times_between_looks(
    secs: float, later_secs: float, gains: list[int], later_gains: list[int], pause: float
) -> None:
    times = StepTimes()
    _, at = looks(times, 1, 5.0, secs, gains)
    looks(times, 2, at + pause, later_secs, later_gains)
    assert times.step_secs(1) == (pytest.approx(secs) if len(gains) > 1 else None)
    assert times.step_secs(2) == (pytest.approx(later_secs) if len(later_gains) > 1 else None)
    unknown = (
        0.0 if len(later_gains) > 1 else later_secs * later_gains[0]
    )  # without a second look the first steps count as pause
    assert times.pause_secs(2) == pytest.approx(pause + unknown, abs=1e-6)
    assert (times.attempts[1].first_step, times.attempts[1].last_step) == (gains[0], sum(gains))


@pytest.mark.parametrize(
    "seen",
    [
        status(1, None),
        status(1, 0),
        status(1, 7, rank=1),
        status(1, 7, rank=None),
        status(1, 7, of=0),
        status(1, 7, of=2),
    ],
)
def test_only_steps_of_the_first_host_in_this_attempt_count(seen: Any) -> None:
    times = StepTimes()
    times.see(seen, 1.0)
    assert times.attempts == {}


def test_the_newest_attempts_are_known_with_their_plans() -> None:
    times = StepTimes()
    for attempt in range(1, 8):
        times.see(status(attempt, 1, partition=f"p{attempt}"), float(attempt))
    assert {number: one.partition for number, one in times.attempts.items()} == {n: f"p{n}" for n in (4, 5, 6, 7)}


def test_a_pause_is_known_between_neighbouring_attempts_only_and_never_negative() -> None:
    times = StepTimes()
    times.see(status(1, 1), 1.0)
    times.see(status(3, 1), 9.0)
    assert [times.pause_secs(number) for number in (1, 2, 3)] == [None, None, None]
    times.see(status(4, 10), 9.5)
    times.see(status(4, 11), 11.5)
    assert times.pause_secs(4) == 0.0, "ten steps of 2 s before the first look say more than the time that was"
