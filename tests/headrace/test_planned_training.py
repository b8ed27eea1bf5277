"""``headrace train --plan``: the plan of ``headrace plan make`` partitions the tables, or one error says what to do."""

from __future__ import annotations

import json

import pytest

from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.planning.plan_document import plan_bytes, read_plan

OPTIONS = {"deep": True, "linear": False, "passes": 1, "batch_rows": 64, "embedding_learning_rate": 0.01, "dense_learning_rate": 0.003,
           "linear_learning_rate": 0.05, "network": "dlrm"}  # fmt: skip


@pytest.fixture
def planned(submitted, tmp_path):
    """The command line, with options in ``options.json`` and a plan of two cores in ``plan.json``."""
    submitted.options = tmp_path / "options.json"
    submitted.options.write_text(json.dumps(OPTIONS))
    submitted.plan = tmp_path / "plan.json"
    submitted("plan", "make", "first", "--topology", "cpu:2", "--config", submitted.options, "--output", submitted.plan)
    return submitted


@pytest.mark.parametrize(
    ("options", "problem", "next_step"),
    [
        (("--hosts", 3), "a plan must have a core for each host of the job", "headrace plan make MODEL --topology cpu:3"),
        (("--hosts", 2, "--least-hosts", 1), "a plan must have a core for each host of the job", "leave --least-hosts out"),
        (("--follow",), "a plan must have a core for each host of the job", "or --hosts 2"),
        (("--launcher", "gke", "--topology", "v5p:2x2x1", "--run-dir", "gs://b/r", "--images", "i", "--version", 1), "an option must not be of one machine", "leave it out"),
    ],
)  # fmt: skip
def test_a_plan_that_a_job_cannot_follow_is_refused(planned, options, problem, next_step):
    answer = planned("train", "first", "--config", planned.options, "--plan", planned.plan, *options, status=2)
    assert problem in answer.err
    assert next_step in answer.err


def test_a_plan_of_other_tables_is_refused_before_anything_is_trained(planned, tmp_path):
    planned("plan", "make", "second", "--topology", "cpu:2", "--config", planned.options, "--output", "second.json")
    answer = planned("train", "first", "--config", planned.options, "--plan", "second.json", status=2)
    assert "a plan must have the embedding tables of the model" in answer.err
    assert "also position" in answer.err
    assert not (tmp_path / "home" / "runs").exists()
    answer = planned("train", "first", "--plan", "none.json", status=2)
    assert "the file must be readable" in answer.err
    wide = tmp_path / "wide.json"
    wide.write_text(json.dumps({**OPTIONS, "dim": 8}))
    answer = planned("train", "first", "--config", wide, "--plan", planned.plan, status=2)
    assert "a planned table must be as large as the engine's" in answer.err


@pytest.mark.slow
def test_a_plan_trains_in_one_process_and_in_a_job(planned, tmp_path):
    plan = read_plan(planned.plan.read_bytes(), "plan")
    arguments = ("train", "first", "--config", planned.options, "--plan", planned.plan)
    alone = planned(*arguments, "--run-dir", tmp_path / "alone", "--json").json
    assert alone["exact"] is True
    job = planned(*arguments, "--hosts", 2, "--readers", 1, "--run-dir", tmp_path / "job", "--json").json
    assert job["exact"] is True
    shown = planned("ckpt", "show", tmp_path / "job", "--json").json
    assert shown["partition"].startswith("the plan ")
    assert shown["partition"].endswith(f"of {plan.cores} cores")
    again = planned(*arguments, "--hosts", 2, "--run-dir", tmp_path / "job", "--json").json
    assert again["events_this_time"] == 0
    first, *rest = plan.tables
    moved = TablePlan(
        first.name, first.rows, first.columns, (Slice(0, first.columns, (1 - first.slices[0].cores[0],)),)
    )
    (tmp_path / "moved.json").write_bytes(plan_bytes(PartitionPlan(2, (moved, *rest))))
    answer = planned("train", "first", "--config", planned.options, "--hosts", 2, "--run-dir", tmp_path / "job", "--plan",
                     tmp_path / "moved.json", status=2)  # fmt: skip
    assert "a run must go on by the plan of its newest commit, got another one" in answer.err
    assert "headrace ckpt reshard" in answer.err
    document = json.loads((tmp_path / "job" / "job" / "job.json").read_text())
    assert document["partition"]
