"""The metric history of jobs: one of all hosts, with each step once, also after kills and with other hosts."""

from __future__ import annotations

import random

import pytest

from tests.trainer.job.launch.jobs import launch, make_warehouse, newest, run_job, run_killed, settings, train_alone
from tests.trainer.run.test_history_runs import assert_same_training, column, newest_history
from trainer.job.launch.resharded_run import reshard_run
from trainer.planning.plan import PartitionPlan
from trainer.scheduling.transitions import JobState

pytest.importorskip("tensorflow")
OPTIONS = {"batch_rows": 64, "passes": 2}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    with make_warehouse(tmp_path_factory.mktemp("warehouse"), hours=3, rows=1500) as opened:
        yield opened


@pytest.mark.medium
def test_a_job_has_the_history_of_one_process(warehouse, tmp_path):
    status = run_job(warehouse, tmp_path / "job", settings(), unit_rows=700, **OPTIONS)
    assert status.state is JobState.DONE
    train_alone(warehouse, tmp_path / "alone", **OPTIONS)
    job, alone = newest_history(tmp_path / "job"), newest_history(tmp_path / "alone")
    assert_same_training(alone, job)
    assert sum(column(job, "fullness_samples")) >= len(job.windows)


@pytest.mark.slow
def test_killed_hosts_leave_each_window_once(warehouse, tmp_path):
    """Two hosts, of which rank 0 keeps the history; then a resharded run goes on with the history."""
    options = {**OPTIONS, "passes": 3}
    assert run_job(warehouse, tmp_path / "straight", settings(2), unit_rows=200, **options).state is JobState.DONE
    random.seed(7)
    run_killed(tmp_path / "killed", launch(warehouse, tmp_path / "killed", settings(2), unit_rows=200, **options))
    straight, killed = newest_history(tmp_path / "straight"), newest_history(tmp_path / "killed")
    for history in (straight, killed):
        assert sum(column(history, "steps")) == history.step
        assert sum(column(history, "events")) == sum(one["scores"]["events"] for one in newest(tmp_path / "straight").document["history"])  # fmt: skip
    for name in ("step", "steps", "events", "epoch"):
        assert column(straight, name) == column(killed, name)
        assert column(straight, name, rows="commits") == column(killed, name, rows="commits")
    reshard_run(str(tmp_path / "killed"), newest(tmp_path / "killed").epochs_done, PartitionPlan(3, ()), tmp_path / "new")  # fmt: skip
    assert_same_training(killed, newest_history(tmp_path / "new"))
