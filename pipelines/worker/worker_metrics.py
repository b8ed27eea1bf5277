"""The metrics of a worker, from its report."""

from __future__ import annotations

from pipelines.worker.report import WorkerReport
from transforms.metrics.declarations import counter, durations
from transforms.metrics.families import Family, single

LEASED = counter("headrace_worker_leased_tasks_total", "Tasks that this worker leased.")
MEMOS = counter("headrace_worker_committed_memos_total", "Memos that are ready by this worker's commit.")
FAILED = counter("headrace_worker_failed_tasks_total", "Attempts of this worker that failed.")
FENCED = counter("headrace_worker_fenced_tasks_total", "Tasks that another worker leased before this one committed.")
FRAGMENTS = counter("headrace_worker_fragments_total", "Fragments that this worker finished.")
JOINED = counter("headrace_worker_joined_fragments_total", "Fragments whose joined columns this worker computed.")
REJOINED = counter("headrace_worker_rejoined_fragments_total", "Fragments of these that have other values of joined columns now.")  # fmt: skip
FAILED_JOINS = counter("headrace_worker_failed_joins_total", "Joined columns that failed.")
ROWS = counter("headrace_worker_rows_total", "Events, once for each memo that this worker committed.")
RAW_BYTES = counter("headrace_worker_raw_read_bytes_total", "Size in memory of the raw columns that this worker read.")
BUSY = counter("headrace_worker_catalog_busy_total", "Times that the catalog was locked for longer than its timeout, or unreachable.")  # fmt: skip
LEASES = durations("headrace_worker_lease_seconds", "Time of one lease: missing memos are queued, then tasks leased.")
COMMITS = durations("headrace_worker_commit_seconds", "Time of one transaction that commits memos.")
JOBS = durations("headrace_worker_job_seconds", "Time of one Beam job, from its start to its last commit.")
METRICS = (
    LEASED,
    MEMOS,
    FAILED,
    FENCED,
    FRAGMENTS,
    JOINED,
    REJOINED,
    FAILED_JOINS,
    ROWS,
    RAW_BYTES,
    BUSY,
    LEASES,
    COMMITS,
    JOBS,
)


def worker_families(done: WorkerReport) -> tuple[Family, ...]:
    """What a worker has done since it began."""
    return (
        single(LEASED, done.tasks),
        single(MEMOS, done.memos),
        single(FAILED, done.failures),
        single(FENCED, done.fenced),
        single(FRAGMENTS, done.fragments),
        single(JOINED, done.joined_fragments),
        single(REJOINED, done.rejoined_fragments),
        single(FAILED_JOINS, done.failed_joins),
        single(ROWS, done.rows),
        single(RAW_BYTES, done.raw_bytes_read),
        single(BUSY, done.times_busy),
        single(LEASES, done.leases.reading()),
        single(COMMITS, done.commits.reading()),
        single(JOBS, done.job_times.reading()),
    )
