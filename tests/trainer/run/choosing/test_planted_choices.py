"""The trial finds the model that is there."""

from __future__ import annotations

import pytest

pytest.importorskip("tensorflow")

from benchmarks.planted_quality import TARGET, measure

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["two ids", "list x id"])
def test_training_without_options_is_as_good_as_a_run_by_hand(tmp_path, kind):
    """The hand-tuned side is chosen on the test events."""
    found = measure(kind, 60_000, 7, tmp_path)
    assert found.odds > found.ours > 0.7
    assert found.behind < TARGET
