"""Shards that servers write at one moment while training goes on, and load on any number of servers."""

from __future__ import annotations

import errno
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.gcs_server import GcsServer
from tests.support.parameter_servers import ThreadServer, thread_servers
from tests.support.processes import PATIENCE_SECS
from tests.support.server_process import ServerProcess
from tests.trainer.tables.routes.partitioned.plans import mixed_plan
from tests.trainer.tables.routes.servers.random_batches import FEATURES, random_batch, train
from tests.trainer.tables.table_states import assert_same
from trainer.checkpoints import local_run
from trainer.checkpoints.checkpoint import read_newest, write_checkpoint
from trainer.checkpoints.inspection import check_files
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import open_commit, read_shards
from trainer.checkpoints.run_files import RunFiles
from trainer.checkpoints.shard_name import ShardName, WrittenShards
from trainer.checkpoints.shards.shard_orders import to_document
from trainer.checkpoints.stored_commit import StoredCommit
from trainer.checkpoints.table_windows import read_rows, read_windows
from trainer.errors import CheckpointNotWritten, ConfigError, NonFiniteLoss, TornCheckpoint
from trainer.options.pruning import PruningOptions
from trainer.run.weights.saved_tables import saved_states
from trainer.run.weights.server_shards import ServerShards
from trainer.servers import shard_writer
from trainer.servers.client_updates import Greeting
from trainer.servers.held_rows import HeldRows
from trainer.servers.row_server import RowServer
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables import Adagrad, CpuEngine, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import Kind
from trainer.wire.flight.error_documents import RemoteError

SEED, STEP = 3, 17


def engine_on(servers, **options) -> PsEngine:
    return PsEngine(FEATURES, seed=SEED, servers=[one.connect() for one in servers], threads=1, **options)


def shards_of(engine, on_refusal=pytest.fail) -> ServerShards:
    return ServerShards(engine, lambda name: ("embedding", name), on_refusal)


def written(engine, run, attempt=1):
    engine.begin_snapshot(most_bytes=1 << 20)
    try:
        return shards_of(engine).write(run, attempt, STEP).names
    finally:
        engine.end_snapshot()


def loaded(engine, run, names) -> None:
    assert shards_of(engine).load(run, STEP, names)
    engine.take_loaded()


@pytest.mark.medium
@settings(max_examples=scaled(10))
@given(st.integers(1, 3), st.integers(1, 4), st.sampled_from([0, 4_000, 1 << 20]), st.integers(0, 100))
def test_shards_have_the_rows_of_their_moment_on_any_number_of_servers(before, after, most_bytes, seed):
    with TemporaryDirectory() as run, ThreadPoolExecutor(1) as pool:
        with thread_servers(before, runs=[run]) as servers:
            engine, alone = engine_on(servers), CpuEngine(FEATURES, seed=SEED)
            train(engine, range(seed, seed + 3))
            train(alone, range(seed, seed + 3))
            expected = alone.state()
            engine.begin_snapshot(most_bytes=most_bytes)
            writing = pool.submit(shards_of(engine).write, run, 1, STEP)
            train(engine, range(seed + 3, seed + 8))
            names = writing.result(timeout=PATIENCE_SECS).names
            engine.end_snapshot()
            engine.close()
        assert [one.server for one in names] == list(range(before))
        with thread_servers(after, runs=[run]) as servers:
            engine = engine_on(servers)
            train(engine, range(4))  # rows that are replaced
            loaded(engine, run, names)
            assert_same(engine.state(), expected)
            train(engine, range(9))
            alone.load_state(expected)
            train(alone, range(9))
            assert_same(engine.state(), alone.state())
            engine.close()


def test_shards_in_a_bucket(gcs_server: GcsServer):
    run = gcs_server.home(gcs_server.bucket(), "runs/one")
    root = run.replace("runs/one", "runs")
    with thread_servers(2, runs=[root]) as servers, thread_servers(3, runs=[root]) as others:
        engine, target = engine_on(servers), engine_on(others)
        train(engine, range(3))
        names = written(engine, run)
        loaded(target, run, names)
        assert_same(target.state(), engine.state())
        assert {one.shard.server for _, one in read_shards(open_run(run), names)} == {0, 1}
        assert not [name for name in open_run(run).sizes("") if "reach" in name], "the files of the probe are gone"
        engine.close()
        target.close()


def test_a_client_with_the_token_cannot_let_a_server_write_elsewhere(tmp_path):
    (tmp_path / "runs").mkdir()
    with thread_servers(1, runs=[tmp_path / "runs"]) as servers:
        engine, refused = engine_on(servers), []
        train(engine, range(2))
        engine.begin_snapshot(most_bytes=1 << 20)
        shards = shards_of(engine, refused.append)
        assert not shards.write(tmp_path / "elsewhere", 1, STEP)
        assert "a run must be below a folder that the server was started for" in refused[0]
        order = shards._order(str(tmp_path / "elsewhere"), 1, STEP, 0)  # as of a client that does not ask first
        with pytest.raises(RemoteError) as error:
            engine.servers[0].ask_saving(Kind.WRITE_SHARD, to_document(order))
        assert ConfigError.__name__ in error.value.kinds
        assert not list((tmp_path / "elsewhere").rglob("array*"))
        engine.end_snapshot()
        engine.close()


def test_rows_that_are_not_finite_end_the_checkpoint(tmp_path):
    with thread_servers(2, runs=[tmp_path]) as servers:
        engine = engine_on(servers)
        train(engine, range(2))
        batch = random_batch(FEATURES, 9)
        engine.lookup(batch)
        engine.apply_gradients(batch, np.full((batch.rows, engine.width), 1e37, np.float32))  # squares are infinite
        with pytest.raises(NonFiniteLoss, match="training diverged"):
            written(engine, tmp_path)
        assert not list(tmp_path.rglob("*.npy")), "nothing is left"
        engine.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"pruning": PruningOptions(0.3, round_steps=2, reset="restored")}, {"plan": mixed_plan(FEATURES, 1)}],
    ids=["dense", "pruned", "cut by columns"],
)
def test_a_server_that_is_killed_while_it_writes_begins_again(tmp_path, options):
    """Its next process writes the rows of the same moment, which training has changed since."""
    run = tmp_path / "run"
    (tmp_path / "server").mkdir()
    (run / "checkpoints").mkdir(parents=True)
    server = ServerProcess(tmp_path / "server", runs=str(run))
    server.start()
    try:
        connect = connect_to(server.address, LinkOptions(Greeting(), patience_secs=PATIENCE_SECS))
        engine = PsEngine(FEATURES, seed=SEED, servers=[connect], threads=1, **options)
        train(engine, range(3))
        expected = engine.state()
        engine.begin_snapshot(most_bytes=1 << 20)
        order = to_document(shards_of(engine)._order(str(run), 1, STEP, 0))
        for kill in range(4):
            found = engine.servers[0].ask_saving(Kind.WRITE_SHARD, order)
            train(engine, range(3 + kill, 5 + kill))
            server.kill()
            server.start()
        while not (found := engine.servers[0].ask_saving(Kind.WRITE_SHARD, order))["shard"]:
            pass
        engine.end_snapshot()
        loaded(engine, run, [ShardName.parse(found["shard"], "here")])
        assert_same(engine.state(), expected)
        engine.close()
    finally:
        server.close()


@pytest.mark.parametrize("again_bytes", [0, 1 << 30])
def test_rows_that_a_shard_alone_has_are_not_written_again(tmp_path, monkeypatch, again_bytes):
    """The next process of a server knows whether the snapshot in its memory is whole."""
    monkeypatch.setattr(shard_writer, "_AGAIN_BYTES", again_bytes)
    (tmp_path / "memory").mkdir()
    first = ThreadServer(tmp_path / "memory", runs=[tmp_path])
    engine = PsEngine(FEATURES, seed=SEED, servers=[first.connect()], threads=1)
    train(engine, range(3))
    engine.begin_snapshot(most_bytes=1 << 20)
    monkeypatch.setattr(
        shard_writer,
        "write_shard",
        lambda run, shard, parted, arrays: [list(one.parts) for one in parted[:2]] and _stop(),
    )
    order = shards_of(engine)._order(str(tmp_path), 1, STEP, 0)
    with pytest.raises(RemoteError):
        engine.servers[0].ask_saving(Kind.WRITE_SHARD, to_document(order))
    assert first.rows._rows.has_left_rows == (again_bytes == 0)
    engine.close()
    first.close()
    rows = HeldRows(tmp_path / "memory")
    assert (RowServer(rows)._shards._resumed is not None) == (again_bytes == 0)


def _stop() -> None:
    raise OSError("the process ends here")


@pytest.mark.parametrize("at", range(1, 26, 6))
def test_a_disk_that_is_full_at_any_file_leaves_no_shard(tmp_path, monkeypatch, at):
    calls = []

    class Folder(local_run.LocalFolder):
        def write(self, name, content):
            calls.append(name)
            if len(calls) == at:
                raise OSError(errno.ENOSPC, "no space")
            return super().write(name, content)

    monkeypatch.setattr(local_run, "LocalFolder", Folder)
    with thread_servers(1, runs=[tmp_path]) as servers:
        engine = engine_on(servers)
        train(engine, range(2))
        monkeypatch.setattr("trainer.run.weights.server_shards.find_reach", lambda *arguments: "")
        with pytest.raises(CheckpointNotWritten, match="the disk is full: the shard of a checkpoint was not written"):
            written(engine, tmp_path)
        assert not list((tmp_path / "checkpoints").rglob("*.npy"))
        names = written(engine, tmp_path, 2)
        read_shards(open_run(str(tmp_path)), names)
        engine.close()


def published(engine, run, attempt) -> WrittenShards:
    """Write the shards of a checkpoint, and publish it."""
    engine.begin_snapshot(most_bytes=1 << 20)
    try:
        found = shards_of(engine).write(run, attempt, STEP)
    finally:
        engine.end_snapshot()
    document = {"step": STEP, "ledger": None, "history": [], "position": {"epochs_done": attempt}}
    write_checkpoint(Path(run), attempt, document, {}, keep=2, shards=found)
    return found


def size_of(run, names) -> int:
    return sum(sum(open_run(str(run)).sizes(one.folder).values()) for one in names)


def assert_read_whole(run, state) -> tuple[RunFiles, StoredCommit]:
    """The newest checkpoint has these rows, read as a whole, and its files fit each other; the files of the run, and the commit."""
    found = read_newest(run, on_skip=pytest.fail)
    assert found is not None
    states = saved_states(found.arrays, "embedding")
    assert states.keys() == state.keys()
    assert_same({name: states[name] for name in state}, state)
    files = open_run(str(run))
    assert not [one for one in check_files(files, found.epochs_done) if one.problem]
    return files, open_commit(files, found.name)


def assert_stored(run, state) -> None:
    """The newest checkpoint has these rows, however it is read."""
    files, commit = assert_read_whole(run, state)
    for name, own in state.items():
        slices = commit.slices("embedding", name)
        windows = list(read_windows(files, slices, 2_000, 100, name))
        rows = [np.zeros(0, np.int64), *(window.rows for window in windows)]
        weights = [
            own.weights[:0],
            *(
                one.weights if one.order is None else one.weights[one.order]
                for window in windows
                for one in window.slices
            ),
        ]
        assert np.array_equal(np.concatenate(rows), own.rows)
        assert np.array_equal(np.concatenate(weights), own.weights)
        assert (
            sorted(row for found in read_rows(files, slices[0], 2_000) for row in found.tolist()) == own.rows.tolist()
        )


@pytest.mark.medium
@settings(max_examples=scaled(8))
@given(st.integers(1, 3), st.integers(1, 3), st.lists(st.integers(0, 3), min_size=2, max_size=5), st.integers(0, 50))
def test_partial_shards_and_their_bases_have_all_rows(before, after, steps, seed):
    """A few checkpoints with some steps between them; each is read whole, and loaded by any number of servers."""
    with TemporaryDirectory() as run:
        with thread_servers(before, runs=[run]) as servers:
            engine = engine_on(servers)
            train(engine, range(seed, seed + 12))
            bases = []
            for attempt, count in enumerate(steps, 1):
                found = published(engine, run, attempt)
                bases.append(found.bases)
                assert_stored(run, engine.state())
                train(engine, range(attempt * 7, attempt * 7 + count), events=1)
            found = published(engine, run, 9)
            expected = engine.state()
            engine.close()
        assert not bases[0]
        assert any(bases[1:]) or any(steps)
        with thread_servers(after, runs=[run]) as servers:
            engine = engine_on(servers)
            loaded(engine, run, found.names)
            assert_same(engine.state(), expected)
            engine.close()


TABLE = TableSpec("many", 4_000, 16, Adagrad(0.1, 0.25), "sum")
MANY = (FeatureSpec("many", TABLE),)


def change(engine, first: int, stop: int) -> None:
    """Update some rows, one of them in each event."""
    rows = np.arange(first, stop)
    batch = IdBatch(rows, np.arange(len(rows) + 1)[None, :])
    engine.lookup(batch)
    engine.apply_gradients(batch, np.full((batch.rows, engine.width), 0.5, np.float32))


@pytest.mark.slow
def test_a_shard_has_few_bytes_where_few_rows_were_changed(tmp_path):
    """5 % of the rows: at most 0.08 of the bytes. After more than half of them were changed, the next shard is full again."""
    with thread_servers(2, runs=[tmp_path]) as servers:
        engine = PsEngine(MANY, seed=SEED, servers=[one.connect() for one in servers], threads=1)
        change(engine, 0, 4_000)
        full = published(engine, tmp_path, 1)
        assert not full.bases
        change(engine, 500, 700)
        partial = published(engine, tmp_path, 2)
        assert partial.bases == full.names
        assert size_of(tmp_path, partial.names) <= 0.08 * size_of(tmp_path, full.names)
        change(engine, 0, 1_000)
        assert published(engine, tmp_path, 3).bases == full.names, (
            "all changes since the full shard, of which there is one"
        )
        assert_stored(tmp_path, engine.state())
        change(engine, 0, 2_100)
        assert not published(engine, tmp_path, 4).bases
        assert_stored(tmp_path, engine.state())
        engine.close()


def test_the_base_of_a_kept_checkpoint_stays(tmp_path):
    with thread_servers(1, runs=[tmp_path]) as servers:
        engine = PsEngine(MANY, seed=SEED, servers=[servers[0].connect()], threads=1)
        change(engine, 0, 4_000)
        for attempt in range(1, 7):
            found = published(engine, tmp_path, attempt)
            change(engine, 10 * attempt, 10 * attempt + 5)
        assert found.bases[0].attempt == 1
        attempts = sorted(path.name for path in (tmp_path / "checkpoints" / "parts").iterdir())
        assert attempts == ["attempt-000001", "attempt-000005", "attempt-000006"]
        engine.close()


def test_a_shard_builds_on_a_published_one_alone(tmp_path):
    """Not on one that no checkpoint has come to name, nor on one of rows that were replaced since."""
    with thread_servers(1, runs=[tmp_path]) as servers:
        engine = PsEngine(MANY, seed=SEED, servers=[servers[0].connect()], threads=1)
        change(engine, 0, 4_000)
        written(engine, tmp_path, 1)  # given up
        assert not published(engine, tmp_path, 2).bases
        change(engine, 0, 9)
        written(engine, tmp_path, 3)  # given up, too
        change(engine, 20, 29)
        found = published(engine, tmp_path, 4)
        assert [one.attempt for one in found.bases] == [2]
        assert_stored(tmp_path, engine.state())
        loaded(engine, tmp_path, found.names)
        assert not published(engine, tmp_path, 5).bases, "the rows were loaded"
        engine.close()


def test_a_base_that_is_gone_is_found_out(tmp_path):
    with thread_servers(1, runs=[tmp_path]) as servers:
        engine = PsEngine(MANY, seed=SEED, servers=[servers[0].connect()], threads=1)
        change(engine, 0, 4_000)
        full = published(engine, tmp_path, 1)
        change(engine, 0, 9)
        published(engine, tmp_path, 2)
        shutil.rmtree(tmp_path / "checkpoints" / full.names[0].folder)
        with pytest.raises(TornCheckpoint, match="a file of a checkpoint must exist"):
            open_commit(open_run(str(tmp_path)), "epoch-000002")
        change(engine, 30, 39)
        assert not published(engine, tmp_path, 3).bases, "the next shard is full"
        assert_stored(tmp_path, engine.state())
        engine.close()
