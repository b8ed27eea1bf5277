"""The staleness that is chosen by how late updates would be for the rows of the data."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.synthetic import Synthetic
from tests.trainer.tables.test_engine import batch_of
from trainer.errors import ConfigError
from trainer.run.choosing.choose import _staleness, choose_config
from trainer.run.choosing.staleness_choice import (
    DEFAULT_BOUND,
    MOST_CHOSEN,
    Lateness,
    choose_staleness,
    measure_lateness,
    staleness_bound,
)
from trainer.run.weights.row_delay import NO_DELAY, measure_delay

#: A model without a trial.
LINEAR = {"deep": False, "linear": True, "passes": 1, "linear_optimizer": "adagrad", "admit_after": 1, "linear_learning_rate": 0.1, "calibration": "none"}  # fmt: skip


def batches_of(*rows: list[int]):
    return [batch_of([[[one] for one in batch]]) for batch in rows]


@pytest.mark.parametrize(
    ("batches", "missed", "alpha"),
    [
        (batches_of([1, 2], [3, 4], [5, 6]), (0.0, 0.0, 0.0), 1 / 6),
        (batches_of([1, 2], [1, 2], [1, 2]), (0.0, 1.0, 2.0), 1 / 2),
        (batches_of([1, 1], [1, 2], [1, 3]), (0.0, 0.5, 1.0), 2 / 3),
        (batches_of([7]), (0.0,), 1.0),
        (batches_of([], []), (0.0, 0.0), 0.0),
    ],
)
def test_an_id_misses_the_updates_of_the_batches_that_have_its_row(batches, missed, alpha):
    found = measure_lateness(["t"], batches, len(missed) - 1)
    assert found.missed == pytest.approx(missed)
    assert found.alpha == pytest.approx(alpha)


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6), min_size=1, max_size=14), st.integers(0, 5))  # fmt: skip
def test_the_lateness_is_what_training_measures(events, most):
    """Of the newest batches that have so many before them; two features share a table, and one has its own."""
    tables = ["shared", "own", "shared"]
    batches = [batch_of([[[a] for a, _ in batch], [[b, a] for a, b in batch], [[b] for _, b in batch]]) for batch in events]  # fmt: skip
    found = measure_lateness(tables, batches, most)
    longest = len(found.missed) - 1
    assert longest == min(most, len(batches) - 1)
    measured = min(8, max(len(batches) - most, 1))
    for staleness, missed in enumerate(found.missed):
        delay = NO_DELAY
        for n in range(len(batches) - measured, len(batches)):
            delay += measure_delay(tables, batches[n], None, batches[n - staleness : n])
        assert missed == pytest.approx(delay.mean)
    assert list(found.missed) == sorted(found.missed)
    assert 0 <= found.alpha <= 1


@pytest.mark.parametrize(
    ("bound", "chosen", "words"),
    [
        (
            0,
            0,
            "an id misses 0.00 updates of its own row on average, of at most 0 by the bound missed_row_updates (0.20 with 1)",
        ),
        (
            0.2,
            1,
            "0.20 updates of its own row on average, of at most 0.2 by the bound missed_row_updates (0.41 with 2)",
        ),
        (
            9,
            2,
            "0.41 updates of its own row on average, of at most 9 by the bound missed_row_updates, and the sample has no more batches",
        ),
    ],
)
def test_the_largest_staleness_within_the_bound_is_chosen(bound, chosen, words):
    found, reason = choose_staleness(Lateness((0.0, 0.2, 0.41), 0.125), bound, 8)
    assert found == chosen
    assert words in reason
    assert reason.endswith("; the most frequent row is in 12.5% of the events, which this bound does not use")
    assert "no more batches" not in choose_staleness(Lateness((0.0, 0.2, 0.41), 0.5), bound, 2)[1]


@pytest.mark.medium
def test_a_run_chooses_its_staleness_and_says_why(tmp_path):
    data = Synthetic(3, 400)

    def chosen(**options):
        return choose_config(data.solution, data.read, {**LINEAR, **options}, run_dir=str(tmp_path))

    assert "staleness" not in chosen().chosen
    loose = chosen(staleness={"missed_row_updates": 1000})
    assert loose.staleness == MOST_CHOSEN
    assert "of at most 1000 by the bound" in loose.chosen["staleness"]
    assert chosen(staleness={"missed_row_updates": 0}).staleness == 0
    assert chosen(staleness="auto").chosen["staleness"].count(f"of at most {DEFAULT_BOUND:g} by") == 1
    wider = chosen(staleness={"missed_row_updates": 3}, batch_rows=256)
    narrow = chosen(staleness={"missed_row_updates": 3}, batch_rows=32)
    assert wider.staleness < narrow.staleness, "a larger batch has more of the rows"
    assert chosen(staleness=5).staleness == 5


@pytest.mark.parametrize("given", [{}, {"missed": 1}, {"missed_row_updates": -1}, {"missed_row_updates": np.nan},
                                   {"missed_row_updates": np.inf}, {"missed_row_updates": "1"}, {"missed_row_updates": None},
                                   {"missed_row_updates": True}, {"missed_row_updates": 1, "most": 2}])  # fmt: skip
def test_what_is_no_bound_is_refused(given):
    with pytest.raises(ConfigError, match="staleness must be a number of steps, or a bound"):
        staleness_bound(given)


def test_a_bound_is_a_number_and_a_number_of_steps_is_none():
    assert [staleness_bound(given) for given in (3, None, 0.5, "none")] == [None] * 4
    assert staleness_bound("auto") == DEFAULT_BOUND == 1.0, "as docs/embedding.md says"
    for bound in (0, 2, 0.5):
        found = staleness_bound({"missed_row_updates": bound})
        assert (found, type(found)) == (bound, float)


def test_without_rows_to_look_up_no_step_is_late():
    assert _staleness(None, (), SimpleNamespace(features=()), 1, 1.0, 8) == (
        0,
        "no input has ids: there are no rows to look up",
    )
