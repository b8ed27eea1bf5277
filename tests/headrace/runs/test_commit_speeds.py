"""The speed of a run up to its commits, and scores as a table."""

from __future__ import annotations

import pytest

from headrace.runs.commit_speeds import newest_speeds
from headrace.runs.history import History
from headrace.screens.score_figures import figure_table
from tests.trainer.run.history.histories import HEADS, history_of
from trainer.model.scores import RegressionScores, Scores, TasksScores


def test_events_are_those_between_commits() -> None:
    history = History.of("runs/m-v1", history_of(HEADS[0], [20, 50, 33]))
    found = newest_speeds(history, 20)
    assert [(one.commit, one.events) for one in found] == [(1, 60), (2, 150), (3, 99)]
    assert newest_speeds(history, 2) == found[1:]
    assert newest_speeds(history, 0) == ()
    assert found[0].rows_per_sec == pytest.approx(3 * (found[0].steps_per_sec or 0))
    assert {one.buffer_fullness for one in found} == {None}, "this run has no buffer"


def test_scores_of_other_labels_share_a_table() -> None:
    click = Scores(events=90, positives=30, auc=None, log_loss=0.6, normalized_entropy=0.9, calibration=1.0)
    price = RegressionScores(events=90, mean_squared_error=2.0, normalized_error=0.5, mean_absolute_error=1.0)
    both = TasksScores(events=90, tasks={"click": click, "price": price})
    found = figure_table([("a", both), ("b", click), ("c", None)])
    assert found.headings == ("AUC", "log loss", "NE", "calibration", "MAE", "MSE", "MSE/variance")
    assert [(one.of, one.label, one.events) for one in found.rows] == [
        ("a", "click", 90),
        ("a", "price", 90),
        ("b", "", 90),
        ("c", "", None),
    ]
    assert found.rows[0].cells == ("-", "0.6000", "0.9000", "1.0000", "-", "-", "-")
    assert found.rows[1].cells[4:] == ("1.0000", "2.0000", "0.5000")
    assert set(found.rows[3].cells) == {"-"}
    assert found.has_labels
    assert not figure_table([("b", click)]).has_labels
