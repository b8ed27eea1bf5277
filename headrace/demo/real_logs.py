"""The demos on real logs: Globo.com news, MovieLens, Criteo, Open Bandit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path

from headrace.demo.scripts import DemoScript, LogOptions, Prepare, Progress
from transforms.errors import InputError
from transforms.installation import own_module

Split = Callable[[Sequence[datetime], datetime], tuple[datetime, datetime]]


def _prepare_with(log_format: str) -> Prepare:
    def prepare(source: str, folder: Path, options: LogOptions, progress: Progress) -> str:
        if not source:
            raise InputError("--logs must be given for a format of real logs", where=f"--format {log_format}",
                             next_step="make demo LOGS=path FORMAT=" + log_format)  # fmt: skip
        from pipelines.formats.options import FormatOptions

        module = import_module(own_module(f"pipelines.formats.{log_format}"))
        drawn = FormatOptions(negatives_per_positive=options.negatives_per_positive, seed=options.seed)
        report = module.prepare(source, str(folder), drawn, progress)
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in report.counts.items())
        rejected = f"; {report.rejected:,} unreadable rows rejected" if report.rejected else ""
        return f"{report.rows:,} rows in {len(report.partitions)} partitions ({counts}){rejected}"

    return prepare


def _last_hours(hours: int) -> Split:
    def split(starts: Sequence[datetime], end: datetime) -> tuple[datetime, datetime]:
        train_end = end - timedelta(hours=hours)
        return (train_end, end) if train_end > starts[0] else _last_share(0.2)(starts, end)

    return split


def _last_share(share: float) -> Split:
    def split(starts: Sequence[datetime], end: datetime) -> tuple[datetime, datetime]:
        if len(starts) < 2:
            raise InputError(
                "the log must have partitions to train and to test on", value=len(starts), allowed="2 or more"
            )
        return starts[min(len(starts) - 1, max(1, round(len(starts) * (1 - share))))], end

    return split


#: The embedding learning rate was chosen for both logs on the partitions before the test, the batch size for Globo only.
#: The trainer's other defaults were set with Globo's test hours in view.
_CHOSEN = {"batch_rows": 2048, "embedding_learning_rate": 0.03}

REAL_LOGS = {
    "globo": DemoScript(
        table="globo",
        example="globo.py",
        first="news_ctr",
        prepare=_prepare_with("globo"),
        # 192 hours: the first 168 train, the last 24 test.
        split=_last_hours(24),
        baselines=("article_clicks_recent", "article_clicks_last_hour"),
        options={"partitions_per_epoch": 24, **_CHOSEN, "tables": {"history": "article", "last_article": "article"}},
    ),
    "movielens": DemoScript(
        table="movielens",
        example="movielens.py",
        first="movie_ctr",
        prepare=_prepare_with("movielens"),
        # The last ten interactions of every user are the last ten hours.
        split=_last_hours(10),
        baselines=("movie_clicks_recent",),
        options={"partitions_per_epoch": 20, **_CHOSEN, "tables": {"history": "movie"}},
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
