"""The metrics of a training in one process, read while it trains."""

from __future__ import annotations

import pytest

from tests.trainer.synthetic import Synthetic, config
from trainer.model.scores import Scores, TasksScores
from trainer.run import host_metrics
from trainer.run.host_metrics import HostFigures, HostMetrics
from trainer.run.loop import train
from trainer.run.weights.staleness import StalenessCounts
from trainer.tables.hashed_counts import HashedCounts
from transforms.metrics.declarations import Metric
from transforms.metrics.families import Distribution, Family


def by_metric(families: tuple[Family, ...]) -> dict[Metric, dict[tuple[str, ...], float | Distribution]]:
    return {one.metric: {sample.labels: sample.value for sample in one.samples} for one in families}


def count(families: tuple[Family, ...], metric: Metric) -> int:
    found = by_metric(families)[metric][()]
    assert isinstance(found, Distribution)
    return sum(found.counts)


def test_metrics_follow_a_training(tmp_path):
    pytest.importorskip("tensorflow")
    data, metrics, seen = Synthetic(3, 200), HostMetrics(), []

    def look(event) -> None:
        if event.kind == "batch":
            seen.append((event.events, metrics.families()))

    options = config(tmp_path, passes=2, staleness=1)
    report = train(data.solution, data.read, options, progress=look, read_labels=data.read_labels, metrics=metrics)
    for events, families in seen:
        found = by_metric(families)
        assert found[host_metrics.EVENTS][()] == events
        assert events <= found[host_metrics.PLANNED][()] <= report.events
    last = metrics.families()
    assert count(last, host_metrics.STEPS) == count(last, host_metrics.WAITS) == 24
    assert count(last, host_metrics.COMMITS) == 6
    found = by_metric(last)
    assert found[host_metrics.STEP][()] == 24
    assert found[host_metrics.EPOCHS][()] == 6
    assert found[host_metrics.STALENESS][()] == report.staleness.mean > 0
    newest = report.history[-1].scores
    assert found[host_metrics.ENTROPY] == {("",): newest.normalized_entropy}
    assert found[host_metrics.AUC] == {("",): newest.auc}
    assert host_metrics.FULLNESS not in found


def test_a_wait_for_no_batch_is_not_counted():
    metrics = HostMetrics()
    assert list(metrics.waited_for([1, 2])) == [1, 2]
    assert count(metrics.families(), host_metrics.WAITS) == 2


def test_figures_of_several_labels_and_tables():
    metrics = HostMetrics()
    click = Scores(10, 3, 0.75, 0.5, 0.9)
    undefined = Scores(0, 0, None, None, None)
    counts = HashedCounts(5, 8, 9, 3, 1, 0, 0)
    figures = HostFigures(7, 2, None, 1.5, StalenessCounts((1, 3)), TasksScores(10, {"click": click, "buy": undefined}), {"user": counts}, 0.25)  # fmt: skip
    metrics.figures = lambda: figures
    found = by_metric(metrics.families())
    assert found[host_metrics.LOSS] == {("click",): 0.5}
    assert found[host_metrics.AUC] == {("click",): 0.75}
    assert host_metrics.CALIBRATION not in found
    assert host_metrics.PLANNED not in found
    assert found[host_metrics.TABLE_ROWS] == {("user",): 5}
    assert found[host_metrics.TABLE_CHANGES] == {("user", "admitted"): 9, ("user", "evicted"): 3, ("user", "expired"): 1}  # fmt: skip
    assert found[host_metrics.FULLNESS][()] == 0.25
    assert found[host_metrics.STALENESS][()] == 0.75
