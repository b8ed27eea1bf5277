"""Partial shards of hashed and pruned tables: rows that were removed, ages that went on, and the base of each."""

from __future__ import annotations

from contextlib import ExitStack
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.parameter_servers import thread_servers
from tests.support.processes import PATIENCE_SECS
from tests.support.server_process import ServerProcess
from tests.trainer.checkpoints.hashed_shards import hashed_arrays, partial_arrays, write_full, write_partial
from tests.trainer.servers.test_server_shards import (
    SEED,
    STEP,
    assert_read_whole,
    loaded,
    published,
    shards_of,
    size_of,
)
from tests.trainer.tables.routes.servers.random_batches import gradients_of, random_batch
from trainer.checkpoints.checkpoint import read_newest, write_checkpoint
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import check_fit, open_commit, read_commit, read_shards
from trainer.checkpoints.reshard import reshard_commit
from trainer.checkpoints.run_files import newest_first
from trainer.checkpoints.shard_manifest import REMOVING_SHARD_FORMAT, SHARD_FORMAT
from trainer.checkpoints.shard_name import ShardName, WrittenShards
from trainer.checkpoints.shards.shard_orders import to_document
from trainer.checkpoints.stored_commit import Share
from trainer.checkpoints.table_sections import section_name
from trainer.errors import TornCheckpoint
from trainer.options.pruning import PruningOptions
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.run.weights.saved_tables import saved_states
from trainer.servers.client_updates import Greeting
from trainer.servers.tcp_link import LinkOptions, connect_to
from trainer.tables import Adagrad, Adam, FeatureSpec, IdBatch, TableSpec
from trainer.tables.optimizers import RowWiseAdagrad
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.routes.servers.frames import Kind
from trainer.tables.stores.hashed.limits import TableLimits

#: A hashed table that is full, one of few places with admission and expiry, and one whose rows have numbers.
FEATURES = (
    FeatureSpec("user", TableSpec("user", 2**63 - 1, 4, Adagrad(0.1, 0.25), "sum")),
    FeatureSpec("place", TableSpec("place", 300, 4, Adagrad(0.1, 0.25), "mean")),
    FeatureSpec("words", TableSpec("words", 2**62, 3, Adam(0.1), "mean")),
)
LIMITS = {
    "user": TableLimits(210),
    "words": TableLimits(180, admit_after=2, expire_after_steps=25, candidates=64, candidate_steps=50),
}
PRUNING = PruningOptions(0.3, round_steps=3, decay_steps=2, reset="restored", spare_share=0.1)
ZEROED = PruningOptions(0.3, round_steps=4, reset="zero")
#: The options of engines, by kind of tables.
KINDS = {
    "hashed": {"hashed": LIMITS},
    "pruned": {"pruning": PRUNING},
    "hashed beside pruned": {"hashed": LIMITS, "pruning": ZEROED},
}
_IDS = 400


def features_of(kind: str):
    """Of pruned tables alone, as many rows as there are ids."""
    if kind != "pruned":
        return FEATURES
    return tuple(FeatureSpec(one.name, TableSpec(one.table.name, _IDS, one.table.dim, one.table.optimizer, one.table.combiner))
                 for one in FEATURES)  # fmt: skip


def engine_on(servers, kind: str) -> PsEngine:
    return PsEngine(features_of(kind), seed=SEED, servers=[one.connect() for one in servers], threads=1, **KINDS[kind])


def batch_of(kind: str, seed: int, events: int) -> IdBatch:
    """A batch with ids of a skewed choice; those of hashed tables are spread over their range."""
    sizes = {"place": 300}
    small = [FeatureSpec(one.name, TableSpec(one.name, sizes.get(one.name, _IDS), 1, Adagrad(0.1))) for one in FEATURES]
    found = random_batch(small, seed, events=events, weighted=False)
    if kind == "pruned":
        return found
    ids = found.ids.copy()
    for f in (0, 2):
        first, stop = found.offsets[f, 0], found.offsets[f, -1]
        ids[first:stop] = found.ids[first:stop] * ((2**62 - 1) // _IDS)
    return IdBatch(ids, found.offsets)


def step(engine, kind: str, seed: int, events: int = 8) -> bytes:
    batch = batch_of(kind, seed, events)
    seen = engine.lookup(batch).tobytes()
    engine.apply_gradients(batch, gradients_of(batch, engine.width, seed))
    return seen


def assert_whole(found, expected) -> None:
    """Equal states with all that tables have beside their rows, bit for bit."""
    assert found.keys() == expected.keys()
    for name, state in expected.items():
        one = found[name]
        for part in ("rows", "weights", "slots"):
            assert getattr(one, part).tobytes() == getattr(state, part).tobytes(), (name, part)
        assert one.sections.arrays.keys() == state.sections.arrays.keys()
        for section, array in state.sections.arrays.items():
            assert one.sections.arrays[section].tobytes() == array.tobytes(), (name, section)
        by_rows = state.sections.by_rows
        assert one.sections.by_rows.keys() == by_rows.keys()
        assert_whole({f"{name} {one}": found[name].sections.by_rows[one] for one in by_rows},
                     {f"{name} {one}": by_rows[one] for one in by_rows})  # fmt: skip


def assert_stored(run, state) -> None:
    """The newest checkpoint has this state, however it is read."""
    assert_read_whole(run, state)
    found = read_newest(run, on_skip=pytest.fail)
    assert found is not None
    assert_whole(saved_states(found.arrays, "embedding"), state)


@pytest.mark.medium
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=scaled(5))
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), min_size=2, max_size=5),
    st.integers(0, 50),
)
def test_partial_shards_and_their_bases_have_all_rows_and_ages(kind, count, intervals, seed):
    """Rows come, leave, expire and come again between checkpoints. On as many servers training goes on with the same bits."""
    with (
        TemporaryDirectory() as run,
        thread_servers(count, runs=[run]) as servers,
        thread_servers(count, runs=[run]) as others,
    ):
        engine, restored = engine_on(servers, kind), engine_on(others, kind)
        for k in range(20):
            step(engine, kind, seed + k)
        for attempt, (steps, events) in enumerate(intervals, 1):
            found = published(engine, run, attempt)
            assert_stored(run, engine.state())
            for k in range(steps):
                step(engine, kind, 100 * attempt + seed + k, events)
        found = published(engine, run, 9)
        assert_stored(run, engine.state())
        step(restored, kind, 7)  # rows that are replaced
        loaded(restored, run, found.names)
        assert_whole(restored.state(), engine.state())
        for k in range(12):
            assert step(restored, kind, 1_000 + k) == step(engine, kind, 1_000 + k)
        assert_whole(restored.state(), engine.state())
        restored.close()
        engine.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_partial_shard_lists_the_rows_that_are_gone(tmp_path, kind):
    """Its manifest has another format, which an earlier release refuses; a full shard has the format that it knows."""
    with thread_servers(2, runs=[tmp_path]) as servers:
        engine = engine_on(servers, kind)
        for k in range(40):
            step(engine, kind, k)
        full = published(engine, tmp_path, 1)
        before = engine.state()
        for k in range(40, 52):
            step(engine, kind, k, events=2)
        partial = published(engine, tmp_path, 2)
        after = engine.state()
        assert partial.bases == full.names
        files = open_run(str(tmp_path))
        (one, _), (other, _) = (
            (manifest, name) for name, manifest in read_shards(files, [full.names[0], partial.names[0]])
        )
        assert (one.shard.format, other.shard.format) == (SHARD_FORMAT, REMOVING_SHARD_FORMAT)
        assert one.shard.generation == other.shard.generation > 0
        assert not one.shard.removed_arrays
        commit = open_commit(files, newest_first(files)[0])
        gone = 0
        for table in before:
            expected = np.setdiff1d(before[table].rows, after[table].rows)
            lists = [part.removed("embedding", table) for part in commit.shards]
            if not any(lists):
                assert not len(expected)
                continue
            listed = np.sort(np.concatenate([list_.array(files) for list_ in lists if list_ is not None]))
            assert np.isin(expected, listed).all()
            assert not np.isin(listed, after[table].rows).any()
            gone += len(expected)
        assert gone, "rows were removed"
        engine.close()


@pytest.mark.medium
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2)])
def test_other_numbers_of_servers_load_partial_shards_as_full_ones(tmp_path, kind, before, after):
    """The same moment is saved as full shards of another run."""
    with ExitStack() as stack:
        runs = [tmp_path / "partial", tmp_path / "full"]
        servers = stack.enter_context(thread_servers(before, runs=runs))
        engine = engine_on(servers, kind)
        for k in range(30):
            step(engine, kind, k)
        published(engine, runs[0], 1)
        for k in range(30, 41):
            step(engine, kind, k, events=2)
        found = [published(engine, run, 2) for run in runs]
        assert found[0].bases
        assert not found[1].bases
        engines = [engine_on(stack.enter_context(thread_servers(after, runs=runs)), kind) for _ in runs]
        for one, run, shards in zip(engines, runs, found, strict=True):
            loaded(one, run, shards.names)
        assert_whole(engines[0].state(), engines[1].state())
        for k in range(8):
            assert step(engines[0], kind, 500 + k) == step(engines[1], kind, 500 + k)
        assert_whole(engines[0].state(), engines[1].state())
        for one in (engine, *engines):
            one.close()


@pytest.mark.medium
@pytest.mark.parametrize("kind", KINDS)
def test_partial_shards_are_resharded_and_read_by_hosts(tmp_path, kind):
    run = tmp_path / "run"
    with thread_servers(2, runs=[run]) as servers:
        engine = engine_on(servers, kind)
        for k in range(30):
            step(engine, kind, k)
        published(engine, run, 1)
        for k in range(30, 41):
            step(engine, kind, k, events=2)
        assert published(engine, run, 2).bases
        state = engine.state()
        engine.close()
    files = open_run(str(run))
    name = newest_first(files)[0]
    for cores in (1, 3):
        target = tmp_path / f"{cores} parts"
        reshard_commit(
            files, open_commit(files, name), PartitionPlan(cores, ()), target / "checkpoints", window_bytes=2_000
        )
        found = read_newest(target, on_skip=pytest.fail)
        assert found is not None
        assert_whole(saved_states(found.arrays, "embedding"), state)
    for hosts in (2, 3):
        for rank in range(hosts):
            own = saved_states(read_commit(files, name, Share(rank, hosts)).arrays, "embedding")
            for table, whole in state.items():
                mine = whole.rows % hosts == rank
                assert np.array_equal(own[table].rows, whole.rows[mine])
                assert np.array_equal(own[table].weights, whole.weights[mine])
                if "ages" in whole.sections.arrays:
                    assert np.array_equal(own[table].sections.arrays["ages"], whole.sections.arrays["ages"][mine])


@pytest.mark.parametrize("kind", KINDS)
def test_a_shard_is_full_again_after_many_changes(tmp_path, kind):
    """So there are never more than two layers, with at most 1.5 times the rows; then the next one builds on it."""
    with thread_servers(1, runs=[tmp_path]) as servers:
        engine = engine_on(servers, kind)
        for k in range(40):
            step(engine, kind, k)
        full = published(engine, tmp_path, 1)
        for k in range(40, 46):
            step(engine, kind, k, events=1)
        partial = published(engine, tmp_path, 2)
        assert partial.bases == full.names
        assert size_of(tmp_path, partial.names) < 0.7 * size_of(tmp_path, full.names)
        for k in range(50, 90):
            step(engine, kind, k)
        again = published(engine, tmp_path, 3)
        assert not again.bases
        assert_stored(tmp_path, engine.state())
        step(engine, kind, 99, events=1)
        assert published(engine, tmp_path, 4).bases == again.names
        assert_stored(tmp_path, engine.state())
        engine.close()


def test_servers_without_rows_of_a_table_have_partial_shards(tmp_path):
    """Whole pruned tables by a plan."""
    features = features_of("pruned")
    tables = [
        TablePlan(one.table.name, _IDS, one.table.dim, (Slice(0, one.table.dim, (k % 2,)),))
        for k, one in enumerate(features)
    ]
    with thread_servers(2, runs=[tmp_path]) as servers, thread_servers(2, runs=[tmp_path]) as others:
        engine, restored = (
            PsEngine(features, seed=SEED, servers=[one.connect() for one in found], threads=1, pruning=PRUNING,
                     plan=PartitionPlan(2, tuple(tables)))
            for found in (servers, others)
        )  # fmt: skip
        for k in range(30):
            step(engine, "pruned", k)
        published(engine, tmp_path, 1)
        for k in range(30, 40):
            step(engine, "pruned", k, events=1)
        found = published(engine, tmp_path, 2)
        assert len(found.bases) == 2
        assert_stored(tmp_path, engine.state())
        loaded(restored, tmp_path, found.names)
        assert_whole(restored.state(), engine.state())
        restored.close()
        engine.close()


def test_importance_that_was_divided_is_written_again(tmp_path, monkeypatch):
    """The values of all rows change then: no earlier shard is a base."""
    monkeypatch.setattr("trainer.tables.stores.pruned.row_importance._MOST_GAIN", 8.0)
    with thread_servers(1, runs=[tmp_path]) as servers:
        engine = engine_on(servers, "pruned")
        bases = []
        for attempt in range(1, 30):
            step(engine, "pruned", attempt, events=1 if attempt > 1 else 60)
            bases.append(bool(published(engine, tmp_path, attempt).bases))
            assert_stored(tmp_path, engine.state())
        assert True in bases
        assert bases.count(False) > 1
        engine.close()


def test_shards_after_a_load_are_of_another_generation(tmp_path):
    with thread_servers(1, runs=[tmp_path]) as servers:
        engine = engine_on(servers, "hashed")
        for k in range(20):
            step(engine, "hashed", k)
        first = published(engine, tmp_path, 1)
        assert shards_of(engine).load(tmp_path, STEP, first.names)
        engine.take_loaded()
        second = published(engine, tmp_path, 2)
        assert not second.bases
        generations = [manifest.shard.generation for _, manifest in read_shards(open_run(str(tmp_path)), [*first.names, *second.names])]  # fmt: skip
        assert len(set(generations)) == 2
        engine.close()


#: What a shard of a hashed table with a base may hold that its server cannot have written: the array, its content, and the error.
WRONG = {
    "steps": (section_name("embedding", "steps", "user"), np.array([9]), "at least those of its base"),
    "two steps": (section_name("embedding", "steps", "user"), np.array([13, 13]), "the steps of a shard must be one number"),
    "no list of lines": ("embedding/lines/user", None, "must list the lines of candidates"),
    "another line": ("embedding/lines/user", np.array([2]), "must be lines of the base"),
    "a removed row that is there": ("embedding/removed/user", np.array([7]), "must not be in a later shard"),
    "removed rows in another order": ("embedding/removed/user", np.array([2, 1]), "removed rows of a table must ascend|rows of a part must ascend"),
    "removed rows as floats": ("embedding/removed/user", np.array([1.0]), "must be int64 numbers in a list"),
    "an age more": (section_name("embedding", "ages", "user"), np.array([0, 1, 1]), "a number for each row|an age for each|values for each of its rows"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_shards_that_no_server_has_written_are_refused(tmp_path, wrong):
    """Their digests are right: by what reads a checkpoint, and by a server that loads it."""
    name, content, error = WRONG[wrong]
    base = write_full(tmp_path, 1)
    arrays = hashed_arrays([3, 7], 2, [0, 1], 13) | partial_arrays([1])
    if content is None:
        arrays.pop(name)
    else:
        arrays[name] = content
    if name.endswith("lines/user") and content is not None:
        arrays[section_name("embedding", "candidates", "user")] = np.zeros(8, np.uint64)
    partial = write_partial(tmp_path, base, arrays)
    files = open_run(str(tmp_path))
    with pytest.raises(TornCheckpoint, match=error):
        read_commit(files, newest_first(files)[0])
    with pytest.raises(TornCheckpoint, match=error):
        check_fit(files, open_commit(files, newest_first(files)[0]))
    with thread_servers(1, runs=[tmp_path]) as servers:
        table = TableSpec("user", 2**62, 2, RowWiseAdagrad(0.1), "sum")
        engine = PsEngine([FeatureSpec("user", table)], seed=SEED, servers=[servers[0].connect()], threads=1,
                          hashed={"user": TableLimits(20)})  # fmt: skip
        with pytest.raises(TornCheckpoint, match=error):
            shards_of(engine).load(tmp_path, 2, [partial])
        engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_killed_while_it_writes_a_partial_shard_writes_a_full_one(tmp_path, kind):
    """Its next process does not know what has changed since the base; the rows are those of the same moment."""
    run = tmp_path / "run"
    (tmp_path / "server").mkdir()
    (run / "checkpoints").mkdir(parents=True)
    server = ServerProcess(tmp_path / "server", runs=str(run))
    server.start()
    try:
        connect = connect_to(server.address, LinkOptions(Greeting(), patience_secs=PATIENCE_SECS))
        engine = PsEngine(features_of(kind), seed=SEED, servers=[connect], threads=1, **KINDS[kind])
        for k in range(30):
            step(engine, kind, k)
        base = published(engine, run, 1)
        for kill in range(4):
            for k in range(3):
                step(engine, kind, 100 * kill + k, events=2)
            expected, attempt = engine.state(), 2 * kill + 2
            engine.begin_snapshot(most_bytes=1 << 20)
            order = to_document(shards_of(engine)._order(str(run), attempt, STEP, 0, str(base.names[0])))
            engine.servers[0].ask_saving(Kind.WRITE_SHARD, order)
            step(engine, kind, 1_000 + kill)
            server.kill()
            server.start()
            while not (found := engine.servers[0].ask_saving(Kind.WRITE_SHARD, order))["shard"]:
                pass
            engine.end_snapshot()
            shards = WrittenShards(
                *((ShardName.parse(one, "here"),) if one else () for one in (found["shard"], found.get("base", "")))
            )
            document = {"step": STEP, "ledger": None, "history": [], "position": {"epochs_done": attempt}}
            write_checkpoint(run, attempt, document, {}, keep=2, shards=shards)
            assert_stored(run, expected)
            base = published(engine, run, attempt + 1)
            assert_stored(run, engine.state())
        engine.close()
    finally:
        server.close()
