from __future__ import annotations

import pytest

from benchmarks.fleet import CHIPS, SIDES, Simulation

DAY_HOURS = 24.0


@pytest.mark.parametrize("side", SIDES, ids=lambda side: side.name)
def test_a_day_is_accounted_for(side):
    found = Simulation(side, DAY_HOURS, 3).run()
    assert found == Simulation(side, DAY_HOURS, 3).run(), "equal seeds give equal days"
    lost = found.lost_by_errors + found.lost_by_preemptions
    assert 0 < found.training + lost + found.stranded <= CHIPS * DAY_HOURS
    assert (found.stranded == 0) == side.holds
    assert found.preemptions > 0
    assert (found.held > 0) == side.holds


def test_notices_save_epochs_and_holds_save_chips():
    both, no_holds, no_notices, _ = (Simulation(side, 3 * DAY_HOURS, 3).run() for side in SIDES)
    assert both.lost_by_preemptions < no_notices.lost_by_preemptions / 10
    assert both.training > 1.2 * no_holds.training
