"""``headrace train --plan``: the plan of ``headrace plan make`` partitions the tables, or one error says what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.host_steps import check_hosts_train
from trainer.job.launch.run_comparison import run_differences
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan
from trainer.planning.plan_document import plan_bytes, read_plan

#: Not deterministic: other tests of this process may have begun TensorFlow with other threads.
OPTIONS = {"deep": True, "linear": False, "passes": 1, "batch_rows": 64, "embedding_learning_rate": 0.01, "dense_learning_rate": 0.003,
           "linear_learning_rate": 0.05, "network": "dlrm", "deterministic": False}  # fmt: skip


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
        (("--launcher", "gke", "--hosts", 3, "--readers", 1, "--run-dir", "gs://b/r", "--images", "i", "--version", 1), "a plan must have a core for each host of the job", "--topology cpu:3"),
        (("--launcher", "gke", "--servers", 3, "--readers", 1, "--run-dir", "gs://b/r", "--images", "i", "--version", 1), "a plan must have a core for each server", "--topology ps:3"),
        (("--launcher", "tpu-vm", "--topology", "v5p:2x2x1", "--zone", "us-east5-a", "--run-dir", "gs://b/r", "--images", "i", "--version", 1), "this option needs a job on one machine", "leave it out"),
    ],
)  # fmt: skip
def test_a_plan_that_a_job_cannot_follow_is_refused(planned, options, problem, next_step):
    answer = planned("train", "first", "--config", planned.options, "--plan", planned.plan, *options, status=2)
    assert problem in answer.err
    assert next_step in answer.err


def test_a_plan_of_other_tables_is_refused_before_anything_is_trained(planned, tmp_path):
    other = tmp_path / "second.json"
    planned("plan", "make", "second", "--topology", "cpu:2", "--config", planned.options, "--output", other)
    answer = planned("train", "first", "--config", planned.options, "--plan", other, status=2)
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
    check_hosts_train(job, 2)
    assert alone["placement"] == job["placement"]
    assert (job["placement"]["how"], job["placement"]["parts"]) == ("plan", 2)
    assert 0.5 <= job["placement"]["largest_share"] < 1
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
    assert "a run must continue with the plan of its newest commit, got another plan" in answer.err
    assert "headrace ckpt reshard" in answer.err
    document = json.loads((tmp_path / "job" / "job" / "job.json").read_text())
    assert document["partition"]


@pytest.mark.parametrize(
    ("options", "problem", "next_step"),
    [
        ((), "a plan that follows the data must be that of two hosts or more", "give --hosts 2"),
        (("--hosts", 1), "a plan that follows the data must be that of two hosts or more", "give --hosts 2"),
        (("--hosts", 2, "--servers", 2), "a plan that follows the data must be that of hosts", "headrace ps move"),
        (("--hosts", 3, "--least-hosts", 2), "a plan that follows the data must have all hosts", "leave --least-hosts out"),
        (("--hosts", 2, "--follow", "--caught-up-hosts", 1), "this job needs a fixed number of hosts", "leave --caught-up-hosts out"),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_follow_the_data_is_refused(planned, options, problem, next_step):
    answer = planned("train", "first", "--config", planned.options, "--plan", "auto", *options, status=2)
    assert problem in answer.err
    assert next_step in answer.err


@pytest.mark.slow
def test_a_plan_follows_the_data_and_says_how(planned, tmp_path):
    """From rows that are spread, and from the commit of a plan in which one host has all tables: no bit is another."""
    planned.options.write_text(json.dumps({**OPTIONS, "passes": 6, "statistics_share": 1.0, "partitions_per_epoch": 1}))
    arguments = ("train", "first", "--config", planned.options, "--hosts", 2, "--readers", 1, "--json")
    assert "this run has no plan that follows its data" in planned("plan", "history", tmp_path, status=4).err
    plain = planned(*arguments, "--run-dir", tmp_path / "plain").json
    assert plain["followed_plan"] is None
    followed = planned(*arguments, "--plan", "auto", "--run-dir", tmp_path / "followed").json
    assert followed["exact"] is True
    assert followed["followed_plan"]["run"] == str(tmp_path / "followed")
    assert followed["followed_plan"]["looks"] == len(followed["epochs"]), "every commit is looked at once"
    assert run_differences(tmp_path / "followed", tmp_path / "plain") == ()
    shown = planned("plan", "history", tmp_path / "followed", "--json").json
    assert shown["changes"][0]["reason"] == "statistics"
    assert shown["followed"] == followed["followed_plan"]

    plan = read_plan(planned.plan.read_bytes(), "plan")
    (tmp_path / "one.json").write_bytes(plan_bytes(PartitionPlan(2, tuple(
        TablePlan(one.name, one.rows, one.columns, (Slice(0, one.columns, (0,)),)) for one in plan.tables
    ))))  # fmt: skip
    begun, end = (*arguments, "--run-dir", tmp_path / "begun"), "2026-03-02T01:00"
    planned(*begun, "--plan", tmp_path / "one.json", "--end", end)
    again = planned(*begun, "--plan", "auto").json
    assert again["exact"] is True
    shown = planned("plan", "history", tmp_path / "begun", "--json").json
    assert shown["changes"][0]["reason"] == "commit"
    text = planned("plan", "history", tmp_path / "begun").out
    assert "that of commit" in text
    assert "follows the data" in text


def test_a_check_of_a_slice_says_what_it_does_not_take(planned, tmp_path):
    pytest.importorskip("tensorflow")
    arguments = (
        "tpu",
        "check",
        "first",
        "--topology",
        "v5p:2x2x1",
        "--config",
        planned.options,
        "--events",
        64,
        "--environment",
        tmp_path,
    )
    stacks = (("user",), ("overlap",))
    plan = read_plan(planned.plan.read_bytes(), "plan")
    apart = tmp_path / "apart.json"
    apart.write_bytes(plan_bytes(PartitionPlan(plan.cores, plan.tables, stacks)))
    answer = planned(*arguments, "--plan", apart)
    assert "not taken of the plan:" in answer.out
    assert "The plan has 2 cores and the slice 16 SparseCores" in answer.out
    assert "limits of SparseCore are 256 ids" in answer.err
    found = planned(*arguments, "--plan", apart, "--json").json["slices"][0]
    assert sorted(one["tables"] for one in found["stacks"]) == [["overlap"], ["user"]]
    together = planned(*arguments, "--json").json["slices"][0]
    assert [sorted(one["tables"]) for one in together["stacks"]] == [["overlap", "user"]]
    assert together["not_taken"] == []
    err = planned("tpu", "check", "second", *arguments[3:], "--plan", apart, status=2).err
    assert "a plan must have the embedding tables of the model" in err
    whole = tmp_path / "whole.json"
    copies = [replace(one, slices=(Slice(0, one.columns, (0, 1)),), is_replicated=True) for one in plan.tables]
    whole.write_bytes(plan_bytes(PartitionPlan(2, tuple(copies))))
    answer = planned(*arguments, "--plan", whole)
    assert "(replicated)" in answer.out
    found = planned(*arguments, "--plan", whole, "--json").json["slices"][0]
    assert [one["is_replicated"] for one in found["stacks"]].count(True) == len(plan.tables) - 1
    assert "Tables that the plan has replicated (" in found["not_taken"][1]


@pytest.mark.slow
def test_a_slice_trains_with_the_stacks_of_a_plan_and_says_the_rest(planned, tmp_path, monkeypatch):
    pytest.importorskip("tensorflow")
    from tests.support.emulated_slice import EmulatedSlice

    made = []

    def connect(name, settings, on_lost):
        made.append(EmulatedSlice(2, settings=settings))
        make = made[-1].make_engine
        made[-1].make_engine = lambda *given, **options: engines.append(make(*given, **options)) or engines[-1]
        return made[-1]

    engines = []
    monkeypatch.setattr("trainer.tables.tpu.connected_slice.connect", connect)
    plan = read_plan(planned.plan.read_bytes(), "plan")
    apart = tmp_path / "apart.json"
    apart.write_bytes(plan_bytes(PartitionPlan(plan.cores, plan.tables, (("user",), ("overlap",)))))
    options = tmp_path / "tpu.json"
    options.write_text(json.dumps({**OPTIONS, "linear": True, "statistics_share": 1.0}))
    arguments = (
        "train",
        "first",
        "--config",
        options,
        "--run-dir",
        tmp_path / "run",
        "--tpu",
        "local",
        "--plan",
        apart,
    )
    first = planned(*arguments, "--end", "2026-03-02T02:00", "--json")
    assert first.json["exact"] is True
    assert "The plan has 2 cores and the slice 8 SparseCores" in first.err
    assert "TensorFlow's, for there are no statistics of overlap, user" in first.err
    stacks = sorted(sorted(one.name for one in tables) for tables in engines[0].stacks())
    assert stacks == [["linear/overlap", "linear/user"], ["overlap"], ["user"]]
    again = planned(*arguments, "--json")
    assert "by the statistics of all features" in again.err
    limits = engines[1].settings.default_max_ids
    assert f"limits of SparseCore are {limits} ids" in again.err
    err = planned(*arguments, "--launcher", "remote", "--hosts", 1, "--listen", "127.0.0.1:0", status=2).err
    assert "--plan with --tpu needs a single process" in err
    copies = tuple(replace(one, is_replicated=one.name == "user") for one in cyclic_plan(
        [(one.name, one.rows, one.columns) for one in plan.tables], 8).tables)  # fmt: skip
    apart.write_bytes(plan_bytes(PartitionPlan(8, copies)))
    whole = (
        *arguments[: arguments.index("--run-dir")],
        "--run-dir",
        tmp_path / "whole",
        "--tpu",
        "local",
        "--plan",
        apart,
    )
    report = planned(*whole, "--json")
    assert dict(engines[-1].settings.replicated) == {"user": 1, "linear/user": 1}
    assert report.json["exact"] is True
    assert "Tables that" not in report.err


@pytest.mark.slow
def test_a_plan_for_sparse_cores_has_the_limits_of_their_buffers(planned, tmp_path):
    pytest.importorskip("tensorflow")
    arguments = (
        "plan",
        "make",
        "first",
        "--topology",
        "v5p:2x2x1",
        "--config",
        planned.options,
        "--batch-events",
        4096,
    )
    answer = planned(*arguments)
    assert "there are no statistics of overlap, user" in answer.err
    assert "limits of SparseCore" not in answer.out
    options = tmp_path / "sampled.json"
    options.write_text(json.dumps({**OPTIONS, "statistics_share": 1.0}))
    planned("train", "first", "--config", options, "--run-dir", tmp_path / "run")
    made = planned(*arguments, "--output", tmp_path / "tpu.json")
    assert "limits of SparseCore's buffers, by statistics" in made.out
    assert planned("plan", "show", tmp_path / "tpu.json").out == made.out
    limits = planned("plan", "show", tmp_path / "tpu.json", "--json").json["report"]["limits"]
    assert sorted(name for one in limits for name in one["tables"]) == ["overlap", "user"]
    assert all(0 < one["rows"] <= one["ids"] for one in limits)
    cpu = planned(*arguments[:4], "cpu:4", *arguments[5:])
    assert "limits of SparseCore" not in cpu.out + cpu.err
    tables = tmp_path / "tables.json"
    tables.write_text(json.dumps({"tables": [{"name": "t", "rows": 9, "dim": 8}]}))
    assert (
        "a file of tables does not state" in planned("plan", "make", "--tables", tables, "--topology", "v5p:2x2x1").err
    )


@pytest.fixture
def towers(planned, tmp_path):
    """A file of two towers."""
    made = tmp_path / "towers.json"
    planned("towers", "make", "first", "--towers", 2, "--strategy", "strided", "--output", made)
    return made


@pytest.mark.parametrize(
    ("options", "problem", "next_step"),
    [
        ((), "--towers must go with --hosts", "give --hosts too"),
        (
            ("--hosts", 2, "--servers", 2),
            "tables on servers must be trained without towers",
            "leave --towers or --servers out",
        ),
        (
            ("--hosts", 2, "--plan", "plan.json"),
            "a job by towers must be trained without a plan",
            "leave --towers or --plan out",
        ),
        (("--hosts", 3, "--least-hosts", 2), "needs a fixed number of hosts", "leave --least-hosts out"),
        (("--hosts", 1), "towers must be at most as many as hosts", "join towers"),
        (("--hosts", 4, "--hosts-per-machine", 3), "the hosts of a machine must divide the hosts of the job", ""),
        (
            ("--hosts", 4, "--hosts-per-machine", 4),
            "towers must divide the machines of a job equally",
            "make other towers",
        ),
        (("--hosts", 4, "--hosts-per-machine", -1), "the hosts of a machine must be at least 1", ""),
    ],
)
def test_towers_that_a_job_cannot_have_are_refused(planned, towers, monkeypatch, options, problem, next_step):
    monkeypatch.chdir(towers.parent)
    answer = planned("train", "first", "--config", planned.options, "--towers", towers, *options, status=2)
    assert problem in answer.err
    assert next_step in answer.err


def test_an_error_of_towers_names_their_option_and_comes_before_options_are_tried(planned, towers, tmp_path):
    options = tmp_path / "linear.json"
    chosen = json.loads(Path(planned.options).read_text(encoding="utf-8"))
    options.write_text(json.dumps({**chosen, "deep": False, "linear": True}), encoding="utf-8")
    answer = planned("train", "first", "--config", options, "--hosts", 2, "--towers", towers, status=2)
    assert "--towers needs a model with embedding tables" in answer.err
    assert 'train without --towers, or give {"deep": true}' in answer.err
    answer = planned("train", "first", "--hosts", 4, "--towers", towers, "--hosts-per-machine", 3, status=2)
    assert "the hosts of a machine must divide the hosts of the job" in answer.err
    assert "trying candidates" not in answer.err + answer.out


def test_other_towers_are_refused_before_anything_is_trained(planned, towers, tmp_path):
    planned("train", "first", "--hosts", 2, "--towers", planned.options, status=2)
    other = tmp_path / "second.json"
    planned("towers", "make", "second", "--towers", 2, "--strategy", "strided", "--output", other)
    answer = planned("train", "first", "--config", planned.options, "--hosts", 2, "--towers", other, status=2)
    assert "a tower must name features of ids" in answer.err
    assert not (tmp_path / "home" / "runs").exists()


@pytest.mark.slow
def test_towers_train_in_a_job(planned, towers, tmp_path):
    arguments = ("train", "first", "--config", planned.options, "--hosts", 2, "--readers", 1, "--json")
    flat = planned(*arguments, "--run-dir", tmp_path / "flat").json
    found = planned(*arguments, "--towers", towers, "--tower-sums", "--run-dir", tmp_path / "towers").json
    assert found["exact"] is True
    assert found["tower_figures"]["between_bytes"] > 0
    assert found["tower_figures"]["inside_bytes"] == 0
    assert flat["tower_figures"] is None
    check_hosts_train(found, 2)
    assert found["epochs"] == flat["epochs"]
    assert planned("ckpt", "show", tmp_path / "towers", "--json").json["partition"].endswith("of 2 cores")
    again = planned(*arguments, "--towers", towers, "--run-dir", tmp_path / "towers").json
    assert again["events_this_time"] == 0
    reshard = ("ckpt", "reshard", tmp_path / "flat", "--output", tmp_path / "written", "--towers", towers)
    assert "--towers must go with --hosts" in planned(*reshard, status=2).err
    answer = planned(
        "train",
        "first",
        "--config",
        planned.options,
        "--hosts",
        2,
        "--towers",
        towers,
        "--run-dir",
        tmp_path / "flat",
        status=2,
    )
    assert "headrace ckpt reshard" in answer.err
    assert f"2 hosts with the towers of {towers}" in planned(*reshard, "--hosts", 2).out
    again = planned(*arguments, "--towers", towers, "--run-dir", tmp_path / "written").json
    assert again["events_this_time"] == 0
