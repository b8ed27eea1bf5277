"""Jobs of real processes whose hosts exchange by towers: they train what a job that exchanges flat trains."""

from __future__ import annotations

import shutil

import numpy as np
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
    train_alone,
)
from tests.trainer.job.launch.test_pruned_job import assert_pruned
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import verify_commit
from trainer.errors import ConfigError
from trainer.job.launch.resharded_run import reshard_run
from trainer.job.launch.run_comparison import run_differences
from trainer.run.weights.run_partition import check_fixed_hosts
from trainer.scheduling.transitions import JobState
from trainer.tables.routes.towers.placement import TowerPlacement, tower_partition

pytest.importorskip("tensorflow")
OPTIONS = {"batch_rows": 64, "passes": 2, "linear": True, "keep_checkpoints": 9}
HOSTS = 3


def two_towers(warehouse, run_dir, hosts=HOSTS, **options):
    """The towers of a job, of which one of three hosts has two, and their plan."""
    features = prepare(warehouse, run_dir, **{**OPTIONS, **options}).layout.features
    names = [one.name for one in features]
    towers = (tuple(names[::2]), tuple(names[1::2]))
    return {"plan": tower_partition(features, TowerPlacement(hosts, 1, towers)), "towers": towers}


@pytest.mark.slow
def test_a_job_by_towers_trains_what_one_without_trains(tmp_path):
    """Bit for bit, although a host is killed; one of two towers has two hosts. Without towers a job goes on from its commits."""
    with make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse:
        by = two_towers(warehouse, tmp_path / "towers")
        job = launch(warehouse, tmp_path / "towers", settings(HOSTS, most_restarts=9), unit_rows=300, **by, **OPTIONS)
        run_killed(tmp_path / "towers", job)
        run_job(warehouse, tmp_path / "flat", settings(HOSTS), unit_rows=300, **OPTIONS)
        assert run_differences(tmp_path / "towers", tmp_path / "flat") == ()
        assert newest(tmp_path / "towers").partition == by["plan"]
        assert newest(tmp_path / "flat").partition is None
        for name, ways in (("again", by), ("without", {})):
            copy_begun(tmp_path / "towers", tmp_path / name)
            run_job(warehouse, tmp_path / name, settings(HOSTS), unit_rows=300, **ways, **OPTIONS)
            assert run_differences(tmp_path / name, tmp_path / "flat") == (), name


@pytest.mark.slow
def test_sequences_by_towers_are_those_without(tmp_path):
    """Rows of the two places of an event cross between towers; its length is with the event."""
    options = {**OPTIONS, "passes": 1, "sequences": {"input_0": {"length": 2, "encoder": "sasrec", "layers": 1}}}
    with make_warehouse(tmp_path / "warehouse", hours=1, rows=1000) as warehouse:
        by = two_towers(warehouse, tmp_path / "towers", **options)
        for name, ways in (("towers", by), ("flat", {})):
            finished(run_job(warehouse, tmp_path / name, settings(HOSTS), unit_rows=300, **ways, **options))
        assert run_differences(tmp_path / "towers", tmp_path / "flat") == ()


@pytest.mark.slow
def test_hosts_of_a_machine_train_what_a_job_without_towers_trains(tmp_path):
    """Bit for bit, although a host is killed; with sums they train about that, and killed hosts change no bit of it."""
    with make_warehouse(tmp_path / "warehouse", hours=1, rows=1500) as warehouse:
        by = {**two_towers(warehouse, tmp_path / "towers", hosts=4), "machine_hosts": 2, "unit_rows": 300}
        run_killed(
            tmp_path / "towers", launch(warehouse, tmp_path / "towers", settings(4, most_restarts=9), **by, **OPTIONS)
        )
        run_job(warehouse, tmp_path / "flat", settings(4), unit_rows=300, **OPTIONS)
        assert run_differences(tmp_path / "towers", tmp_path / "flat") == ()
        sums = {**by, "sends_sums": True}
        finished(run_job(warehouse, tmp_path / "calm", settings(4), **sums, **OPTIONS))
        run_killed(
            tmp_path / "sums", launch(warehouse, tmp_path / "sums", settings(4, most_restarts=9), **sums, **OPTIONS)
        )
        assert run_differences(tmp_path / "sums", tmp_path / "calm") == ()


@pytest.mark.slow
def test_pruned_tables_by_towers_are_those_by_the_plan_of_the_towers(tmp_path):
    """Bit for bit, although a host is killed; by other towers and in one process a run goes on from a commit."""
    pruned = {**OPTIONS, "pruning": {"budget": 0.06, "round_steps": 3}}
    run, begun = tmp_path / "towers", tmp_path / "begun"
    with make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse:
        by = two_towers(warehouse, run, **pruned)
        job = launch(warehouse, run, settings(HOSTS, most_restarts=9), unit_rows=300, **by, **pruned)
        run_killed(run, job)
        finished(run_job(warehouse, tmp_path / "flat", settings(HOSTS), unit_rows=300, plan=by["plan"], **pruned))
        assert run_differences(run, tmp_path / "flat") == ()
        last = newest(run)
        verify_commit(open_run(run), last.name)
        assert last.partition == by["plan"]
        assert_pruned(last.arrays)
        copy_begun(run, begun)
        other = two_towers(warehouse, tmp_path / "none", hosts=2, **pruned)
        reshard_run(str(begun), 2, other["plan"], tmp_path / "other")
        finished(run_job(warehouse, tmp_path / "other", settings(2), unit_rows=300, **other, **pruned))
        shutil.copytree(begun, tmp_path / "alone")
        train_alone(warehouse, tmp_path / "alone", **pruned)
        for name in ("other", "alone"):
            assert prepare(warehouse, tmp_path / name, **pruned).summary().exact
            assert_pruned(newest(tmp_path / name).arrays)


@pytest.mark.slow
def test_hashed_tables_by_towers_are_those_of_hosts_that_were_not_killed(tmp_path):
    """Also beside pruned tables; by other towers and without towers a run goes on from a commit."""
    run, begun = tmp_path / "towers", tmp_path / "begun"
    with make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse:
        names = sorted({one.table.name for one in prepare(warehouse, run, **OPTIONS).layout.features})
        hashed = {names[0]: {"capacity": 60, "admit_after": 2}, names[1]: {"capacity": 90, "expire_after_steps": 9}}
        mixed = {**OPTIONS, "hashed": hashed, **({"pruning": {"budget": 0.06, "round_steps": 3}} if names[2:] else {})}
        by = two_towers(warehouse, run, **mixed)
        finished(run_job(warehouse, tmp_path / "calm", settings(HOSTS), unit_rows=300, **by, **mixed))
        run_killed(run, launch(warehouse, run, settings(HOSTS, most_restarts=9), unit_rows=300, **by, **mixed))
        assert run_differences(run, tmp_path / "calm") == ()
        verify_commit(open_run(run), newest(run).name)
        for name, one in hashed.items():
            assert 0 < len(newest(run).arrays[f"embedding/rows/{name}"]) <= one["capacity"] + 1
        copy_begun(run, begun)
        other = two_towers(warehouse, tmp_path / "none", hosts=2, **mixed)
        with pytest.raises(ConfigError, match="hashed tables must be placed without a plan"):
            reshard_run(str(begun), 2, other["plan"], tmp_path / "other")
        reshard_run(str(begun), 2, other["plan"], tmp_path / "other", is_of_towers=True)
        finished(run_job(warehouse, tmp_path / "other", settings(2), unit_rows=300, **other, **mixed))
        shutil.copytree(begun, tmp_path / "without")
        finished(run_job(warehouse, tmp_path / "without", settings(2), unit_rows=300, **mixed))
        for name in ("other", "without"):
            assert prepare(warehouse, tmp_path / name, **mixed).summary().exact
            verify_commit(open_run(tmp_path / name), newest(tmp_path / name).name)


def test_towers_with_a_host_without_a_place_are_refused_before_training_begins(tmp_path):
    """The linear part has hosts of its own accord, so it is left out here."""
    with make_warehouse(tmp_path / "warehouse", hours=1, rows=50) as warehouse:
        tables = [one.table.name for one in prepare(warehouse, tmp_path / "run", **OPTIONS).layout.features]
        few = {
            **OPTIONS,
            "linear": False,
            "pruning": {"groups": [{"tables": sorted({*tables}), "rows": len({*tables})}], "places": "divided"},
        }
        by = two_towers(warehouse, tmp_path / "run", hosts=2, **few)
        launch(warehouse, tmp_path / "run", settings(2), **by, **few)
        by = two_towers(warehouse, tmp_path / "run", hosts=len(tables) + 1, **few)
        with pytest.raises(ConfigError, match="must be at least one for each host"):
            launch(warehouse, tmp_path / "other", settings(len(tables) + 1), **by, **few)
        assert not (tmp_path / "other").exists()
        shared = {**few, "pruning": {**few["pruning"], "places": "shared"}}
        launch(warehouse, tmp_path / "shared", settings(len(tables) + 1), **by, **shared)


@pytest.mark.slow
def test_modules_on_the_hosts_of_their_towers_are_in_commits(tmp_path):
    """A killed host trains the same bits; a job without towers, with all modules on all hosts, goes on and ends close by."""
    with make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse:
        by = two_towers(warehouse, tmp_path / "calm")
        options = {**OPTIONS, "tower_modules": {"towers": by["towers"], "compression": 2}}
        finished(run_job(warehouse, tmp_path / "calm", settings(HOSTS), unit_rows=300, **by, **options))
        job = launch(warehouse, tmp_path / "killed", settings(HOSTS, most_restarts=9), unit_rows=300, **by, **options)
        run_killed(tmp_path / "killed", job)
        assert run_differences(tmp_path / "killed", tmp_path / "calm") == ()
        finished(run_job(warehouse, tmp_path / "flat", settings(HOSTS), unit_rows=300, **options))
        begun = tmp_path / "begun"
        copy_begun(tmp_path / "calm", begun)
        finished(run_job(warehouse, begun, settings(HOSTS), unit_rows=300, **options))
        expected = newest(tmp_path / "flat").arrays
        for name in ("calm", "begun"):
            assert prepare(warehouse, tmp_path / name, **options).summary().exact
            found = newest(tmp_path / name).arrays
            assert found.keys() == expected.keys()
            for key in (one for one in found if one.startswith("dense/weights/")):
                np.testing.assert_allclose(found[key], expected[key], rtol=0.02, atol=2e-3, err_msg=f"{name}: {key}")


@pytest.mark.slow
def test_a_killed_host_changes_no_bit_of_rounded_values(tmp_path):
    """Of rows, outputs of modules and gradients."""
    with make_warehouse(tmp_path / "warehouse", hours=1, rows=1500) as warehouse:
        by = two_towers(warehouse, tmp_path / "calm")
        options = {**OPTIONS, "tower_modules": {"towers": by["towers"], "compression": 2}}
        whole = {**by, **options, "unit_rows": 300}
        finished(run_job(warehouse, tmp_path / "exact", settings(HOSTS), **whole))
        finished(run_job(warehouse, tmp_path / "calm", settings(HOSTS), wire_values="fp16", **whole))
        job = launch(warehouse, tmp_path / "killed", settings(HOSTS, most_restarts=9), wire_values="fp16", **whole)
        run_killed(tmp_path / "killed", job)
        assert run_differences(tmp_path / "killed", tmp_path / "calm") == ()
        assert run_differences(tmp_path / "exact", tmp_path / "calm") != ()


def finished(status):
    assert status.state is JobState.DONE


def test_the_hosts_of_a_job_by_towers_stay_as_many():
    check_fixed_hosts(2, 0, 2, where="--towers")
    for numbers, option in (((2, 1, 0), "--least-hosts"), ((2, 0, 1), "--caught-up-hosts")):
        with pytest.raises(ConfigError, match="needs a fixed number of hosts") as raised:
            check_fixed_hosts(*numbers, where="--towers")
        assert option in raised.value.where
