"""Checkpoints whose tables are in shards that servers have written themselves."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest

from tests.support.parameter_servers import ThreadServer, thread_servers
from tests.trainer.synthetic import Synthetic, config
from trainer.checkpoints.checkpoint import checkpoints_dir, newest_intact, read_newest
from trainer.checkpoints.inspection import check_files, describe_commit, list_commits
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import open_commit
from trainer.checkpoints.reshard import reshard_commit
from trainer.errors import CheckpointNotWritten, ServerLost, TornCheckpoint
from trainer.model.inputs import lay_out
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.run.loop import train
from trainer.run.progress.identity import identity_of
from trainer.run.weights.server_shards import ServerShards
from trainer.servers import shard_writer
from trainer.servers.run_servers import RunServers
from trainer.tables.routes.servers.remote_tables import RemoteTables
from transforms.errors import DataError

HASHED = {"hashed": {"user": {"capacity": 300}}}
PRUNED = {"pruning": {"budget": 0.3, "round_steps": 5, "spare_share": 0.0}, "linear": True}
RESTORED = {"pruning": {"budget": 0.3, "round_steps": 5, "spare_share": 0.0, "reset": "restored"}}
#: The kinds of tables that servers have.
KINDS = {"dense": {}, "hashed": HASHED, "hot": {"hot_rows": {"user": 20}}, "pruned": PRUNED, "restored": RESTORED,
         "hashed beside pruned": {**HASHED, **PRUNED}}  # fmt: skip


def on_servers(servers, run: int, **settings):
    found = RunServers(tuple(one.address for one in servers), run=run, **settings)
    return partial(found.engine, 1)


def trained(folder, count: int, *, runs=None, plan=None, events=None, partitions=3, **options):
    """The report of a run on servers that may write into ``runs``; by default into the folder of the run."""
    data = Synthetic(partitions)
    told = [] if events is None else events
    with thread_servers(count, runs=[folder] if runs is None else runs) as servers:
        return train(
            data.solution, data.read, config(folder, partitions_per_epoch=1, **options), progress=told.append,
            make_engine=on_servers(servers, 1, plan=plan),
        )  # fmt: skip


def newest(folder):
    found = read_newest(folder, on_skip=pytest.fail)
    assert found is not None
    return found


def newest_commit(folder):
    files = open_run(folder)
    return open_commit(files, newest(folder).name)


def assert_equal_arrays(one, other) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype, name
        assert np.array_equal(array, other[name]), name


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_shards_of_servers_hold_what_the_trainer_would_write(tmp_path, count, options):
    told = []
    trained(tmp_path / "shards", count, events=told, **options)
    trained(tmp_path / "rows", count, runs=[], **options)
    assert [one for one in told if one.kind == "rows pass"] == []
    commit = newest_commit(tmp_path / "shards")
    assert [one.server for one in commit.shard_names] == list(range(count))
    assert not newest_commit(tmp_path / "rows").shards
    assert newest(tmp_path / "shards").document == newest(tmp_path / "rows").document
    assert_equal_arrays(newest(tmp_path / "shards").arrays, newest(tmp_path / "rows").arrays)


def no_rows_read(remote, part, first, stop):
    """In place of reading a snapshot: an empty range says that a part is left out."""
    assert first == stop, "rows were read"
    return READ_SNAPSHOT(remote, part, first, stop)


READ_SNAPSHOT = RemoteTables.read_snapshot


@pytest.mark.parametrize("is_cut", [False, True], ids=["rows", "columns"])
def test_no_row_passes_through_the_trainer(tmp_path, monkeypatch, is_cut):
    received = []
    end = RemoteTables.end_snapshot

    def count_bytes(remote):
        received.append(remote.saving_bytes)
        end(remote)

    monkeypatch.setattr(RemoteTables, "end_snapshot", count_bytes)
    monkeypatch.setattr(RemoteTables, "read_snapshot", no_rows_read)
    trained(tmp_path, 2, plan=cut_plan(2) if is_cut else None)
    size_bytes = sum(file.file.size_bytes for part in newest_commit(tmp_path).shards for file in part.arrays.values())
    assert size_bytes > 20_000
    assert max(received) < 12_000, "orders and answers alone, over three commits"


def test_rows_pass_through_the_trainer_where_servers_may_not_write(tmp_path):
    told = []
    trained(tmp_path / "run", 2, runs=[tmp_path / "other"], events=told)
    (said,) = [one.message for one in told if one.kind == "rows pass"]
    assert "a run must be below a folder that the server was started for" in said
    assert not newest_commit(tmp_path / "run").shards


def test_rows_pass_through_the_trainer_if_a_server_has_another_folder_of_the_name(tmp_path, monkeypatch):
    """As on two machines without a common disk: the server does not find the file that the trainer has written."""
    seen, told = [], []

    def other_name(probe):
        seen.append(probe)
        return f".tmp-reach-{probe}-{len(seen)}"

    monkeypatch.setattr("trainer.checkpoints.shards.reach.probe_name", other_name)
    trained(tmp_path, 1, events=told)
    assert [one.message for one in told if one.kind == "rows pass"] == [
        "server s0: its folder of this name is another one"
    ]
    assert not newest_commit(tmp_path).shards


def cut_plan(count: int, cut: int = 2) -> PartitionPlan:
    """Each table in two slices of columns: the first one on the last server, the rows of the other one on all servers."""
    settings = config("unused")
    layout = lay_out(identity_of(Synthetic(1).solution, settings).typed_inputs, settings)
    servers = tuple(range(count))
    tables = [
        TablePlan(one.table.name, one.table.vocabulary_size, one.table.dim,
                  (Slice(0, cut, servers[-1:]), Slice(cut, one.table.dim - cut, servers)))
        for one in layout.features
    ]  # fmt: skip
    return PartitionPlan(count, tuple(tables))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_slices_of_columns_hold_what_the_trainer_would_write(tmp_path, count):
    """The files of the trainer are read by numpy alone, those of servers are joined here."""
    told, plan = [], cut_plan(count)
    trained(tmp_path / "shards", count, plan=plan, events=told)
    trained(tmp_path / "rows", count, plan=plan, runs=[])
    assert [one for one in told if one.kind == "rows pass"] == []
    commit = newest_commit(tmp_path / "shards")
    assert [one.server for one in commit.shard_names] == list(range(count))
    assert newest(tmp_path / "shards").document == newest(tmp_path / "rows").document
    assert_equal_arrays(newest(tmp_path / "shards").arrays, newest(tmp_path / "rows").arrays)
    written, expected = _npy_files(tmp_path / "shards", commit.shards), _npy_files(tmp_path / "rows", newest_commit(tmp_path / "rows").parts)  # fmt: skip
    for _, table in commit.model_tables:
        rows, weights, slots = (expected[f"embedding/{column}/{table}"][0] for column in ("rows", "weights", "slots"))
        for number, columns in enumerate((slice(0, 2), slice(2, None))):
            found = [written[f"slice-{number}/embedding/{column}/{table}"] for column in ("rows", "weights", "slots")]
            assert len(found[0]) == (1, count)[number], "servers without rows of a slice have no files of it"
            own = np.concatenate(found[0])
            order = np.argsort(own)
            assert np.array_equal(own[order], rows)
            assert np.array_equal(np.concatenate(found[1])[order], weights[:, columns])
            assert np.array_equal(np.concatenate(found[2])[order], slots[:, columns]), "Adagrad has one slot"
    assert not [one for one in check_files(open_run(tmp_path / "shards"), commit.epochs_done) if one.problem]
    found = [describe_commit(open_run(tmp_path / one), commit.epochs_done).tables for one in ("shards", "rows")]
    sizes = [[(one.kind, one.table, one.rows, one.dim) for one in tables] for tables in found]
    assert sizes[0] == sizes[1]


def _npy_files(folder, parts) -> dict[str, list[np.ndarray]]:
    """The arrays of each name in some parts, as numpy reads their files."""
    found: dict[str, list[np.ndarray]] = {}
    for part in parts:
        for name, file in part.arrays.items():
            found.setdefault(name, []).append(np.load(checkpoints_dir(folder) / file.path))
    return found


@pytest.mark.medium
@pytest.mark.parametrize(("before", "after"), [(2, 2), (1, 3), (3, 2), (2, 0)])
def test_servers_load_slices_of_columns(tmp_path, monkeypatch, before, after):
    """Also on other servers by another plan, and without one: no row passes through the trainer. 0: training without servers."""
    data, folder = Synthetic(2), tmp_path / "run"
    with thread_servers(before, runs=[folder]) as servers:
        train(data.solution, data.read, config(folder, partitions_per_epoch=1), stop=lambda: True,
              make_engine=on_servers(servers, 1, plan=cut_plan(before)))  # fmt: skip
    assert newest_commit(folder).shards
    train(data.solution, data.read, config(tmp_path / "whole", partitions_per_epoch=1))
    monkeypatch.setattr(RemoteTables, "load_rows", lambda *arguments: pytest.fail("rows were sent"))
    monkeypatch.setattr(RemoteTables, "read_snapshot", no_rows_read)
    plans = {2: cut_plan(2, 1), 3: None}
    if after:
        report = trained(folder, after, plan=plans[after], partitions=2)
        assert len(newest_commit(folder).shard_names) == after
    else:
        report = train(data.solution, data.read, config(folder, partitions_per_epoch=1))
    assert report.resumed_from
    assert_equal_arrays(newest(folder).arrays, newest(tmp_path / "whole").arrays)


def test_slices_of_columns_pass_through_the_trainer_where_a_server_of_an_earlier_release_cannot_write_them(
    tmp_path, monkeypatch
):
    reach = shard_writer.ShardWriter.reach

    def earlier(writer, order):
        if order.is_cut:  # an unknown member there
            raise DataError("a document must have known members", value="is_cut")
        return reach(writer, order)

    monkeypatch.setattr(shard_writer.ShardWriter, "reach", earlier)
    told = []
    trained(tmp_path / "cut", 2, plan=cut_plan(2), events=told)
    assert [one.message for one in told if one.kind == "rows pass"] == ["server s0: a document must have known members"]
    assert not newest_commit(tmp_path / "cut").shards
    trained(tmp_path / "whole", 2)
    assert newest_commit(tmp_path / "whole").shards


@pytest.mark.medium
def test_slices_of_columns_are_resharded(tmp_path):
    trained(tmp_path / "run", 2, plan=cut_plan(2))
    commit = newest_commit(tmp_path / "run")
    for name, plan in (("hosts", PartitionPlan(3, ())), ("plan", cut_plan(3, 1))):
        reshard_commit(open_run(tmp_path / "run"), commit, plan, tmp_path / name / "checkpoints", window_bytes=4_000)
        assert_equal_arrays(newest(tmp_path / name).arrays, newest(tmp_path / "run").arrays)


@pytest.mark.medium
def test_training_goes_on_from_shards_with_the_same_bits(tmp_path):
    """Also on another number of servers, and without servers."""
    whole = trained(tmp_path / "whole", 2)
    folder = tmp_path / "run"
    data = Synthetic(3)
    with thread_servers(2, runs=[folder]) as servers:
        report = train(data.solution, data.read, config(folder, partitions_per_epoch=1), stop=lambda: True,
                       make_engine=on_servers(servers, 1))  # fmt: skip
    assert report.epochs == 1
    assert newest_commit(folder).shards
    for count in (1, 2):
        shutil.copytree(folder, tmp_path / f"on {count}")
        report = trained(tmp_path / f"on {count}", count)
        assert report.resumed_from
        assert_equal_arrays(newest(tmp_path / f"on {count}").arrays, newest(tmp_path / "whole").arrays)
    assert [one.scores for one in report.history] == [one.scores for one in whole.history]
    report = train(data.solution, data.read, config(folder, partitions_per_epoch=1))
    assert report.history[0].scores == whole.history[0].scores
    assert not newest_commit(folder).shards


@pytest.mark.medium
@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("before", "after"), [(2, 2), (1, 3), (2, 4), (3, 2)])
def test_servers_load_the_rows_that_they_own(tmp_path, monkeypatch, before, after, options):
    """Without a row in the trainer, also on another number of servers; the checkpoint after it is that of rows which it has loaded."""
    data, folder = Synthetic(2), tmp_path / "run"
    with thread_servers(before, runs=[folder]) as servers:
        train(data.solution, data.read, config(folder, partitions_per_epoch=1, **options), stop=lambda: True,
              make_engine=on_servers(servers, 1))  # fmt: skip
    shutil.copytree(folder, tmp_path / "rows")
    trained(tmp_path / "rows", after, runs=[], partitions=2, **options)
    monkeypatch.setattr(RemoteTables, "load_rows", lambda *arguments: pytest.fail("rows were sent"))
    sent = []
    load = ServerShards.load

    def count_bytes(shards, *arguments):
        before_bytes = shards.engine.wire_bytes
        is_loaded = load(shards, *arguments)
        sent.append(shards.engine.wire_bytes - before_bytes)
        return is_loaded

    monkeypatch.setattr(ServerShards, "load", count_bytes)
    report = trained(folder, after, partitions=2, **options)
    assert report.resumed_from
    assert len(sent) == 1
    assert sent[0] < 4_000 * after, "orders and answers alone"
    assert len(newest_commit(folder).shard_names) == after
    assert_equal_arrays(newest(folder).arrays, newest(tmp_path / "rows").arrays)


@pytest.mark.medium
def test_a_shard_that_servers_find_torn_is_left_for_an_earlier_checkpoint(tmp_path):
    trained(tmp_path / "whole", 2)
    folder, told = tmp_path / "run", []
    data = Synthetic(3)
    ends = iter([False, True])
    with thread_servers(2, runs=[folder]) as servers:
        train(data.solution, data.read, config(folder, partitions_per_epoch=1), stop=lambda: next(ends),
              make_engine=on_servers(servers, 1))  # fmt: skip
    commit = newest_commit(folder)
    path = checkpoints_dir(folder) / commit.shards[1].arrays[f"embedding/slots/{commit.model_tables[0][1]}"].path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    report = trained(folder, 2, events=told)
    (said,) = [one.message for one in told if one.kind == "skipped"]
    assert path.name in said
    assert report.skipped_checkpoints == (said,)
    assert report.resumed_from.endswith("epoch-000001")
    assert_equal_arrays(newest(folder).arrays, newest(tmp_path / "whole").arrays)


@pytest.mark.medium
def test_rows_are_read_here_where_servers_may_not_read_their_shards(tmp_path):
    data, told = Synthetic(2), []
    with thread_servers(2, runs=[tmp_path]) as servers:
        train(data.solution, data.read, config(tmp_path, partitions_per_epoch=1), stop=lambda: True,
              make_engine=on_servers(servers, 1))  # fmt: skip
    report = trained(tmp_path, 2, runs=[], partitions=2, events=told)
    assert report.resumed_from
    assert [one.message[:9] for one in told if one.kind == "rows pass"] == ["server s0"]


def test_a_damaged_shard_is_found_and_an_earlier_checkpoint_is_read(tmp_path):
    trained(tmp_path, 2)
    commit, name = newest_commit(tmp_path), newest(tmp_path).name
    path = checkpoints_dir(tmp_path) / commit.shards[1].arrays[f"embedding/weights/{commit.model_tables[0][1]}"].path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    skipped = []
    found = newest_intact(tmp_path, lambda one: one, on_skip=skipped.append)
    assert found is not None
    assert found.name < name
    assert "other" in skipped[0]
    problems = [one for one in check_files(open_run(tmp_path), commit.epochs_done) if one.problem]
    assert [one.path for one in problems] == [str(path.relative_to(checkpoints_dir(tmp_path)))]


def test_the_shards_of_kept_checkpoints_stay_and_others_go(tmp_path):
    trained(tmp_path, 2, partitions=4, keep_checkpoints=2)
    parts = checkpoints_dir(tmp_path) / "parts"
    named = {open_commit(open_run(tmp_path), one.name).shard_names[0].attempt for one in list_commits(open_run(tmp_path), 0.0).commits}  # fmt: skip
    assert len(named) == 2
    assert {int(one.name.removeprefix("attempt-")) for one in parts.iterdir()} == named
    assert list_commits(open_run(tmp_path), 0.0).unnamed_attempts == 0


def test_a_checkpoint_names_its_servers(tmp_path):
    trained(tmp_path, 2)
    found = describe_commit(open_run(tmp_path), newest(tmp_path).epochs_done)
    assert [one.host for one in found.parts] == ["s0", "s1"]
    assert sum(one.rows for one in found.parts) == sum(one.rows for one in found.tables)
    assert all(not one.problem for one in check_files(open_run(tmp_path), newest(tmp_path).epochs_done))


@pytest.mark.medium
def test_shards_of_another_moment_are_refused(tmp_path):
    trained(tmp_path, 2)
    folder = checkpoints_dir(tmp_path)
    names = sorted(one.name for one in folder.glob("epoch-*"))
    commits = [open_commit(open_run(tmp_path), name) for name in names[-2:]]
    old, new = (one.shard_names[1] for one in commits)
    shutil.rmtree(folder / new.folder)
    shutil.copytree(folder / old.folder, folder / new.folder)
    with pytest.raises(TornCheckpoint, match="the manifest of a shard must be that which its server has written"):
        open_commit(open_run(tmp_path), names[-1])


@pytest.mark.medium
def test_a_killed_trainer_leaves_the_newest_complete_checkpoint(tmp_path, monkeypatch):
    """It ends after the shards are written, before a checkpoint names them."""

    class Killed(BaseException):
        pass

    write, calls = ServerShards.write, []

    def write_then_end(shards, *arguments):
        found = write(shards, *arguments)
        calls.append(found)
        if len(calls) == 2:
            raise Killed
        return found

    monkeypatch.setattr(ServerShards, "write", write_then_end)
    with pytest.raises(Killed):
        trained(tmp_path / "run", 2)
    assert calls[1].names[0].attempt > calls[0].names[0].attempt
    assert newest_commit(tmp_path / "run").shard_names == calls[0].names
    monkeypatch.undo()
    report = trained(tmp_path / "run", 2)
    assert report.resumed_from
    trained(tmp_path / "whole", 2)
    assert_equal_arrays(newest(tmp_path / "run").arrays, newest(tmp_path / "whole").arrays)


@pytest.mark.medium
def test_a_full_disk_of_a_server_ends_the_run_with_the_reason(tmp_path, monkeypatch):
    def full(run_dir, *arguments):
        raise CheckpointNotWritten("the disk is full: the shard of a checkpoint was not written", where=run_dir)

    monkeypatch.setattr(shard_writer, "write_shard", full)
    with pytest.raises(CheckpointNotWritten, match="the disk is full: the shard of a checkpoint was not written"):
        trained(tmp_path, 2)


def test_a_server_that_is_started_again_while_it_writes_costs_the_checkpoint(tmp_path, monkeypatch):
    """Rows that it has written may have changed since: the snapshot in its memory is not whole any more."""
    held = ThreadServer(tmp_path / "memory", runs=[tmp_path])
    held.close()
    monkeypatch.setattr(shard_writer, "_FIRST_SECS", 0.0)
    snapshot = object()
    writer = shard_writer.ShardWriter(held.rows._shards._runs, snapshot)
    order = shard_writer.WriteOrder("0" * 32, str(tmp_path), 1, 0, 1, 0, ())
    with pytest.raises(ServerLost, match="a shard must be written by one process of its server"):
        writer.follow(order, None, lambda: snapshot)


@pytest.mark.medium
@pytest.mark.parametrize("options", [{}, HASHED, RESTORED], ids=["dense", "hashed", "pruned"])
def test_shards_are_resharded_for_hosts(tmp_path, options):
    trained(tmp_path / "run", 2, **options)
    commit = newest_commit(tmp_path / "run")
    made = tmp_path / "hosts" / "checkpoints"
    reshard_commit(open_run(tmp_path / "run"), commit, PartitionPlan(3, ()), made, window_bytes=4_000)
    assert_equal_arrays(newest(tmp_path / "hosts").arrays, newest(tmp_path / "run").arrays)


@pytest.mark.medium
def test_few_changed_rows_make_a_partial_shard_in_training(tmp_path):
    """The next checkpoint after many small epochs builds on a full shard, and training goes on from both with the same bits."""
    data = Synthetic(12, rows=30)
    settings = {"partitions_per_epoch": 1, "keep_checkpoints": 2}
    ends = iter([False] * 10 + [True])
    with thread_servers(2, runs=[tmp_path / "run"]) as servers:
        train(data.solution, data.read, config(tmp_path / "run", **settings), stop=lambda: next(ends),
              make_engine=on_servers(servers, 1))  # fmt: skip
    commit = newest_commit(tmp_path / "run")
    assert all(part.base is not None for part in commit.shards)
    with thread_servers(2) as servers:
        train(data.solution, data.read, config(tmp_path / "rows", **settings), make_engine=on_servers(servers, 1))
    with thread_servers(3, runs=[tmp_path / "run"]) as servers:
        train(data.solution, data.read, config(tmp_path / "run", **settings), make_engine=on_servers(servers, 1))
    assert_equal_arrays(newest(tmp_path / "run").arrays, newest(tmp_path / "rows").arrays)


def test_rows_of_a_server_of_an_earlier_release_pass_through_the_trainer(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise DataError("a frame must have a known kind", value=21)

    monkeypatch.setattr(shard_writer.ShardWriter, "reach", refuse)
    told = []
    trained(tmp_path, 1, events=told)
    assert [one.message for one in told if one.kind == "rows pass"] == ["server s0: a frame must have a known kind"]
    assert not newest_commit(tmp_path).shards


@pytest.mark.medium
@pytest.mark.parametrize("options", [{}, {"linear": True}, HASHED, {"pruning": {"budget": 0.5}}])
def test_a_run_goes_on_under_other_optimizers_on_its_servers(tmp_path, options):
    """The servers had the rows with other slots; bits are those of one process, or of servers that had none of the rows."""
    data, told = Synthetic(3), []
    others = {"embedding_optimizer": "adam", "dense_optimizer": "sgd", "linear_optimizer": "newton"}

    def both(folder, first, second):
        for engine, settings, stop in ((first, options, lambda: True), (second, {**options, **others}, lambda: False)):
            train(data.solution, data.read, config(folder, partitions_per_epoch=1, **settings), stop=stop,
                  progress=told.append, make_engine=engine)  # fmt: skip
        return newest(folder)

    with thread_servers(2, runs=[tmp_path]) as servers:
        found = both(tmp_path / "served", on_servers(servers, 1), on_servers(servers, 2))
    with thread_servers(2, runs=[tmp_path]) as servers, thread_servers(2, runs=[tmp_path]) as fresh:
        expected = both(tmp_path / "fresh", on_servers(servers, 1), on_servers(fresh, 1))
    assert_equal_arrays(found.arrays, expected.arrays)
    if not options.keys() & {"pruning", "hashed"}:  # two servers give places to rows of their own
        assert_equal_arrays(found.arrays, both(tmp_path / "alone", None, None).arrays)
        (said, _) = [one.message for one in told if one.kind == "rows pass"]
        assert said.startswith("the optimizer of its tables is another one from here on")
