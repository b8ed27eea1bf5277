from __future__ import annotations

from dataclasses import replace

from benchmarks.training_job import crashed, line, preempted, scenarios


def test_a_scenario_is_printed_with_both_sides() -> None:
    printed = line("steady", replace(scenarios(600.0)["steady"], secs=40.0), seed=1)
    assert printed.split() == ["steady", *["0.000%", "0.0"] * 3, "2", "1", *printed.split()[-2:]]


def test_notices_and_crashes_are_counted() -> None:
    ended, committed = preempted(3, seed=1)
    assert ended >= committed >= 3
    lost = crashed(2, seed=1)
    assert len(lost) >= 2
    assert 0 <= min(lost) <= max(lost) < 90
