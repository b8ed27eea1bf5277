"""Scripts of the demo: the logs, the models, and the split into training and test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from headrace.demo.sample_log import SampleLogConfig, write_sample_log
from transforms.errors import DataError, InputError

Progress = Callable[..., None]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How negatives are drawn for logs with clicks only."""

    negatives_per_positive: float = 1.0
    seed: int = 0


Prepare = Callable[[str, Path, LogOptions, Progress], str]


@dataclass(frozen=True, slots=True)
class DemoScript:
    """One demo.

    Attributes:
        example: the file of ``examples/`` with the models.
        first: the model that is submitted first and trained.
        prepare: writes the hive-partitioned Parquet and returns a sentence about it.
        split: maps the partitions' start times and the end of the last to (end of training, end of test).
        late: writes late rows, if the log has any.
    """

    table: str
    example: str
    first: str
    prepare: Prepare
    split: Callable[[Sequence[datetime], datetime], tuple[datetime, datetime]]
    late: Callable[[Path], str] | None = None
    baselines: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)


def example_path(name: str) -> Path:
    """Where a file of ``examples/`` is, in the checkout that this package runs from."""
    return Path(__file__).resolve().parents[2] / "examples" / name


def example_file(name: str) -> Path:
    """A file of ``examples/``. Raises :class:`DataError` outside of a checkout."""
    path = example_path(name)
    if not path.is_file():
        raise DataError("the demo must run in a clone of the repository, got no examples/", value=str(path),
                        next_step="make demo in a clone")  # fmt: skip
    return path


def sample_script(config: SampleLogConfig) -> DemoScript:
    """The generated search-ads log: three quarters of the hours for training, the rest for the test."""

    def prepare(source: str, folder: Path, options: LogOptions, progress: Progress) -> str:
        if source:
            raise InputError("--logs must go with a format of real logs", value=source,
                             next_step="add the format: FORMAT=globo|movielens|criteo|obd")  # fmt: skip
        report = write_sample_log(folder, config, late=False, progress=progress)
        return f"{report.rows:,} search-ads events over {report.hours} hours (seed {config.seed})"

    def late(folder: Path) -> str:
        report = write_sample_log(folder, config, late=True)
        return f"{report.late_rows:,} events arrive late, in the partitions of their hours"

    return DemoScript(
        table="search_log",
        example="search_ads.py",
        first="search_ctr",
        prepare=prepare,
        split=lambda starts, end: (starts[len(starts) * 3 // 4], end),
        late=late,
        options={"partitions_per_epoch": max(1, config.hours // 8)},
    )
