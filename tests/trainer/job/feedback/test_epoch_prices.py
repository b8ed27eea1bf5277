"""What a sample says of plans: facts of tables, costs, and the bytes that a move takes elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.trainer.job.feedback.scenes import EVENTS, FEATURES, PRICING, ROWS, by_tables, long_lists, sampled
from trainer.job.feedback.epoch_prices import EpochPricing
from trainer.planning.plan import PartitionPlan, cyclic_plan
from trainer.planning.tables import FeatureLoad

#: Of one table: 64 values of 4 bytes a row, and Adagrad's slot of each.
TABLE_BYTES = ROWS * 64 * 8
SPREAD = cyclic_plan([(one.table.name, ROWS, 64) for one in FEATURES], 2)
ASSUMED = PRICING.facts({})


def test_tables_have_the_loads_of_the_sample_and_assumed_ones_without() -> None:
    known = sampled(long_lists("f1"), 1)
    del known["f2"]
    known["f3"] = replace(known["f3"], frequencies=replace(known["f3"].frequencies, rows=ROWS + 1))
    facts = {one.name: one.features[0] for one in PRICING.facts(known)}
    assert [facts[name].ids_per_event for name in ("f0", "f1")] == [1.0, 20.0]
    assert facts["f1"].frequencies is known["f1"].frequencies
    assert facts["f1"].sample is known["f1"].sample
    for name in ("f2", "f3"):
        assert facts[name] == FeatureLoad.assumed(name, ROWS, (), has_one_id=True), (
            "not sampled, or of a table with other rows"
        )


def test_rows_that_are_spread_are_the_plan_of_no_plan() -> None:
    assert PRICING.spread == SPREAD
    assert PRICING.loads(None, ASSUMED).step_secs == PRICING.loads(SPREAD, ASSUMED).step_secs
    uneven = by_tables("f0")
    assert PRICING.loads(uneven, ASSUMED).step_secs > PRICING.loads(None, ASSUMED).step_secs
    more = EpochPricing(FEATURES, PRICING.topology, 2 * EVENTS)
    assert more.loads(uneven, ASSUMED).step_secs > PRICING.loads(uneven, ASSUMED).step_secs


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (by_tables("f0"), by_tables("f0"), 0.0),
        (None, SPREAD, 0.0),
        (SPREAD, None, 0.0),
        (by_tables("f0", "f1", "f2"), by_tables("f0"), 2.0),
        (by_tables("f0"), by_tables("f0", "f1", "f2"), 2.0),
        (by_tables(), by_tables(*(one.name for one in FEATURES)), 6.0),
        (None, by_tables("f0"), 3.0),
        (by_tables("f0"), None, 3.0),
    ],
)
def test_a_move_takes_the_values_and_slots_of_the_rows_with_another_host(
    before: PartitionPlan | None, after: PartitionPlan | None, expected: float
) -> None:
    """``expected``: in whole tables; half of the rows of a spread table are already where a plan has all of them; rows are sampled."""
    assert PRICING.moved_bytes(before, after, ASSUMED) == pytest.approx(expected * TABLE_BYTES, rel=1e-3)


def test_a_first_move_is_expected_to_restore_a_commit_and_to_read_all_tables() -> None:
    assert PRICING.move_secs(()) == 2.0
    assert PRICING.move_secs(ASSUMED) == pytest.approx(2.0 + 6 * TABLE_BYTES / 100e6)
