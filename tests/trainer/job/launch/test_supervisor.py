"""What a supervisor tells the controller of a job that follows its data."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.errors import ConfigError
from trainer.job.control.job_files import JobFiles
from trainer.job.launch.supervisor import Supervisor
from trainer.scheduling.transitions import FINAL, JobState
from transforms.errors import HeadraceError, StorageError


def told(
    folder: Path, state: JobState, known: str, wanted: str | None, error: HeadraceError | None = None
) -> tuple[list[str], list[str]]:
    """The plans that a controller hears of which knows one, and the messages; ``wanted``: None without a search for plans."""
    heard: list[str] = []
    said: list[str] = []

    def partition(name: str) -> None:
        heard.append(name)
        if error is not None:
            raise error

    find = None if wanted is None else lambda status: wanted
    supervisor = Supervisor(
        JobFiles(folder), "job", lambda *given: [], lambda status: None, said.append, find_partition=find
    )
    client: Any = SimpleNamespace(partition=partition)
    status: Any = SimpleNamespace(state=state, wanted_partition=known)
    supervisor._change_partition(client, status)
    return heard, said


def test_a_controller_hears_of_another_plan_until_it_knows_it(tmp_path: Path) -> None:
    assert told(tmp_path, JobState.TRAINING, "a", "b") == (["b"], [])
    assert told(tmp_path, JobState.TRAINING, "", "b") == (["b"], [])
    assert told(tmp_path, JobState.TRAINING, "a", "") == (
        [
            "",
        ],
        [],
    ), "rows are spread again"
    assert told(tmp_path, JobState.TRAINING, "b", "b") == ([], [])
    assert told(tmp_path, JobState.TRAINING, "a", None) == ([], [])
    for state in FINAL:
        assert told(tmp_path, state, "a", "b") == ([], [])


def test_a_controller_that_is_away_hears_of_it_later_and_another_error_is_raised(tmp_path: Path) -> None:
    away = StorageError("the disk is full")
    assert told(tmp_path, JobState.TRAINING, "a", "b", away) == (
        ["b"],
        ["the controller did not answer: the disk is full"],
    )
    with pytest.raises(ConfigError):
        told(tmp_path, JobState.TRAINING, "a", "b", ConfigError("no such plan"))
