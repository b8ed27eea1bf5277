"""Curves, their smoothing, their range and the numbers along their axes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.runs.curves import Curve, curve_of, default_metric, smoothed
from headrace.runs.history import History
from headrace.runs.plot_range import range_of
from headrace.runs.ticks import tick_text, ticks
from tests.support.examples import scaled
from tests.trainer.run.history.histories import HEADS, history_of
from transforms.errors import InputError

HISTORY = History.of("runs/m-v1", history_of(HEADS[0], [20, 50, 33]))


@given(st.lists(st.floats(-1e6, 1e6), max_size=40), st.floats(0.0, 0.99))
@settings(max_examples=scaled(100))
def test_smoothing_is_a_mean_of_the_values_so_far(values, smoothing):
    found = smoothed(np.array(values), smoothing)
    for k, value in enumerate(found.tolist()):
        weights = smoothing ** np.arange(k, -1, -1)
        assert value == pytest.approx(float(np.average(values[: k + 1], weights=weights)), abs=1e-3)


def test_without_smoothing_values_stay():
    assert smoothed(np.array([3.0, -1.0, 2.0]), 0.0).tolist() == [3.0, -1.0, 2.0]


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e9), st.integers(2, 12))
@settings(max_examples=scaled(200))
def test_ticks_are_round_numbers_within_the_range(low, size, most):
    high = low + size
    found = ticks(low, high, most)
    assert len(found) <= most
    slack = 1e-6 * max(abs(low), abs(high), 1.0)
    assert all(low - slack <= one <= high + slack for one in found)
    if len(found) > 1:
        apart = found[1] - found[0]
        texts = [tick_text(one, apart) for one in found]
        if max(map(abs, found)) < 1e6 * apart:
            assert len(set(texts)) == len(texts)


def test_texts_of_ticks():
    assert [tick_text(one, 0.05) for one in (0.0, 0.95, 1.0)] == ["0.00", "0.95", "1.00"]
    assert [tick_text(one, 500.0) for one in (0.0, 500.0, 1000.0, 1500.0)] == ["0", "500", "1.0k", "1.5k"]
    assert tick_text(2e6, 1e6) == "2M"
    assert ticks(3.0, 3.0, 5) == [3.0]


def test_a_curve_leaves_out_what_is_not_defined():
    columns = {**HISTORY.windows, "auc": np.array([np.nan, 0.5, 0.6, *HISTORY.windows["auc"][3:]])}
    own = History("r", 0, 16, columns, {})
    assert curve_of("r", own, "auc", "step", 0.0).x.tolist() == HISTORY.windows["step"].tolist()[1:]


def test_axes_are_steps_events_and_seconds():
    found = {axis: curve_of("r", HISTORY, "log_loss", axis, 0.0).x for axis in ("step", "events", "time")}
    assert found["step"].tolist() == HISTORY.windows["step"].tolist()
    assert found["events"].tolist() == (3 * HISTORY.windows["step"]).tolist()
    assert found["time"].tolist() == HISTORY.windows["secs"].tolist()
    of_commits = curve_of("r", HISTORY, "log_loss", "step", 0.0, rows="commits")
    assert of_commits.x.tolist() == [20, 70, 103]


@pytest.mark.parametrize("metric", ["", "aux", "step", "epoch"])
def test_what_is_no_figure_is_refused(metric):
    with pytest.raises(InputError, match="figure"):
        curve_of("r", HISTORY, metric, "step", 0.0)


def test_the_default_is_the_normalized_loss_of_a_common_label():
    others = [History.of("runs/n-v1", history_of(head, [20])) for head in HEADS[1:]]
    assert default_metric([HISTORY]) == "normalized_entropy"
    assert default_metric([others[0]]) == "normalized_error"
    assert default_metric([others[1]]) == "click/normalized_entropy"
    with pytest.raises(InputError, match="in common"):
        default_metric([HISTORY, others[0]])


@given(st.lists(st.lists(st.floats(-1e3, 1e3), max_size=30), max_size=4), st.sampled_from(["step", "events", "time"]))
@settings(max_examples=scaled(100))
def test_a_range_has_the_end_of_each_curve(values, axis):
    curves = [Curve("r", np.arange(1.0, len(one) + 1), np.array(one), np.array(one)) for one in values]
    found = range_of(curves, axis)
    assert found.low < found.high
    assert 0 < found.right < math.inf
    for one in curves:
        if one.last is not None:
            assert found.low <= one.last <= found.high
            assert one.x[-1] / found.unit <= found.right


def test_time_has_the_unit_that_suits_it():
    def name(secs):
        return range_of([Curve("r", np.array([secs]), np.ones(1), np.ones(1))], "time").name

    assert [name(secs) for secs in (1.0, 150.0, 7200.0)] == ["seconds of training", "minutes of training", "hours of training"]  # fmt: skip


def test_columns_as_frames():
    table = HISTORY.to_arrow()
    assert table.column("step").to_pylist() == HISTORY.windows["step"].tolist()
    assert table.column("gradient_norm").null_count == len(table)
    assert HISTORY.to_polars("commits")["commit"].to_list() == [1.0, 2.0, 3.0]
    assert HISTORY.to_pandas().columns.tolist() == list(HISTORY.windows)
    with pytest.raises(InputError, match="windows or commits"):
        HISTORY.to_arrow("epochs")
