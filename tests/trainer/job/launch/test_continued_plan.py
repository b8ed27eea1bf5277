"""The plan of a job that goes on with other options: its units stay, whatever the batch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.trainer.job.launch.jobs import make_warehouse, prepare
from trainer.errors import ConfigError
from trainer.job.launch.training_job import PlanOptions, plan_with_options
from trainer.run.preparation.job_plan import JobPlan


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with make_warehouse(folder, hours=2, rows=300) as warehouse:
        prepared = prepare(warehouse, folder / "run", batch_rows=64)
        yield prepared, PlanOptions(100, shuffle_events=128).plan(prepared, 2)


def with_options(made, *, hosts: int = 2, **options):
    prepared, plan = made
    now = replace(prepared, config=replace(prepared.config, **options))
    return plan_with_options(plan, now, hosts)


def test_equal_options_keep_the_plan(made):
    assert with_options(made) is made[1]


def test_other_options_keep_the_units(made):
    plan = with_options(made, embedding_learning_rate=0.5, staleness=2, batch_rows=32)
    assert (plan.config["embedding_learning_rate"], plan.identity.config["staleness"]) == (0.5, 2)
    assert plan.config["batch_rows"] == 32
    assert plan.units == made[1].units
    again = JobPlan.from_bytes(replace(plan, continues="0" * 64).to_bytes(), "plan")
    assert (again.continues, again.config) == ("0" * 64, plan.config)


def test_windows_and_hosts_must_fit_the_batch(made):
    with pytest.raises(ConfigError, match="a window of shuffled events must be whole batches"):
        with_options(made, batch_rows=48)
    with pytest.raises(ConfigError, match="batch_rows must be at least the number of hosts"):
        with_options(made, batch_rows=4, hosts=9)
