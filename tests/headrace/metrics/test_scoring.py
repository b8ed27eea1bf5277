from __future__ import annotations

from headrace.metrics.scoring import DONE, PLANNED, RUNNING, ScoringMetrics
from pipelines.runners.progress import report_progress
from transforms.metrics.families import Sample


def test_metrics_follow_the_progress_of_a_pipeline():
    metrics = ScoringMetrics("partition")

    def values() -> dict[str, tuple[Sample, ...]]:
        return {one.metric.name: one.samples for one in metrics.families()}

    assert values()[RUNNING.name] == (Sample((), 0.0),)
    with report_progress("scoring", lambda: 3, 4, metrics.report):
        pass
    found = values()
    assert found[DONE.name] == (Sample(("partition",), 3.0),)
    assert found[PLANNED.name] == (Sample(("partition",), 4.0),)
    assert found[RUNNING.name] == (Sample((), 1.0),)
