"""Notices to servers and embedding workers of one job: the counts, and a job under a few of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.server_notices import SERVER, WORKER, Epochs, disturb
from tests.trainer.job.control.serving import serving
from tests.trainer.job.launch.jobs import make_warehouse
from trainer.job.control.messages import JobStatus, MemberStatus, Progress
from trainer.scheduling.events import Role, RoleKind


def test_an_epoch_of_two_attempts_is_repeated_and_those_without_events_are_not_counted(tmp_path: Path) -> None:
    with serving(tmp_path / "run") as found:
        empty = found.client.status()

    def status(attempt: int, epoch: int, events: int, of_attempt: int | None = None) -> JobStatus:
        progress = Progress(attempt if of_attempt is None else of_attempt, events=events)
        host = MemberStatus(Role(RoleKind.HOST, "h0"), 1, "", 0.0, False, 0, progress, None)
        return replace(empty, attempt=attempt, epoch=epoch, members=(host,))

    epochs = Epochs()
    for one in (status(1, 0, 5), status(1, 0, 9), status(2, 1, 0), status(3, 1, 4), status(4, 2, 4, of_attempt=3)):
        epochs.see(one)
    assert (epochs.given_up, epochs.repeated) == ((), 0)
    for one in (status(5, 2, 1), status(6, 2, 3), status(7, 2, 3)):
        epochs.see(one)
    assert (epochs.given_up, epochs.repeated) == ((1, 3), 1)


@pytest.mark.slow
def test_notices_lose_and_repeat_no_epoch(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    with make_warehouse(tmp_path, hours=2, rows=1_500) as warehouse:
        found = disturb(warehouse, tmp_path, notices=4, servers=2, workers=2, passes=12, epoch_secs=1.0, seed=3)
    assert found.given[SERVER] >= 1, "the job outlasts one of each"
    assert found.given[WORKER] >= 1
    assert found.repeated == len(found.given_up)
    assert (found.trained.events, found.trained.lost, found.trained.repeated) == (3_000, 0, 0)
    assert found.is_exact
