"""A day of a log, memoized in this process and by a real runner with worker processes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from headrace.model_file import load_models
from pipelines.formats import globo
from pipelines.formats.options import FormatOptions
from pipelines.fragments.work import FragmentWork
from pipelines.worker.job_committer import group_by_fragment
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.conftest import ROOT
from tests.pipelines.scenes import model, open_home
from transforms.expressions.model import Model
from warehouse.matching.submit import submit_model
from warehouse.queue.lease import lease_tasks
from warehouse.storage.storage import Storage
from warehouse.tables.register import register_table

HOURS = 24


def prepared_log(folder: Path) -> tuple[str, Sequence[Model]]:
    """Globo's clicks where they lie beside the checkout, else the sample log; the table's name and its models."""
    clicks = ROOT.parent / "shared" / "data" / "globo"
    if clicks.is_dir():
        globo.prepare(str(clicks), str(folder), FormatOptions(limit=HOURS))
        return "globo", tuple(load_models(str(ROOT / "examples" / "globo.py")))
    write_sample_log(folder, SampleLogConfig(hours=HOURS, mean_rows_per_hour=3_000), late=False)
    return "search", tuple(load_models(str(ROOT / "examples" / "search_ads.py")))


def submit(home: Path, folder: Path, table: str, models: Sequence[Model]) -> int:
    """Queue the models' memos of the log in ``folder``; how many."""
    with open_home(home) as warehouse:
        register_table(warehouse, table, str(folder))
        return sum(submit_model(warehouse, made, table=table).queued for made in models)


def submitted_and_expected(log: Path, home: Path, direct: Path) -> int:
    """The day's work queued in ``home``, and done in ``direct`` by ``DirectRunner``; how many memos that is."""
    table, models = prepared_log(log)
    submit(direct, log, table, models)
    with open_home(direct) as warehouse:
        report = run_worker(warehouse, WorkerConfig("direct"), until_idle=True)
    queued = submit(home, log, table, models)
    assert report.memos == queued
    return queued


def leased(home: Path, log: Path) -> list[FragmentWork]:
    """The small log's fragments, leased as ``headrace work`` does."""
    with open_home(home) as warehouse:
        register_table(warehouse, "log", str(log))
        submit_model(warehouse, model())
        return [work for work, _ in group_by_fragment(lease_tasks(warehouse, "tester", limit=1000)).values()]


def boot_script(path: Path, *command: str) -> Path:
    """A program that a runner can start as a worker."""
    words = shlex.join([sys.executable, "-m", *command])
    path.write_text(f'#!/bin/sh\ncd {shlex.quote(str(ROOT))} && exec {words} "$@"\n')
    path.chmod(0o755)
    return path


def process_flags(boot: Path) -> list[str]:
    """The options that have ``boot`` started as a worker beside whatever runs the job."""
    return ["--environment_type=PROCESS", f"--environment_options=process_command={boot}"]


def results(home: Path) -> list[str]:
    """The result documents that ``headrace work`` has not cleared away yet: one a finished fragment."""
    return [file.path for file in Storage(str(home)).list("jobs")]
