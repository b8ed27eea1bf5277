"""Jobs of real processes whose hosts hold the tables that a plan says: they train what a job without a plan trains."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.trainer.job.launch.jobs import (
    copy_begun,
    launch,
    make_warehouse,
    newest,
    prepare,
    run_job,
    run_killed,
    settings,
    supervise,
    train_alone,
)
from trainer.checkpoints.checkpoint import read_epoch
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import verify_commit
from trainer.errors import ConfigError, RunMismatch
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import JobStatus
from trainer.job.launch.job_spec import JobSpec
from trainer.job.launch.resharded_run import reshard_run
from trainer.job.launch.run_comparison import run_differences
from trainer.planning.plan import PartitionPlan, Slice, TablePlan, cyclic_plan
from trainer.planning.plan_document import plan_bytes
from trainer.run.weights.run_partition import check_hosts, check_stored, check_tables
from trainer.scheduling.transitions import JobState
from trainer.tables.spec import tables_of

pytest.importorskip("tensorflow")
OPTIONS = {"batch_rows": 64, "passes": 2, "linear": True, "keep_checkpoints": 9}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    with make_warehouse(tmp_path_factory.mktemp("warehouse"), hours=2, rows=1500) as opened:
        yield opened


def tables(warehouse, run_dir: Path):
    return tables_of(prepare(warehouse, run_dir, **OPTIONS).layout.features)


def mixed(warehouse, run_dir: Path) -> PartitionPlan:
    """On two cores: slices of columns, blocks of rows, and a replicated table, in turn."""
    found = []
    for k, one in enumerate(tables(warehouse, run_dir)):
        rows, columns = one.vocabulary_size, one.dim
        ways = (
            ((Slice(0, 1, (1,)), Slice(1, columns - 1, (0, 1))), False),
            ((Slice(0, columns, (1, 0), (rows // 3, rows)),), False),
            ((Slice(0, columns, (0, 1)),), True),
        )
        slices, is_replicated = ways[k % 3]
        found.append(TablePlan(one.name, rows, columns, slices, is_replicated))
    return PartitionPlan(2, tuple(found))


@pytest.mark.slow
def test_a_job_by_a_plan_trains_what_one_without_trains(warehouse, tmp_path):
    """Bit for bit, although a host is killed, and other processes go on from its commits."""
    plan = mixed(warehouse, tmp_path / "by-plan")
    assert [one.partition for one in plan.tables] == ["column and row", "row", "replicated"]
    job = launch(warehouse, tmp_path / "by-plan", settings(2, most_restarts=9), unit_rows=300, plan=plan, **OPTIONS)
    run_killed(tmp_path / "by-plan", job)
    run_job(warehouse, tmp_path / "by-rows", settings(2), unit_rows=300, **OPTIONS)
    assert run_differences(tmp_path / "by-plan", tmp_path / "by-rows") == ()
    last = newest(tmp_path / "by-plan")
    assert last.partition == plan
    assert newest(tmp_path / "by-rows").partition is None
    verify_commit(open_run(tmp_path / "by-plan"), last.name)
    prepared = prepare(warehouse, tmp_path / "by-plan", **OPTIONS)
    assert prepared.summary().exact
    check_stored(plan, prepared.saved)
    with pytest.raises(RunMismatch, match="a run must continue with the plan of its newest commit") as raised:
        check_stored(PartitionPlan(2, plan.tables[::-1][:-1]), prepared.saved)
    assert "headrace ckpt reshard" in raised.value.next_step


@pytest.mark.slow
def test_a_job_changes_its_plan_while_it_trains(warehouse, tmp_path):
    """Two times, from rows to a plan and back, with a host and the controller killed after the first change: no bit differs."""
    run, plan = tmp_path / "changed", mixed(warehouse, tmp_path / "changed")
    job = launch(warehouse, run, settings(2, most_restarts=9), unit_rows=300, **OPTIONS)
    files, used, killed = JobFiles(run), [], []
    name = files.put_document(plan_bytes(plan))

    def wanted(status: JobStatus) -> str:
        found = name if 1 <= status.commit_epochs < 3 else ""
        if (spec := JobSpec.read(files)).partition != found:
            replace(spec, partition=found).write(files)
        return found

    def see(status: JobStatus) -> None:
        if not used or used[-1] != status.partition:
            used.append(status.partition)
        if status.partition and not killed:
            for one in {one.kind: one for one in supervisor.running().values() if one.kind != "reader"}.values():
                one.process.kill()
                killed.append(one)

    supervisor = supervise(run, job, on_status=see, find_partition=wanted)
    assert supervisor.run(job.newest).state is JobState.DONE
    assert {one.kind for one in killed} == {"controller", "host"}
    assert used == ["", name, ""]
    commits = [read_epoch(str(run), k).partition for k in range(1, newest(run).epochs_done + 1)]
    assert commits[0] is None
    assert plan in commits
    run_job(warehouse, tmp_path / "by-rows", settings(2), unit_rows=300, **OPTIONS)
    assert run_differences(run, tmp_path / "by-rows") == ()
    assert prepare(warehouse, run, **OPTIONS).summary().exact


@pytest.mark.slow
def test_a_run_goes_on_from_a_commit_by_a_plan(warehouse, tmp_path):
    """By the same plan, by another after resharding, and without one, a job ends in the same bits; one process goes on too."""
    run, plan = tmp_path / "run", mixed(warehouse, tmp_path / "run")
    assert run_job(warehouse, run, settings(2), unit_rows=300, plan=plan, **OPTIONS).state is JobState.DONE
    begun = tmp_path / "begun"
    copy_begun(run, begun)
    cyclic = cyclic_plan([(one.name, one.rows, one.columns) for one in plan.tables], 2)
    reshard_run(str(begun), 2, cyclic, tmp_path / "cyclic")
    saved = prepare(warehouse, tmp_path / "cyclic", **OPTIONS).saved
    check_stored(cyclic, saved)
    with pytest.raises(RunMismatch, match="a run must continue with the plan"):
        check_stored(plan, saved)
    for name in ("same", "without", "alone"):
        shutil.copytree(begun, tmp_path / name)
    for name, by in (("same", plan), ("cyclic", cyclic), ("without", None)):
        assert (
            run_job(warehouse, tmp_path / name, settings(2), unit_rows=300, plan=by, **OPTIONS).state is JobState.DONE
        )
        assert run_differences(tmp_path / name, run) == (), name
        assert newest(tmp_path / name).partition == by
    train_alone(warehouse, tmp_path / "alone", **OPTIONS)
    prepared = prepare(warehouse, tmp_path / "alone", **OPTIONS)
    assert prepared.summary().exact
    assert prepared.saved.partition is None
    check_stored(plan, prepared.saved)


@pytest.mark.slow
def test_simulated_cores_and_one_engine_continue_each_other(warehouse, tmp_path):
    """A plan changes the order of a row's sums, and nothing of checkpoints."""
    options = {**OPTIONS, "passes": 1, "partitions_per_epoch": 1}
    plan = mixed(warehouse, tmp_path / "planned")
    train_alone(warehouse, tmp_path / "plain", **options)
    train_alone(warehouse, tmp_path / "planned", plan, **options)
    train_alone(warehouse, tmp_path / "again", plan, **options)
    assert run_differences(tmp_path / "planned", tmp_path / "again") == ()
    one, two = newest(tmp_path / "plain"), newest(tmp_path / "planned")
    assert two.partition is None
    assert one.arrays.keys() == two.arrays.keys()
    for name, array in one.arrays.items():
        if name.startswith("embedding/weights/"):
            assert abs(array - two.arrays[name]).max() < 1e-4, name
    more = {**options, "passes": 1}
    for run, after in (("plain", plan), ("planned", None)):
        train_alone(warehouse, tmp_path / run, after, **more)  # nothing is left: it is restored
        check_stored(plan, prepare(warehouse, tmp_path / run, **more).saved)


def test_a_plan_must_be_of_the_model_and_the_hosts(warehouse, tmp_path):
    prepared = prepare(warehouse, tmp_path / "run", **OPTIONS)
    plan = mixed(warehouse, tmp_path / "run")
    check_tables(plan, prepared.layout, prepared.config)
    first, *rest = plan.tables
    other = TablePlan("other", 3, 4, (Slice(0, 4, (0,)),))
    bad = [
        (PartitionPlan(2, tuple(rest)), "a plan must have the embedding tables of the model"),
        (PartitionPlan(2, (*plan.tables, other)), "a plan must have the embedding tables of the model"),
        (PartitionPlan(2, (TablePlan(first.name, first.rows + 1, first.columns, first.slices), *rest)), "a planned table must be as large"),
    ]  # fmt: skip
    for one, problem in bad:
        with pytest.raises(ConfigError, match=problem):
            check_tables(one, prepared.layout, prepared.config)
    row_wise = prepare(warehouse, tmp_path / "row-wise", embedding_optimizer="row_wise_adagrad", **OPTIONS)
    with pytest.raises(ConfigError, match="a table with a row-wise optimizer must be on one core"):
        check_tables(plan, row_wise.layout, row_wise.config)
    linear = prepare(warehouse, tmp_path / "linear", deep=False, **OPTIONS)
    with pytest.raises(ConfigError, match="--plan needs a model with embedding tables"):
        check_tables(plan, linear.layout, linear.config)
    check_hosts(plan, 2)
    for numbers, option in (((3,), "--hosts"), ((2, 1), "--least-hosts"), ((2, 0, 1), "--caught-up-hosts")):
        with pytest.raises(ConfigError, match="a plan must have a core for each host") as raised:
            check_hosts(plan, *numbers)
        assert option in raised.value.where
