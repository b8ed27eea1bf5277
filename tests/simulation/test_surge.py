from __future__ import annotations

import pytest

from tests.simulation.fleet import FleetConfig
from tests.simulation.surge import ScalingPolicy, SurgeConfig, SurgeOutcome, fixed, hinted, run_surge
from warehouse.scheduling.capacity import CapacitySettings

CONFIG = SurgeConfig(hours=4, surge_hour=1, cores=2.0)
SETTINGS = CapacitySettings(threads=4, start_secs=60)


def run(policy: ScalingPolicy, seed: int = 1) -> SurgeOutcome:
    fleet = FleetConfig(threads=4, start_secs=60, poll_secs=15, until_idle=False)
    return run_surge(CONFIG, policy, seed=seed, fleet=fleet)


@pytest.mark.medium
@pytest.mark.parametrize("seed", [1, 2])
def test_a_tenfold_surge_meets_deadlines_without_waste(seed: int) -> None:
    hint, mean, peak = run(hinted(SETTINGS), seed), run(fixed(3), seed), run(fixed(7), seed)
    assert hint.missed == 0
    assert hint.wasted < 0.5
    assert hint.paid_hours < peak.paid_hours / 2
    assert mean.missed > 0.1, "what the mean asks for is not enough"
    assert hint.drain_secs < mean.drain_secs
    # It does not flap: about twice as many changes as it takes to climb and come down again, one at a time.
    assert hint.changes < 60
    assert hint.needed_hours == mean.needed_hours == peak.needed_hours, "the same day"
