"""The metrics of a process that scores partitions: ``headrace predict``."""

from __future__ import annotations

from transforms.metrics.declarations import counter, gauge
from transforms.metrics.families import Family, by_label, single

DONE = counter("headrace_predict_parts_total", "Partitions that were scored, or files by several hosts.", "part")
PLANNED = gauge("headrace_predict_planned_parts", "Partitions to score, or files by several hosts.", "part")
RUNNING = gauge("headrace_predict_running", "1 while partitions are scored, 0 before, such as while the model is loaded.")  # fmt: skip
METRICS = (DONE, PLANNED, RUNNING)


class ScoringMetrics:
    """How far a process is; one thread reports, any may read. ``part``: what it counts, "partition" or "file"."""

    def __init__(self, part: str) -> None:
        self._part, self._progress, self._is_running = part, (0, 0), False

    def report(self, done: int, total: int, current: str = "") -> None:
        """Note that so many of all parts are done; ``current``: what is done now, which metrics do not show."""
        self._progress, self._is_running = (done, total), True

    def families(self) -> tuple[Family, ...]:
        """All metrics now."""
        done, total = self._progress
        return (
            by_label(DONE, {self._part: float(done)}),
            by_label(PLANNED, {self._part: float(total)}),
            single(RUNNING, float(self._is_running)),
        )
