"""Every day at 3: bring the log of the day that has ended, compute, train, check and export.

Copy this file to the folder of DAGs of Airflow 3, and set these variables for its workers:

    HEADRACE_HOME=gs://bucket/home HEADRACE_CATALOG_URL=postgresql://…      # or a home in a folder, which has its catalog
    HEADRACE_LOGS=/data/logs        # the log of 2 March 2026 is in /data/logs/2026-03-02
    HEADRACE_MODELS=/data/models.py HEADRACE_TABLE=search_log HEADRACE_MODEL=search_ctr
    HEADRACE_LINKS=/data/links      # the chain of exported weights
    HEADRACE_FIRST_DAY=2026-03-02   # HEADRACE_LAST_DAY: of a log that ends
    HEADRACE_OPTIONS=/data/options.json     # options of the training (docs/training.md); without it the first day chooses them

``headrace`` may be in another environment than Airflow: HEADRACE_COMMAND names it. Each task may run any number of times for
a day: rows, memos, events and links that are there already are not made again.
"""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, CronDataIntervalTimetable, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

TABLE = os.environ.get("HEADRACE_TABLE", "search_log")
MODEL = os.environ.get("HEADRACE_MODEL", "search_ctr")
FIRST_DAY = os.environ.get("HEADRACE_FIRST_DAY", "2026-03-02")
LAST_DAY = os.environ.get("HEADRACE_LAST_DAY", "")
#: Statuses of ``headrace`` after which another attempt may succeed: another process was in the way, or the storage failed (docs/errors.md).
PASSING = (5, 6, 75)


def headrace(*words: str) -> None:
    """Run a command. The task fails for good if another attempt would end in the same way."""
    command = [os.environ.get("HEADRACE_COMMAND", "headrace"), *words]
    status = subprocess.run(command, check=False).returncode
    if status == 0:
        return
    message = f"{' '.join(command)} ended with status {status}"
    if status in PASSING or status < 0 or status > 128:
        raise RuntimeError(message)
    raise AirflowFailException(message)


def interval() -> tuple[str, str]:
    """The day of this run, and the day after it."""
    start = get_current_context()["data_interval_start"]
    return f"{start:%Y-%m-%d}", f"{start + timedelta(days=1):%Y-%m-%d}"


with DAG(
    "headrace_daily",
    schedule=CronDataIntervalTimetable("0 3 * * *", timezone="UTC"),  # the run of 2 March starts on 3 March at 3
    start_date=datetime.fromisoformat(FIRST_DAY).replace(tzinfo=UTC),
    end_date=datetime.fromisoformat(LAST_DAY).replace(hour=3, tzinfo=UTC) if LAST_DAY else None,
    catchup=True,
    max_active_runs=1,
    default_args={
        "depends_on_past": True,  # days are trained in their order
        "retries": 4,
        "retry_delay": timedelta(minutes=2),
        "retry_exponential_backoff": True,
        "execution_timeout": timedelta(hours=12),
    },
    tags=["headrace"],
):

    @task
    def append() -> None:
        """Bring the log of the day; a file that was brought before adds nothing, and late rows add one."""
        day, _ = interval()
        log = str(Path(os.environ["HEADRACE_LOGS"]) / day)
        headrace("table", "import", TABLE, log, "--time-column", "time", "--partition-by", "day")

    @task
    def submit() -> None:
        """Queue the memos that are missing. An edited model file becomes the next version of its model."""
        headrace("model", "submit", os.environ["HEADRACE_MODELS"])

    @task
    def work() -> None:
        """Compute them, beside other workers, if there are any."""
        headrace("work", "--until-idle")

    @task
    def train() -> None:
        """Train the partitions of the table that are not trained yet: those up to this day, since runs are in order."""
        options = os.environ.get("HEADRACE_OPTIONS")
        headrace("train", MODEL, *(("--config", options) if options else ()))

    @task
    def check() -> None:
        """Fail if an input or the label of the day differs from the week before."""
        day, next_day = interval()
        if day != FIRST_DAY:
            headrace("checks", "run", MODEL, "--end", next_day, "--last", "1d", "--against", "7d")

    @task
    def export() -> None:
        """Write the newest weights to the chain: all of them at first, then what has changed."""
        links = os.environ["HEADRACE_LINKS"]
        kind = "delta" if (Path(links) / "000000-full").exists() else "full"
        headrace("export", kind, MODEL, "--output", links)

    append() >> submit() >> work() >> train() >> check() >> export()
