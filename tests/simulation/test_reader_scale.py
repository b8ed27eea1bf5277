from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.simulation.reader_scale import ScaleConfig, ScaleOutcome, ScaleRun, Speed
from trainer.scheduling.buffer_control import BufferSettings

SETTINGS = BufferSettings(limit_bytes=128 << 20, shrink_after_secs=40.0)
#: No unit is larger than this in the simulation.
MOST_UNIT_BYTES = int(1.5 * (1 << 20)) + 1


def between(begin: float, end: float, factor: float) -> Speed:
    """A speed that changes by ``factor`` in a time."""
    return lambda moment: factor if begin <= moment < end else 1.0


def run(seed: int = 1, settings: BufferSettings = SETTINGS, **changes: object) -> ScaleOutcome:
    config = replace(ScaleConfig(secs=240.0), **changes)  # type: ignore[arg-type]
    return ScaleRun(config, settings, seed=seed).run()


def check(outcome: ScaleOutcome, starved: float = 0.02) -> None:
    """Starved steps, the time that they waited, and memory."""
    assert outcome.starved_share <= starved
    assert outcome.starved_secs <= 240 * starved
    assert outcome.most_bytes <= SETTINGS.limit_bytes + MOST_UNIT_BYTES


def reversals(outcome: ScaleOutcome) -> int:
    """How often the number of readers turns from growing to shrinking or back."""
    counts = [count for _, count in outcome.readers]
    signs = [after > before for before, after in pairwise(counts)]
    return sum(one != other for one, other in pairwise(signs))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_steady_load_needs_no_change_after_the_warm_up(seed: int) -> None:
    outcome = run(seed)
    check(outcome, starved=0.0)
    assert outcome.changes(30, 240) == 0
    assert outcome.readers_at(240) == 2


def test_storage_that_is_ten_times_slower() -> None:
    outcome = run(read_speed=between(60, 130, 0.1))
    check(outcome, starved=0.001)
    assert outcome.readers_at(130) >= 10, "the work of one reader is now that of ten"
    assert outcome.readers_at(240) <= 3
    assert reversals(outcome) == 1


@pytest.mark.medium
def test_a_host_that_is_ten_times_faster() -> None:
    outcome = run(host_speed=between(60, 90, 10.0))
    check(outcome)
    assert outcome.readers_at(90) >= 10
    assert outcome.readers_at(240) <= 8
    assert reversals(outcome) == 1


def test_a_host_that_is_ten_times_slower() -> None:
    outcome = run(host_speed=between(60, 180, 0.1))
    check(outcome, starved=0.001)
    assert outcome.readers_at(179) == 1


def test_storage_that_stalls() -> None:
    outcome = run(stalls=(3.0, 40.0))
    check(outcome, starved=0.001)
    assert reversals(outcome) <= 2 * 6, "at most one up and down per stall"


def test_stragglers_are_speculated() -> None:
    outcome = run(straggler_share=0.02)
    check(outcome, starved=0.001)
    assert max(count for _, count in outcome.readers) <= 8


def test_slow_storage_from_the_beginning() -> None:
    outcome = run(read_unit_secs=4.0)
    check(outcome)
    assert 20 <= outcome.readers_at(240) <= 40
    assert reversals(outcome) == 0


def test_initial_training_changes_to_caught_up_training() -> None:
    """All history is there; after it is trained, a partition of 20 units lands every 30 seconds."""
    outcome = run(secs=400.0, read_unit_secs=1.0, landed=lambda moment: 1500 + 20 * int(max(0.0, moment - 150) // 30))
    # The first unit of a partition takes its time: a second, and half an interval of the control.
    check(outcome, starved=0.06)
    assert outcome.readers_at(140) >= 5
    assert outcome.readers_at(399) <= 10, "a partition has work for ten"
    assert reversals(outcome) <= 2


def test_readers_follow_their_limit() -> None:
    """Capacity that is not there starves the host; the number of readers stays at its limit."""
    outcome = run(settings=replace(SETTINGS, most_readers=3), read_unit_secs=4.0)
    assert outcome.starved_secs > 100
    assert outcome.readers_at(240) == 3
    assert outcome.changes(30, 240) == 0


def test_a_fixed_number_of_readers_starves_or_wastes() -> None:
    """What the control is for: the same change with two readers, and with as many as its peak."""
    change = between(60, 130, 0.1)
    scaled, few, many = (run(read_speed=change, fixed_readers=count) for count in (None, 2, 14))
    assert few.starved_secs > 30
    assert scaled.starved_secs < 0.5
    assert scaled.reader_secs < 0.7 * many.reader_secs


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_ten_minutes_with_every_change(seed: int) -> None:
    """Faster and slower by ten in turns, with stragglers and stalls."""
    outcome = run(
        seed,
        secs=900.0,
        straggler_share=0.01,
        stalls=(2.0, 90.0),
        host_speed=between(120, 180, 10.0),
        read_speed=between(400, 600, 0.1),
    )
    check(outcome)
    assert reversals(outcome) <= 24
