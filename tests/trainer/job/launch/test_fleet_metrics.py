from __future__ import annotations

from pathlib import Path

from trainer.job.launch import fleet_metrics
from trainer.job.launch.fleet_metrics import FleetMetrics
from trainer.job.launch.fleet_store import FleetStore, Submission
from trainer.scheduling.fleet import FleetEvent, move


def test_metrics_are_those_of_the_jobs(tmp_path: Path):
    now = [100.0]
    store, metrics = FleetStore(tmp_path, clock=lambda: now[0]), FleetMetrics(5)
    first = store.submit(Submission("a", 3, 0, ("ctr",), "/", "/home"))
    now[0] = 130.0
    store.submit(Submission("b", 4, 0, ("ctr",), "/", "/home"))
    metrics.changed(store.update(first.job.number, lambda job: move(job, FleetEvent.START)))
    metrics.saw(store.jobs())
    now[0] = 190.0
    found = {one.metric: {sample.labels: sample.value for sample in one.samples} for one in metrics.families(now[0])}
    assert found[fleet_metrics.SLOTS][()] == 5
    assert found[fleet_metrics.USED][()] == 3
    assert {state: count for (state,), count in found[fleet_metrics.JOBS].items() if count} == {
        "running": 1,
        "queued": 1,
    }
    assert found[fleet_metrics.OLDEST][()] == 60
    assert found[fleet_metrics.CHANGES] == {("running",): 1}
