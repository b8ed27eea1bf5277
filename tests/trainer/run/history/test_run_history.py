"""Windows depend on the number of steps alone: each step is in one of them, however often training was killed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.run.history.histories import HEADS, history_of, recorder_of, train
from trainer.model.heads import BINARY
from trainer.run.history import run_history
from trainer.run.history.checks import check_history
from trainer.run.history.columns import HistoryLayout
from trainer.run.history.figures import figures
from trainer.run.history.recorder import Gauges
from trainer.run.history.run_history import RunHistory

LAYOUT = HistoryLayout.of(BINARY.each)


def column(history, name, label=None):
    return history.layout.column(history.windows, name, label).tolist()


@settings(max_examples=scaled(60))
@given(st.lists(st.integers(1, 70), min_size=1, max_size=6), st.sampled_from(HEADS))
def test_restarts_change_no_window(commits, head):
    cut, whole = history_of(head, commits), history_of(head, [sum(commits)])
    check_history(cut, "here")
    assert cut.window_steps == whole.window_steps == 16
    assert column(cut, "step") == column(whole, "step")
    assert column(cut, "steps") == column(whole, "steps")
    for label, _ in cut.layout.labels:
        ours, theirs = (one.layout.column(one.windows, "events", label) for one in (cut, whole))
        assert ours.tolist() == theirs.tolist()
    ours, theirs = (figures(one.layout, one.windows) for one in (cut, whole))
    for name in ours:
        if name.endswith(("log_loss", "mean_squared_error", "accuracy", "calibration")):
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5)
    assert cut.layout.column(cut.commits, "steps").tolist() == commits
    assert cut.open_windows == (sum(commits) % 16 != 0)


def parts(steps, first=0):
    """Parts of 16 steps each, as after so many steps."""
    blank = dict.fromkeys((name for label, name in LAYOUT.names if label is None), 0.0)
    sums = np.zeros(6)
    rows = [LAYOUT.row({**blank, "step": end, "steps": 16, "events": 160}, sums) for end in range(first + 16, first + steps + 1, 16)]  # fmt: skip
    return np.concatenate([LAYOUT.no_rows(), *rows])


@pytest.mark.parametrize("at_once", [1, 64, 3000])
def test_a_long_run_has_few_windows(monkeypatch, at_once):
    monkeypatch.setattr(run_history, "MOST_WINDOWS", 32)
    history = RunHistory.empty(LAYOUT)
    steps = 16 * 1000
    for first in range(0, steps, 16 * at_once):
        history = history.with_parts(parts(min(16 * at_once, steps - first), first))
        assert len(history.windows) <= 32
        assert sum(column(history, "steps")) == history.step
    assert history.window_steps == 512
    assert len(history.windows) == 32
    assert set(column(history, "steps")[:-1]) == {512}
    assert sum(column(history, "events")) == 10 * steps


def test_old_commits_are_joined(monkeypatch):
    monkeypatch.setattr(run_history, "MOST_COMMITS", 8)
    history = RunHistory.empty(LAYOUT)
    for number in range(1, 40):
        part = parts(16, 16 * (number - 1))
        row = part.copy()
        row[:, LAYOUT.places[None, "commit"]] = number
        history = history.with_parts(part).with_commit(row)
        assert len(history.commits) <= 8
        numbers = LAYOUT.column(history.commits, "commit")
        assert numbers[-1] == number
        assert LAYOUT.column(history.commits, "steps")[-1] == 16
        assert LAYOUT.column(history.commits, "steps").sum() == 16 * number
        check_history(history, "here")


def test_a_history_may_begin_within_a_run():
    history = train(RunHistory.empty(LAYOUT, 21), BINARY, [3, 30])
    check_history(history, "here")
    assert column(history, "step") == [32, 48, 54]
    assert column(history, "steps") == [11, 16, 6]
    assert (history.first_step, history.step) == (21, 54)


def test_a_process_adds_what_it_has_measured_since_the_window_before():
    gauges = [
        Gauges(row_wait_secs=1.0, missed_updates=5, lookups=5, gradient_norms=2.0, gradient_steps=4),
        Gauges(3.0, 37, 21, 18.0, 20, hidden_units=10, idle_units=3, fullness=0.25),
        Gauges(3.5, 38, 22, 19.0, 21, hidden_units=10, idle_units=2, fullness=0.75),
    ]
    recorder = recorder_of(RunHistory.empty(LAYOUT), BINARY, gauges)
    recorder.begin(2, 1)
    for _ in range(17):
        recorder.add(np.array([1.0, 0.0]), np.array([3.0, 1.0]))
        recorder.count_step()
    history = recorder.commit(3)
    found = {name: values.tolist() for name, values in figures(LAYOUT, history.windows).items()}
    assert found["step"] == [16, 17]
    assert found["events"] == [32, 34]
    assert found["epoch"] == [2, 2]
    assert found["pass"] == [2, 2]
    assert found["staleness"] == [2.0, 1.0]
    assert found["gradient_norm"] == [1.0, 1.0]
    assert found["idle_units_share"] == [0.3, 0.2]
    assert found["buffer_fullness"] == [0.25, 0.75]
    assert found["auc"] == [1.0, 1.0]
    assert column(history, "row_wait_secs") == [2.0, 0.5]
    assert column(history, "data_wait_secs") == [0, 0]
    assert LAYOUT.column(history.commits, "commit").tolist() == [3]
    assert figures(LAYOUT, history.commits)["buffer_fullness"].tolist() == [0.5]


def test_time_between_epochs_does_not_count():
    recorder = recorder_of(RunHistory.empty(LAYOUT), BINARY)  # its clock goes on by a second a look
    for _ in range(3):
        recorder.begin(0, 0)
        with recorder.waiting():
            pass
        recorder.add(np.ones(1), np.ones(1))
        recorder.count_step()
        recorder.pause()
        for _ in range(100):
            recorder._clock()
    history = recorder.commit(1)
    assert column(history, "secs") == [9.0]  # three times two looks of the wait, and one of the end
    assert column(history, "data_wait_secs") == [3.0]
    assert figures(LAYOUT, history.windows)["data_wait_share"].tolist() == [pytest.approx(1 / 3)]


def test_a_commit_without_steps_is_no_row():
    recorder = recorder_of(RunHistory.empty(LAYOUT), BINARY)
    assert len(recorder.commit(1).commits) == 0


def test_many_events_of_a_window_are_several_parts():
    recorder = recorder_of(RunHistory.empty(LAYOUT), BINARY)
    recorder.begin(0, 0)
    for _ in range(3):
        labels = np.tile([0.0, 1.0], 30_000)
        recorder.add(labels, labels)
        recorder.count_step()
    history = recorder.commit(1)
    assert column(history, "steps") == [3]
    assert column(history, "pairs", "") == [2 * 30_000 * 30_000 + 2 * 30_000 * 30_000 + 30_000 * 30_000]
