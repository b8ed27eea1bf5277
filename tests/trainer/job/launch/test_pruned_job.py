"""Jobs of pruned tables: one host trains what one process trains, also on a parameter server; several hosts share rows, places and importance."""

from __future__ import annotations

import shutil

import pytest

from tests.support.parameter_servers import thread_servers
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
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import verify_commit
from trainer.errors import ConfigError
from trainer.job.launch.job_spec import ServersSpec
from trainer.job.launch.resharded_run import reshard_run
from trainer.job.launch.run_comparison import run_differences
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.run.weights.run_partition import check_pruned_hosts, check_pruned_servers
from trainer.scheduling.transitions import JobState
from trainer.serving.trained import load_trained
from trainer.tables.spec import TableSpec, tables_of

pytest.importorskip("tensorflow")
OPTIONS = {
    "batch_rows": 64,
    "passes": 2,
    "linear": True,
    "keep_checkpoints": 9,
    "pruning": {"budget": 0.06, "round_steps": 3},
}


@pytest.mark.slow
def test_a_host_that_is_killed_prunes_as_one_that_is_not(tmp_path):
    with make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse, thread_servers(1) as servers:
        on_servers = ServersSpec(tuple(str(one.address) for one in servers), run=1)
        run_job(warehouse, tmp_path / "alone", settings(1), unit_rows=300, **OPTIONS)
        rounds = {array[2] for name, array in newest(tmp_path / "alone").arrays.items() if "/pruning/" in name}
        assert max(rounds) > 5
        for name, spec in (("killed", None), ("served", on_servers)):
            job = launch(
                warehouse, tmp_path / name, settings(1, most_restarts=9), unit_rows=300, servers=spec, **OPTIONS
            )
            run_killed(tmp_path / name, job)
            assert run_differences(tmp_path / name, tmp_path / "alone") == (), name


@pytest.mark.slow
def test_hosts_share_rows_and_places(tmp_path):
    """Bit for bit although a host is killed; other numbers of hosts and one process go on from a commit."""
    run, begun = tmp_path / "killed", tmp_path / "begun"
    with make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse:
        run_job(warehouse, tmp_path / "calm", settings(2), unit_rows=300, **OPTIONS)
        run_killed(run, launch(warehouse, run, settings(2, most_restarts=9), unit_rows=300, **OPTIONS))
        assert run_differences(run, tmp_path / "calm") == ()
        last = newest(run)
        verify_commit(open_run(run), last.name)
        assert_pruned(last.arrays)
        engine = load_trained(str(run)).weights.engine
        assert {name: one.rows.tolist() for name, one in engine.state().items()} == {
            name: last.arrays[f"embedding/rows/{name}"].tolist() for name in engine.state()
        }
        copy_begun(run, begun)
        for hosts in (3, 1):
            shutil.copytree(begun, tmp_path / f"on-{hosts}")
            status = run_job(warehouse, tmp_path / f"on-{hosts}", settings(hosts), unit_rows=300, **OPTIONS)
            assert status.state is JobState.DONE
        reshard_run(str(begun), 2, PartitionPlan(3, ()), tmp_path / "resharded")
        assert run_job(warehouse, tmp_path / "resharded", settings(3), unit_rows=300, **OPTIONS).state is JobState.DONE
        assert run_differences(tmp_path / "resharded", tmp_path / "on-3") == ()
        shutil.copytree(begun, tmp_path / "alone")
        train_alone(warehouse, tmp_path / "alone", **OPTIONS)
        for name in ("on-3", "on-1", "alone"):
            assert prepare(warehouse, tmp_path / name, **OPTIONS).summary().exact
            assert_pruned(newest(tmp_path / name).arrays)


@pytest.mark.slow
def test_hosts_by_a_plan_have_whole_tables_and_blocks(tmp_path):
    """Bit for bit although a host is killed; by the plan, by another after resharding, and in one process a run goes on from a commit."""
    run, begun = tmp_path / "killed", tmp_path / "begun"
    with make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse:
        tables = tables_of(prepare(warehouse, run, **OPTIONS).layout.features)
        plan, other = (
            PartitionPlan(2, tuple(_placed(k + first, one) for k, one in enumerate(tables))) for first in (0, 1)
        )
        run_job(warehouse, tmp_path / "calm", settings(2), unit_rows=300, plan=plan, **OPTIONS)
        run_killed(run, launch(warehouse, run, settings(2, most_restarts=9), unit_rows=300, plan=plan, **OPTIONS))
        assert run_differences(run, tmp_path / "calm") == ()
        verify_commit(open_run(run), newest(run).name)
        assert newest(run).partition == plan
        assert_pruned(newest(run).arrays)
        copy_begun(run, begun)
        reshard_run(str(begun), 2, other, tmp_path / "other")
        assert (
            run_job(warehouse, tmp_path / "other", settings(2), unit_rows=300, plan=other, **OPTIONS).state
            is JobState.DONE
        )
        shutil.copytree(begun, tmp_path / "without")
        assert run_job(warehouse, tmp_path / "without", settings(3), unit_rows=300, **OPTIONS).state is JobState.DONE
        shutil.copytree(begun, tmp_path / "alone")
        train_alone(warehouse, tmp_path / "alone", **OPTIONS)
        for name in ("other", "without", "alone"):
            assert prepare(warehouse, tmp_path / name, **OPTIONS).summary().exact
            assert_pruned(newest(tmp_path / name).arrays)


def _placed(number: int, table: TableSpec) -> TablePlan:
    """A whole table on the second host, blocks on both, and rows by remainders, in turn."""
    rows = table.vocabulary_size
    return _by(table, *(((1,), ()), ((1, 0), (rows // 3, rows)), ((0, 1), ()))[number % 3])


def _by(table: TableSpec, cores: tuple[int, ...], blocks: tuple[int, ...] = ()) -> TablePlan:
    return TablePlan(table.name, table.vocabulary_size, table.dim, (Slice(0, table.dim, cores, blocks),))


@pytest.mark.slow
def test_hosts_train_pruned_tables_of_servers(tmp_path):
    """Bit for bit although a host is killed; without servers, on other numbers of them and in one process a run goes on from a commit."""
    with make_warehouse(tmp_path / "warehouse", hours=2, rows=1500) as warehouse, thread_servers(5) as servers:
        addresses = [str(one.address) for one in servers]
        specs = [ServersSpec(tuple(own), run=1) for own in (addresses[:2], addresses[2:4], addresses[4:])]
        run_job(warehouse, tmp_path / "calm", settings(2), unit_rows=300, servers=specs[0], **OPTIONS)
        job = launch(warehouse, tmp_path / "run", settings(2, most_restarts=9), unit_rows=300, servers=specs[1], **OPTIONS)  # fmt: skip
        run_killed(tmp_path / "run", job)
        assert run_differences(tmp_path / "run", tmp_path / "calm") == ()
        verify_commit(open_run(tmp_path / "run"), newest(tmp_path / "run").name)
        assert_pruned(newest(tmp_path / "run").arrays)
        copy_begun(tmp_path / "run", tmp_path / "begun")
        for name, spec in (("hosts", None), ("one", specs[2])):
            shutil.copytree(tmp_path / "begun", tmp_path / name)
            status = run_job(warehouse, tmp_path / name, settings(2), unit_rows=300, servers=spec, **OPTIONS)
            assert status.state is JobState.DONE
        shutil.copytree(tmp_path / "begun", tmp_path / "alone")
        train_alone(warehouse, tmp_path / "alone", **OPTIONS)
        for name in ("hosts", "one", "alone"):
            assert prepare(warehouse, tmp_path / name, **OPTIONS).summary().exact
            assert_pruned(newest(tmp_path / name).arrays)


def test_hosts_without_a_place_are_refused_before_training_begins(tmp_path):
    """Where places are divided; hosts that share them need none."""
    with make_warehouse(tmp_path / "warehouse", hours=1, rows=50) as warehouse:
        names = sorted({one.table.name for one in prepare(warehouse, tmp_path / "run", **OPTIONS).layout.features})
        groups = [{"tables": names, "rows": len(names)}]
        few = {**OPTIONS, "linear": False, "pruning": {"groups": groups, "places": "divided"}}
        launch(warehouse, tmp_path / "run", settings(len(names)), **few)
        with pytest.raises(ConfigError, match="must be at least one for each host"):
            launch(warehouse, tmp_path / "other", settings(len(names) + 1), **few)
        launch(warehouse, tmp_path / "shared", settings(len(names) + 1), **{**few, "pruning": {"groups": groups}})
        assert not (tmp_path / "other").exists()


def test_places_are_counted_where_a_plan_has_the_rows(tmp_path):
    """A plan may leave a host or server without rows, which needs no place then, or with few rows, which have no share of the places."""
    with make_warehouse(tmp_path / "warehouse", hours=1, rows=50) as warehouse:
        model = prepare(warehouse, tmp_path / "run", **OPTIONS)
        tables = tables_of(model.layout.features)
        few = {
            **OPTIONS,
            "linear": False,
            "pruning": {
                "groups": [{"tables": [one.name for one in tables], "rows": len(tables)}],
                "places": "divided",
            },
        }
        prepared = prepare(warehouse, tmp_path / "run", **few)
        many = len(tables) + 1
        whole = PartitionPlan(many, tuple(_by(one, (0,)) for one in tables))
        launch(warehouse, tmp_path / "run", settings(many), plan=whole, **few)
        of_model = prepared.layout, prepared.config, prepared.head
        check_pruned_servers(*of_model, many, whole)
        uneven = PartitionPlan(
            2, (_by(tables[0], (0, 1), (1, tables[0].vocabulary_size)), *(_by(one, (1,)) for one in tables[1:]))
        )
        check_pruned_hosts(*of_model, 2)
        check_pruned_servers(*of_model, 2)
        with pytest.raises(ConfigError, match="must be at least one for each host"):
            launch(warehouse, tmp_path / "other", settings(2), plan=uneven, **few)
        with pytest.raises(ConfigError, match="must be at least one for each host"):
            check_pruned_servers(*of_model, 2, uneven)
        with pytest.raises(ConfigError, match="must be at least one for each host"):
            check_pruned_servers(*of_model, many)
        assert not (tmp_path / "other").exists()


def assert_pruned(arrays):
    """More rows were looked up than have places."""
    for kind in ("embedding", "linear"):
        names = [name.removeprefix(f"{kind}/rows/") for name in arrays if name.startswith(f"{kind}/rows/")]
        kept, seen = ([set(arrays[f"{of}/rows/{name}"].tolist()) for name in names] for of in (kind, f"{kind}-importance"))  # fmt: skip
        assert names
        assert 0 < sum(map(len, kept)) < sum(map(len, seen))
        assert all(arrays[f"history/{kind}/pruning/{name}"][2] > 5 for name in names)
        importance = arrays[f"{kind}-importance/weights/{names[0]}"]
        assert importance.shape[1] == 1
        assert (importance > 0).all()
