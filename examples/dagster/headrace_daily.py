"""Every day at 3: bring the log of the day that has ended, compute, train, check and export.

    pip install dagster dagster-webserver
    export HEADRACE_HOME=gs://bucket/home HEADRACE_CATALOG_URL=postgresql://…      # or a home in a folder, which has its catalog
    export HEADRACE_LOGS=/data/logs        # the log of 2 March 2026 is in /data/logs/2026-03-02
    export HEADRACE_MODELS=/data/models.py HEADRACE_TABLE=search_log HEADRACE_MODEL=search_ctr
    export HEADRACE_LINKS=/data/links      # the chain of exported weights
    export HEADRACE_FIRST_DAY=2026-03-02
    export HEADRACE_OPTIONS=/data/options.json     # options of the training (docs/training.md); without it the first day chooses them
    export DAGSTER_HOME=/data/dagster && cp dagster.yaml $DAGSTER_HOME     # one run at a time
    dagster dev --python-file headrace_daily.py

``headrace`` may be in another environment than Dagster: HEADRACE_COMMAND names it. Each step may run any number of times for
a day: rows, memos, events and links that are there already are not made again.
"""

import os
import subprocess
from pathlib import Path

from dagster import (
    Backoff,
    DailyPartitionsDefinition,
    DefaultScheduleStatus,
    Definitions,
    Failure,
    In,
    Nothing,
    OpExecutionContext,
    RetryPolicy,
    build_schedule_from_partitioned_job,
    job,
    op,
)

TABLE = os.environ.get("HEADRACE_TABLE", "search_log")
MODEL = os.environ.get("HEADRACE_MODEL", "search_ctr")
FIRST_DAY = os.environ.get("HEADRACE_FIRST_DAY", "2026-03-02")
DAYS = DailyPartitionsDefinition(start_date=FIRST_DAY)
RETRIES = RetryPolicy(max_retries=4, delay=120, backoff=Backoff.EXPONENTIAL)
#: Statuses of ``headrace`` after which another attempt may succeed: another process was in the way, or the storage failed (docs/errors.md).
PASSING = (5, 6, 75)


def headrace(*words: str) -> None:
    """Run a command. The step fails for good if another attempt would end in the same way."""
    command = [os.environ.get("HEADRACE_COMMAND", "headrace"), *words]
    status = subprocess.run(command, check=False).returncode
    if status:
        may_pass = status in PASSING or status < 0 or status > 128
        raise Failure(f"{' '.join(command)} ended with status {status}", allow_retries=may_pass)


def interval(context: OpExecutionContext) -> tuple[str, str]:
    """The day of this run, and the day after it."""
    window = context.partition_time_window
    return f"{window.start:%Y-%m-%d}", f"{window.end:%Y-%m-%d}"


@op(retry_policy=RETRIES)
def append(context: OpExecutionContext) -> None:
    """Bring the log of the day; a file that was brought before adds nothing, and late rows add one."""
    day, _ = interval(context)
    log = str(Path(os.environ["HEADRACE_LOGS"]) / day)
    headrace("table", "import", TABLE, log, "--time-column", "time", "--partition-by", "day")


@op(retry_policy=RETRIES, ins={"after": In(Nothing)})
def submit() -> None:
    """Queue the memos that are missing. An edited model file becomes the next version of its model."""
    headrace("model", "submit", os.environ["HEADRACE_MODELS"])


@op(retry_policy=RETRIES, ins={"after": In(Nothing)})
def work() -> None:
    """Compute them, beside other workers, if there are any."""
    headrace("work", "--until-idle")


@op(retry_policy=RETRIES, ins={"after": In(Nothing)})
def train() -> None:
    """Train the partitions of the table that are not trained yet: those up to this day, when runs are in order."""
    options = os.environ.get("HEADRACE_OPTIONS")
    headrace("train", MODEL, *(("--config", options) if options else ()))


@op(retry_policy=RETRIES, ins={"after": In(Nothing)})
def check(context: OpExecutionContext) -> None:
    """Fail if an input or the label of the day differs from the week before."""
    day, next_day = interval(context)
    if day != FIRST_DAY:
        headrace("checks", "run", MODEL, "--end", next_day, "--last", "1d", "--against", "7d")


@op(retry_policy=RETRIES, ins={"after": In(Nothing)})
def export() -> None:
    """Write the newest weights to the chain: all of them at first, then what has changed."""
    links = os.environ["HEADRACE_LINKS"]
    kind = "delta" if (Path(links) / "000000-full").exists() else "full"
    headrace("export", kind, MODEL, "--output", links)


@job(partitions_def=DAYS, tags={"headrace": "daily"})
def headrace_daily() -> None:
    """The steps of a day."""
    export(check(train(work(submit(append())))))


every_day = build_schedule_from_partitioned_job(
    headrace_daily, hour_of_day=3, default_status=DefaultScheduleStatus.RUNNING
)
definitions = Definitions(jobs=[headrace_daily], schedules=[every_day])
