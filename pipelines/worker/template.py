"""Write the next job as a Dataflow template, for inspection.

Dataflow's client builds the job that a worker would submit, stages its files and writes it as JSON. Nothing is leased: the
results of a template launched by hand would not be committed.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from pipelines.fragments.work import FragmentWork
from pipelines.joins.pipeline import run_job
from pipelines.memoize.pipeline import build
from pipelines.runners.remote import require_reach
from pipelines.runners.runner import RunnerOptions, run_pipeline
from pipelines.staging.job_flags import job_options, prepare_options, template_location
from pipelines.worker.job_committer import group_by_fragment
from pipelines.worker.worker import WorkerConfig
from transforms.errors import InputError
from warehouse.joins.refresh import next_computation
from warehouse.matching.submit import queue_missing
from warehouse.queue.lease import lease_tasks
from warehouse.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """The content and location of a template; none was written without fragments.

    Attributes:
        location: Where it is.
        tasks: The memos that its job computes.
        fragments: The fragments over which it does.
        joined_columns: The joined columns that its job computes in place of memos, which wait for them.
    """

    location: str
    tasks: int
    fragments: int
    joined_columns: int = 0


def write_template(warehouse: Warehouse, config: WorkerConfig) -> TemplateReport:
    """Write the job that a worker of this configuration would submit next to ``--template_location``.

    Outdated joined columns come first, as for a worker. The queue stays unchanged. Raises :class:`InputError` when ``config`` has no template location or the runner's workers
    cannot reach a fragment, and what :func:`~pipelines.staging.job_flags.prepare_options` and the runner raise.
    """
    location = template_location(config.runner_options)
    if not location:
        raise InputError("a job template must be for DataflowRunner and have a --template_location", value=config.runner,
                         allowed="DataflowRunner and --template_location=gs://BUCKET/job.json")  # fmt: skip
    with prepare_options(config.runner_options, warehouse.storage.home) as options:
        if (joins := next_computation(warehouse)) is not None:
            job = uuid.uuid4().hex
            run_job(joins, job_options(options, config.name, job), job)
            return TemplateReport(location, 0, len(joins.own), len(joins.definitions))
        queue_missing(warehouse)
        tasks = lease_tasks(
            warehouse, config.name, limit=config.batch_tasks, batch_bytes=config.batch_bytes, keep=False
        )
        works = [work for work, _ in group_by_fragment(tasks).values()]
        if works:
            _write(options, config, warehouse.storage.home, works)
    return TemplateReport(location, len(tasks), len(works))


def _write(options: RunnerOptions, config: WorkerConfig, home: str, works: list[FragmentWork]) -> None:
    job = uuid.uuid4().hex
    chosen = job_options(options, config.name, job)
    require_reach(chosen, home, *(work.fragment.path for work in works))
    run_pipeline(
        lambda pipeline: build(pipeline, works, home, job, chosen.threads, config.limits), chosen, one_step=True
    )
