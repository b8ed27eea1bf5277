"""Training jobs of real processes whose labels change while they run."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.launch.jobs import launch, newest, prepare, run_job, settings, supervise
from tests.trainer.job.launch.test_command import Command, make_warehouse_again
from tests.warehouse.scenes import events, model, write_partition
from trainer.run.progress.data_changes import ChangePolicy
from trainer.run.weights.saved_run import SavedRun, saved_run
from trainer.scheduling.transitions import JobState
from warehouse import Warehouse, register_table, submit_model
from warehouse.changes.overlay import fix_columns
from warehouse.changes.values import GivenRows
from warehouse.config import WarehouseConfig

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow

HOURS, ROWS = 2, 600
TRAIN = ChangePolicy(train_labels=True)


def clicks(hour: int) -> np.ndarray:
    """The labels of an hour at first."""
    return np.array([(row + hour) % 3 == 0 for row in range(ROWS)])


def write_hour(folder: Path, hour: int) -> None:
    ids = pa.array(np.arange(ROWS) + 1000 * hour)
    write_partition(folder / "log", hour, events(ROWS, seed=hour, id=ids, clicked=pa.array(clicks(hour))))


@pytest.fixture
def folder(tmp_path):
    for hour in range(HOURS):
        write_hour(tmp_path, hour)
    with Warehouse.open(WarehouseConfig(home=str(tmp_path / "home"))) as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
        submit_model(warehouse, model(inputs=2))
    return tmp_path


def relabel(warehouse: Warehouse, hour: int, rows: int, *, flip: bool = True) -> None:
    """Change the labels of the first events of an hour, or set them to what they were at first."""
    values = pa.table({"id": np.arange(rows) + 1000 * hour, "clicked": clicks(hour)[:rows] ^ flip})
    fix_columns(warehouse, "log", GivenRows("clicks", values), why="a test", on=["id"])


def check(saved: SavedRun, wanted: dict[int, np.ndarray], trainings: int) -> None:
    """Every event is counted once, its recorded label is the newest, and all trainings are as many as pairs."""
    assert {int(count) for _, counts in saved.counts.counts() for count in counts} == {1}
    assert len(saved.labels.fragments) == len(wanted)
    for hour, labels in zip(sorted(wanted), saved.labels.fragments.values(), strict=True):
        assert labels.decode().tolist() == wanted[hour].astype(float).tolist()
    events_in_all = ROWS * len(wanted)
    assert saved.labels.trained_again == trainings - events_in_all
    assert sum(one.scores.events for one in saved.progress.history) == trainings


@pytest.fixture
def command(folder):
    """A job that trains changed labels while it follows its table."""
    started = Command(folder, "--follow", "--train-changed-labels")
    yield started
    if started.process.poll() is None:  # the test has failed; the processes of the job end with it
        started.process.kill()
        started.process.wait()


def test_labels_that_change_while_a_job_follows_are_trained_once_each(folder, command):
    def wait_for_commit(after: int) -> int:
        command.wait_until(
            lambda one: one.commit_epochs > after and one.state is JobState.WAITING_FOR_DATA, PATIENCE_SECS
        )
        return command.status().commit_epochs

    done = wait_for_commit(0)
    with make_warehouse_again(folder) as warehouse:
        relabel(warehouse, 0, 100)
        done = wait_for_commit(done)
        relabel(warehouse, 0, 30, flip=False)
        done = wait_for_commit(done)
        relabel(warehouse, 1, 200)
        write_hour(folder, 2)
        register_table(warehouse, "log", str(folder / "log"))
        done = wait_for_commit(done)
    wanted = {hour: clicks(hour) for hour in range(3)}
    wanted[0][30:100] ^= True
    wanted[1][:200] ^= True
    while len(saved_run(newest(command.run_dir)).labels.fragments) < 3:
        done = wait_for_commit(done)
    trainings = 3 * ROWS + 100 + 30 + 200
    report = command.end(signal.SIGINT)
    check(saved_run(newest(command.run_dir)), wanted, trainings)
    assert (report["exact"], report["counted"], report["events_this_time"]) == (True, 3 * ROWS, trainings)


def test_a_killed_host_trains_no_pair_twice(folder):
    run_dir = folder / "run"
    options = {"batch_rows": 16, "changes": TRAIN}
    of = settings(1, epoch_secs=0.3, most_restarts=20)
    with make_warehouse_again(folder) as warehouse:
        assert run_job(warehouse, run_dir, of, unit_rows=50, **options).state is JobState.DONE
        for hour in range(HOURS):
            relabel(warehouse, hour, ROWS)
        job = launch(warehouse, run_dir, of, unit_rows=50, **options)
        committed = job.newest.epochs
        killed = threading.Event()

        def kill(status) -> None:
            """Kill the host when it has trained events of the new plan that are not committed."""
            member = next((one for one in status.members if one.progress and one.progress.events), None)
            host = supervisor.running().get("h0")
            if member is not None and host is not None and status.commit_epochs > committed and not killed.is_set():
                host.process.kill()
                killed.set()

        supervisor = supervise(run_dir, job, on_status=kill)
        ended = []
        thread = threading.Thread(target=lambda: ended.append(supervisor.run(job.newest)), daemon=True)
        thread.start()
        thread.join(PATIENCE_SECS)
        assert ended[0].state is JobState.DONE
        assert killed.is_set()
        check(saved_run(newest(run_dir)), {hour: ~clicks(hour) for hour in range(HOURS)}, 2 * HOURS * ROWS)
        assert not prepare(warehouse, run_dir, **options).planned_events
