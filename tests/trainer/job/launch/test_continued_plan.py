"""The plan of a job that goes on with other options: its units stay, and a batch changes between epochs alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.trainer.job.launch.jobs import make_warehouse, prepare
from trainer.errors import ConfigError, RunMismatch
from trainer.job.launch.training_job import PlanOptions, plan_with_options
from trainer.run.preparation.job_plan import JobPlan


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with make_warehouse(folder, hours=2, rows=300) as warehouse:
        prepared = prepare(warehouse, folder / "run", batch_rows=64)
        yield prepared, PlanOptions(100, shuffle_events=128).plan(prepared, 2)


def with_options(made, *, is_within_epoch: bool, hosts: int = 2, **options):
    prepared, plan = made
    now = replace(prepared, config=replace(prepared.config, **options))
    return plan_with_options(plan, now, hosts, is_within_epoch=is_within_epoch)


def test_equal_options_keep_the_plan(made):
    for is_within_epoch in (False, True):
        assert with_options(made, is_within_epoch=is_within_epoch) is made[1]


def test_other_options_keep_the_units(made):
    plan = with_options(made, is_within_epoch=True, embedding_learning_rate=0.5, staleness=2)
    assert (plan.config["embedding_learning_rate"], plan.identity.config["staleness"]) == (0.5, 2)
    assert plan.units == made[1].units
    again = JobPlan.from_bytes(replace(plan, continues="0" * 64).to_bytes(), "plan")
    assert (again.continues, again.config) == ("0" * 64, plan.config)


def test_a_batch_changes_between_epochs(made):
    assert with_options(made, is_within_epoch=False, batch_rows=32).config["batch_rows"] == 32
    with pytest.raises(RunMismatch, match="a batch must stay until the epoch ends") as refused:
        with_options(made, is_within_epoch=True, batch_rows=32)
    assert (refused.value.value, refused.value.allowed) == (32, "64")


def test_windows_and_hosts_must_fit_the_batch(made):
    with pytest.raises(ConfigError, match="a window of shuffled events must be whole batches"):
        with_options(made, is_within_epoch=False, batch_rows=48)
    with pytest.raises(ConfigError, match="batch_rows must be at least the number of hosts"):
        with_options(made, is_within_epoch=False, batch_rows=4, hosts=9)
