"""Shards with slices of columns, which servers write and load by any plans."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.parameter_servers import sources_of, thread_servers
from tests.support.processes import PATIENCE_SECS
from tests.trainer.servers.test_server_shards import (
    SEED,
    STEP,
    assert_read_whole,
    engine_on,
    loaded,
    published,
    shards_of,
)
from tests.trainer.tables.routes.partitioned.plans import mixed_plan, plan_of, plans
from tests.trainer.tables.routes.servers.random_batches import FEATURES, train
from tests.trainer.tables.table_states import assert_same
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import read_shards
from trainer.planning.plan import Slice
from trainer.servers.moves.table_copy import TableCopy
from trainer.serving.deltas.commit_weights import weight_stream
from trainer.tables import CpuEngine
from trainer.tables.spec import tables_of


def assert_stored(run, state) -> None:
    """The newest checkpoint has these rows, read as a whole and in windows, and its files fit each other."""
    files, commit = assert_read_whole(run, state)
    for name, own in state.items():
        stream = weight_stream(files, commit, "embedding", name, own.weights.shape[1], window_bytes=2_000)
        pieces = list(stream.pieces)
        assert np.array_equal(np.concatenate([own.rows[:0], *(one.ids for one in pieces)]), own.rows)
        assert np.array_equal(np.concatenate([own.weights[:0], *(one.values[0] for one in pieces)]), own.weights)


@pytest.mark.medium
@settings(max_examples=scaled(12))
@given(st.data(), st.sampled_from([4_000, 1 << 20]), st.integers(0, 100))
def test_slices_of_columns_are_loaded_by_any_plan(data, most_bytes, seed):
    """The rows of a moment while training goes on; further training has the bits of one process."""
    before, after = (data.draw(plans(FEATURES, data.draw(st.integers(1, 3)))) for _ in range(2))
    with TemporaryDirectory() as run, ThreadPoolExecutor(1) as pool:
        alone = CpuEngine(FEATURES, seed=SEED)
        train(alone, range(seed, seed + 3))
        expected = alone.state()
        with thread_servers(before.cores, runs=[run]) as servers:
            engine = engine_on(servers, plan=before)
            train(engine, range(seed, seed + 3))
            engine.begin_snapshot(most_bytes=most_bytes)
            writing = pool.submit(shards_of(engine).write, run, 1, STEP)
            train(engine, range(seed + 3, seed + 6))
            names = writing.result(timeout=PATIENCE_SECS).names
            engine.end_snapshot()
            engine.close()
        with thread_servers(after.cores, runs=[run]) as servers:
            engine = engine_on(servers, plan=after)
            train(engine, range(4))  # rows that are replaced
            loaded(engine, run, names)
            assert_same(engine.state(), expected)
            train(engine, range(9))
            alone.load_state(expected)
            train(alone, range(9))
            assert_same(engine.state(), alone.state())
            engine.close()


@pytest.mark.medium
@settings(max_examples=scaled(8))
@given(st.integers(1, 3), st.integers(1, 3), st.lists(st.integers(0, 3), min_size=2, max_size=4), st.integers(0, 50))
def test_partial_shards_have_slices_of_columns(before, after, steps, seed):
    with TemporaryDirectory() as run:
        with thread_servers(before, runs=[run]) as servers:
            engine = engine_on(servers, plan=mixed_plan(FEATURES, before))
            train(engine, range(seed, seed + 12))
            bases = []
            for attempt, count in enumerate(steps, 1):
                bases.append(published(engine, run, attempt).bases)
                assert_stored(run, engine.state())
                train(engine, range(attempt * 7, attempt * 7 + count), events=1)
            found = published(engine, run, 9)
            expected = engine.state()
            engine.close()
        assert not bases[0]
        assert any(bases[1:]) or any(steps)
        with thread_servers(after, runs=[run]) as servers:
            engine = engine_on(servers, plan=None if after == 2 else mixed_plan(FEATURES, after))
            loaded(engine, run, found.names)
            assert_same(engine.state(), expected)
            engine.close()


def test_a_full_slice_of_one_server_fits_the_partial_one_of_another(tmp_path):
    """As after a restart of the process of one of them."""
    slices = {"two": (Slice(0, 6, (0,)), Slice(6, 10, (1,)))}
    with thread_servers(2, runs=[tmp_path]) as servers:
        engine = engine_on(servers, plan=plan_of(tables_of(FEATURES), 2, slices))
        train(engine, range(12))
        published(engine, tmp_path, 1)
        train(engine, range(20, 22), events=1)
        expected = engine.state()
        servers[1].rows._rows.changed.forget()
        found = published(engine, tmp_path, 2)
        assert [one.server for one in found.bases] == [0]
        assert_stored(tmp_path, expected)
        loaded(engine, tmp_path, found.names)
        assert_same(engine.state(), expected)
        engine.close()


def test_a_server_without_rows_writes_a_shard_without_slices(tmp_path):
    cut = {one.name: (Slice(0, 2, (0,)), Slice(2, one.dim - 2, (0,))) for one in tables_of(FEATURES) if one.dim > 2 and one.name != "row-wise"}  # fmt: skip
    whole = {one.name: (Slice(0, one.dim, (0,)),) for one in tables_of(FEATURES) if one.name not in cut}
    with thread_servers(2, runs=[tmp_path]) as servers:
        engine = engine_on(servers, plan=plan_of(tables_of(FEATURES), 2, cut | whole))
        train(engine, range(3))
        found = published(engine, tmp_path, 1)
        expected = engine.state()
        assert_stored(tmp_path, expected)
        (_, first), (_, second) = read_shards(open_run(str(tmp_path)), found.names)
        assert {name for name, _ in first.arrays} > {"slice-1/embedding/weights/two", "embedding/weights/row-wise"}
        assert {name for name, _ in second.arrays} == {f"embedding/{column}/{name}" for column in ("rows", "weights", "slots") for name in whole}  # fmt: skip
        loaded(engine, tmp_path, found.names)
        assert_same(engine.state(), expected)
        engine.close()


@pytest.mark.medium
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_servers_to_which_slices_of_columns_were_moved_write_them(tmp_path, before, after):
    """Training goes on through the move and loads what the other servers have written, with the bits of one process."""
    alone = CpuEngine(FEATURES, seed=SEED)
    with thread_servers(before, runs=[tmp_path]) as servers, thread_servers(after, runs=[tmp_path]) as others:
        engine = engine_on(servers, plan=mixed_plan(FEATURES, before))
        train(engine, range(6))
        published(engine, tmp_path, 1)
        target = engine_on(others, plan=mixed_plan(FEATURES, after))
        copy = TableCopy(engine, target, sources_of(engine))
        copy.begin()
        copy.copy_all()
        copy.end()
        copy.close()
        engine.close()
        train(target, range(6, 9))
        train(alone, range(9))
        found = published(target, tmp_path, 2)
        assert not found.bases, "shards of the other servers are none of theirs"
        assert len(found.names) == after
        assert_stored(tmp_path, alone.state())
        train(target, range(20, 22))
        loaded(target, tmp_path, found.names)
        train(target, range(9, 12))
        train(alone, range(9, 12))
        assert_same(target.state(), alone.state())
        target.close()
