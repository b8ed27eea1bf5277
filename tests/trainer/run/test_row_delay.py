"""Which of the missed updates are those of the rows that are looked up."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.tables.test_engine import batch_of
from trainer.run.weights import step_pipeline
from trainer.run.weights.row_delay import NO_DELAY, RowDelay, events_of_most_frequent, measure_delay
from trainer.run.weights.staleness import StalenessCounts
from trainer.run.weights.step_pipeline import StepPipeline
from trainer.tables.batches import IdBatch


def batch(*features: list[int]) -> IdBatch:
    """One event, whose bags are the ids of each feature."""
    ends = np.cumsum([0, *(len(one) for one in features)])
    return IdBatch(
        np.array([one for own in features for one in own], np.int64), np.stack([ends[:-1], ends[1:]], axis=1)
    )


def test_an_id_misses_the_updates_of_its_own_row():
    tables = ["user", "page", "page"]
    before = batch([1], [2], [3])
    now = batch([1, 4], [3, 3], [9])
    assert measure_delay(tables, now, None, ()) == RowDelay(5, 0, 0, 1, 1)
    # Row 1 of the users; row 3 of the pages twice, although it was of another feature; user 1 is no page 1.
    assert measure_delay(tables, now, before, (before, batch([7], [9], []))) == RowDelay(5, 3, 4, 1, 1)
    assert measure_delay(["user", "page", "other"], now, before, (before,)) == RowDelay(5, 1, 1, 1, 1)


ROWS = st.lists(st.integers(0, 6), max_size=6)


@given(ROWS, st.lists(ROWS, max_size=3))
def test_it_is_what_sets_say(ids, others):
    found = measure_delay(["user"], batch(ids), None, [batch(one) for one in others])
    assert found.missed == sum(one in other for one in ids for other in others)
    assert found.ids == len(ids)


def test_figures_of_a_role_are_read_as_they_were_written():
    counts = StalenessCounts((3, 0, 2), RowDelay(40, 10, 12, 20, 5))
    assert StalenessCounts.of_numbers(counts.to_numbers()) == counts
    assert counts + counts == StalenessCounts((6, 0, 4), RowDelay(80, 20, 24, 40, 10))
    assert (counts.rows.overlap, counts.rows.mean, counts.rows.most_frequent) == (0.25, 0.3, 0.25)
    assert (NO_DELAY.overlap, NO_DELAY.mean, NO_DELAY.most_frequent) == (0.0, 0.0, 0.0)
    wrong = RowDelay.of_numbers({**NO_DELAY.to_numbers(), "sampled rows: events": 3.0, "sampled rows: frequent": 9.0})
    assert wrong.most_frequent == 1.0


@given(st.lists(st.lists(st.tuples(ROWS, ROWS, ROWS), max_size=4), min_size=1, max_size=3))
def test_events_of_the_most_frequent_row_are_those_that_sets_say(batches):
    """Two features share a table; rows of one number in other tables are others, and an event counts once however often it has a row."""
    tables = ["shared", "own", "shared"]
    found = events_of_most_frequent(tables, [batch_of([[one[f] for one in own] for f in range(3)]) for own in batches])
    events = [
        {*(("shared", row) for row in (*a, *c)), *(("own", row) for row in b)} for own in batches for a, b, c in own
    ]
    counts = Counter(row for rows in events for row in rows)
    assert found == (sum(map(bool, events)), max(counts.values(), default=0))


class Nothing:
    """Weights whose steps do nothing."""

    def train(self, batch):
        return np.zeros(1)

    def begin_look_up(self, batch):
        return lambda: None

    def send(self, batch, looked_up):
        return None

    def differentiate(self, batch, looked_up):
        return type("Step", (), {"logits": np.zeros(1)})()

    def apply_dense(self, batch, step):
        return None

    def update_tables(self, batch, gradients):
        return None


class Batch:
    def __init__(self, ids: IdBatch) -> None:
        self.ids, self.rows = ids, 1


def test_a_pipeline_measures_the_batches_between(monkeypatch):
    """Every batch has row 0; row 1 is in every third one, whose update a staleness of 2 never misses."""
    monkeypatch.setattr(step_pipeline, "SAMPLED_LOOKUPS", 2)
    batches = [Batch(batch([0, 1] if k % 3 == 0 else [0])) for k in range(12)]
    for staleness in (0, 2, 3):
        with StepPipeline(Nothing(), staleness, ["user"]) as steps:
            for one in batches:
                steps.train(one)
            steps.drain()
        rows = steps.staleness.rows
        sampled = range(1, 12, 2)
        assert rows.ids == sum(len(batches[k].ids.ids) for k in sampled)
        assert rows.overlapping == len(sampled)
        of_row_1 = sum(k % 3 == 0 for k in sampled) if staleness == 3 else 0
        assert rows.missed == sum(min(k, staleness) for k in sampled) + of_row_1
