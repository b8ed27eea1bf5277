"""The files of a sweep: what was asked for, the options of each trial, and what its jobs have measured."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from trainer.job.control.job_files import replace_file
from transforms.derived_documents import Derivation, document_of, whole
from transforms.documents import document_part, parse_document
from transforms.errors import InputError, NotFound
from transforms.names import check_name
from warehouse.storage.durable_files import make_folders

_MOST_BYTES = 1 << 24
_STRICT = Derivation()
#: Figures by which trials are compared, in the order in which they are looked for: less is better.
FIGURES = ("normalized_entropy", "normalized_error", "log_loss", "mean_squared_error")


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What a sweep trains.

    Attributes:
        model: its name.
        trials: the options of each trial, over those of ``options``.
        options: training options of all trials.
        arguments: of ``headrace train`` for all trials.
        ends: of each rung, the end of the trained partitions and that of the tested ones, ISO 8601.
        counts: the most trials of each rung.
    """

    model: str
    trials: tuple[Mapping[str, Any], ...]
    options: Mapping[str, Any]
    arguments: tuple[str, ...]
    ends: tuple[tuple[str, str], ...]
    counts: tuple[Annotated[int, whole(1)], ...]


@dataclass(frozen=True, slots=True)
class SweepFolder:
    """The folder of a sweep."""

    path: Path

    @classmethod
    def of_home(cls, home: str, name: str) -> SweepFolder:
        """The folder of a sweep in a home. Raises :class:`InputError` for an invalid name."""
        check_name(name, "a sweep", where="NAME", most=64)
        return cls(Path(home) / "sweeps" / name)

    @property
    def fleet(self) -> Path:
        """The fleet of its jobs."""
        return self.path / "fleet"

    def run_dir(self, trial: int) -> Path:
        """The run of a trial."""
        return self.path / "runs" / f"trial-{trial:03d}"

    def config(self, trial: int) -> Path:
        """The training options of a trial."""
        return self.path / "trials" / f"{trial:03d}.json"

    def begin(self, plan: SweepPlan) -> None:
        """Write the plan, or find it again. Raises :class:`InputError` if the sweep of this name has another one."""
        file = self.path / "sweep.json"
        if file.exists():
            if self.plan() != plan:
                raise InputError(
                    "a sweep must go on with what it began with",
                    where=str(file),
                    next_step="give another NAME, or the same options",
                )
            return
        make_folders(self.path / "trials")
        for number, trial in enumerate(plan.trials):
            replace_file(self.config(number), json.dumps({**plan.options, **trial}, indent=2).encode())
        replace_file(file, json.dumps(document_of(plan)).encode())

    def plan(self) -> SweepPlan:
        """The plan. Raises :class:`NotFound` without one, and :class:`~transforms.errors.DataError` for a damaged one."""
        file = self.path / "sweep.json"
        try:
            with open(file, "rb") as stream:
                content = stream.read(_MOST_BYTES)
        except FileNotFoundError:
            raise NotFound(
                "the home has no such sweep", where=str(self.path), next_step="headrace sweep run NAME MODEL --option …"
            ) from None
        found = _STRICT.read(SweepPlan, parse_document(content, str(file), most_bytes=_MOST_BYTES))
        if len(found.ends) != len(found.counts):
            raise document_part({}, str(file)).refused("an end for each rung")
        return found


def job_name(rung: int, trial: int) -> str:
    """The name of the job of a trial in a rung."""
    return f"rung{rung}-trial{trial}"


def score_of(record: Mapping[str, Any]) -> float | None:
    """The figure of the test in the record of a training, of several labels the mean; None without one."""
    test = record.get("test")
    if not isinstance(test, dict):
        return None
    tasks = test.get("tasks")
    each: Sequence[Any] = list(tasks.values()) if isinstance(tasks, dict) else [test]
    found = [next((one[name] for name in FIGURES if isinstance(one.get(name), int | float)), math.nan) for one in each]
    mean = sum(found) / len(found) if found else math.nan
    return mean if math.isfinite(mean) else None
