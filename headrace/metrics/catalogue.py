"""All metrics by the kind of process that has them, for the manual, the dashboard and the alerts.

Names are unique: two packages that declare one fail here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from transforms.errors import InputError
from transforms.metrics.declarations import Kind, Metric

#: What each kind of process is, in the order of the manual; the key is the second word of its metrics' names.
MEANING: Mapping[str, str] = {
    "process": "every process that serves metrics, beside the process_ metrics of prometheus_client",
    "worker": "headrace work",
    "queue": "headrace work: the queue of the warehouse, with the same values at each worker",
    "host": "headrace train in one process, and each host of a job",
    "controller": "the controller of a job",
    "reader": "a reader of a job",
    "server": "a parameter server: headrace ps serve",
    "embedding_worker": "an embedding worker: headrace ps worker",
    "tpu_server": "the TensorFlow server of one machine of a slice: headrace role tpu-server",
    "fleet": "headrace jobs run",
    "predict": "headrace predict",
    "lineage": "every process that opens a warehouse whose events of lineage are sent",
    "checks": "headrace checks run --metrics FILE, which ends and so writes a file for the textfile collector of the node exporter",
}


@cache
def all_metrics() -> Mapping[str, tuple[Metric, ...]]:
    """The metrics of each kind of process. Raises :class:`InputError` for a name that two of them have."""
    from headrace.metrics import drift, lineage, scoring
    from headrace.metrics.exposition import SCRAPES
    from headrace.metrics.process import INFO
    from pipelines.worker import queue_metrics, worker_metrics
    from trainer.job.control import controller_metrics
    from trainer.job.launch import fleet_metrics, slice_metrics
    from trainer.run import host_metrics
    from trainer.run.reading import reader_metrics
    from trainer.servers import server_metrics

    modules = (
        worker_metrics,
        queue_metrics,
        host_metrics,
        controller_metrics,
        reader_metrics,
        server_metrics,
        slice_metrics,
        fleet_metrics,
        scoring,
        lineage,
        drift,
    )
    every = [INFO, SCRAPES, *(one for module in modules for one in module.METRICS)]
    names = [one.name for one in every]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError("each metric must be declared once", where="METRICS", value=", ".join(repeated))
    return {role: tuple(one for one in every if _role(one) == role) for role in MEANING}


def exposed_names() -> frozenset[str]:
    """Every name that a scrape shows: those of histograms have parts."""
    found = set()
    for one in (metric for metrics in all_metrics().values() for metric in metrics):
        found.add(one.name)
        if one.kind is Kind.HISTOGRAM:
            found |= {f"{one.name}_{part}" for part in ("bucket", "count", "sum")}
    return frozenset(found)


def tables_text() -> str:
    """The sections of the manual: one table for each kind of process."""
    sections = []
    for role, metrics in all_metrics().items():
        rows = "\n".join(f"| `{_written(one)}` | {one.kind} | {one.help} |" for one in metrics)
        sections.append(
            f"### `headrace_{role}_`\n\nOf {MEANING[role]}.\n\n| metric | kind | meaning |\n|---|---|---|\n{rows}\n"
        )
    return "\n".join(sections)


def _role(metric: Metric) -> str:
    """The longest role that the name begins with."""
    return max((role for role in MEANING if metric.name.startswith(f"headrace_{role}_")), key=len)


def _written(metric: Metric) -> str:
    return metric.name + (f"{{{','.join(metric.labels)}}}" if metric.labels else "")
