"""The demonstration on real logs: Globo.com news, MovieLens, Criteo, Open Bandit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path

from headrace.demo.scripts import DemoScript, Progress
from transforms.errors import InputError

Split = Callable[[Sequence[datetime], datetime], tuple[datetime, datetime]]


def _prepare_with(log_format: str) -> Callable[[str, Path, Progress], str]:
    def prepare(source: str, folder: Path, progress: Progress) -> str:
        if not source:
            raise InputError("say where the logs are", where=f"--format {log_format}",
                             next_step="make demo LOGS=path FORMAT=" + log_format)  # fmt: skip
        module = import_module(f"pipelines.formats.{log_format}")
        report = module.prepare(source, str(folder), progress=lambda what, done, total: progress(done, total))
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in report.counts.items())
        rejected = f"; {report.rejected:,} unreadable rows set aside" if report.rejected else ""
        return f"{report.rows:,} rows in {len(report.partitions)} partitions ({counts}){rejected}"

    return prepare


def _after_hours(hours: int, test_hours: int) -> Split:
    def split(starts: Sequence[datetime], end: datetime) -> tuple[datetime, datetime]:
        train_end = starts[0] + timedelta(hours=hours)
        if train_end >= end:
            return _last_share(0.2)(starts, end)
        return train_end, min(end, train_end + timedelta(hours=test_hours))

    return split


def _last_share(share: float) -> Split:
    def split(starts: Sequence[datetime], end: datetime) -> tuple[datetime, datetime]:
        if len(starts) < 2:
            raise InputError(
                "too few partitions to train on some and test on others", value=len(starts), allowed="2 or more"
            )
        return starts[min(len(starts) - 1, max(1, round(len(starts) * (1 - share))))], end

    return split


REAL_LOGS = {
    "globo": DemoScript(
        table="globo",
        example="globo.py",
        first="news_ctr",
        prepare=_prepare_with("globo"),
        split=_after_hours(168, 24),
        baseline="article_clicks_recent",
        options={"partitions_per_epoch": 24, "tables": {"history": "article", "last_article": "article"}},
    ),
    "movielens": DemoScript(
        table="movielens",
        example="movielens.py",
        first="movie_ctr",
        prepare=_prepare_with("movielens"),
        # The last ten interactions of every user are the last ten hours.
        split=_after_hours(158, 10),
        baseline="movie_clicks_recent",
        options={"partitions_per_epoch": 20, "tables": {"history": "movie"}},
    ),
    "criteo": DemoScript(
        table="criteo",
        example="criteo.py",
        first="display_ctr",
        prepare=_prepare_with("criteo"),
        split=_last_share(0.2),
        options={"partitions_per_epoch": 4, "batch_rows": 256},
    ),
    "obd": DemoScript(
        table="obd",
        example="obd.py",
        first="fashion_ctr",
        prepare=_prepare_with("obd"),
        split=_last_share(0.3),
        options={"partitions_per_epoch": 1, "batch_rows": 256},
    ),
}
