"""Pruned tables on servers have the bits of those in this process, whatever happens to the servers."""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.support.parameter_servers import thread_servers
from tests.trainer.embedding.partitioned.test_partitioned_engine import batches, same_states
from tests.trainer.embedding.pruned.test_pruned_engine import (
    FEATURES,
    NEVER,
    PAPER,
    SEED,
    TABLES,
    assert_snapshot_of_its_moment,
    gradients_of,
    popular_batch,
    pruned,
    step,
)
from tests.trainer.embedding.ps.test_ps_engine import counted
from tests.trainer.embedding.test_engine import batch_of
from tests.trainer.servers.test_killed_servers import link_to, processes
from trainer.embedding import SGD, CpuEngine, FeatureSpec, TableSpec
from trainer.embedding.ps import pruned_places
from trainer.embedding.ps.frames import Kind
from trainer.embedding.ps.pruned_engine import ServedPrunedEngine
from trainer.embedding.spec import tables_of
from trainer.embedding.state_checks import empty_state
from trainer.embedding.wire.settings import WireSettings
from trainer.errors import BadBatch, NonFiniteLoss, TornCheckpoint
from trainer.pruning_options import PruningOptions
from trainer.servers.client_updates import Greeting

SERVERS = 3
ATTEMPTS = count(1)


@pytest.fixture(scope="module")
def servers():
    with thread_servers(SERVERS) as made:
        yield made


def served(servers, budget=0.5, *, features=FEATURES, **options) -> ServedPrunedEngine:
    """As a new attempt: other budgets have other rows."""
    greeting = Greeting(attempt=next(ATTEMPTS))
    return over([one.connect(greeting) for one in servers], budget, features=features, **options)


def over(
    connects, budget=0.5, *, features=FEATURES, threads=2, wire=None, overlaps=False, **options
) -> ServedPrunedEngine:
    found = ServedPrunedEngine(
        features, PruningOptions.read({"budget": budget, **PAPER, **options}), seed=SEED, servers=connects, threads=threads, wire=wire, overlaps=overlaps
    )  # fmt: skip
    found.load_state({one.name: empty_state(one) for one in tables_of(features)})
    return found


def same(one, other) -> None:
    """Values, importance and counts."""
    same_states(one.state(), other.state())
    for name, history in other.histories().items():
        found = one.histories()[name]
        assert (found.rows.tobytes(), found.importance.tobytes()) == (
            history.rows.tobytes(),
            history.importance.tobytes(),
        )
        assert (found.gain, found.step, found.rounds) == (history.gain, history.step, history.rounds)
    for name in ("hits", "misses", "rounds", "moved_rows"):
        assert getattr(one.counts, name) == getattr(other.counts, name)
    assert one.statistics() == other.statistics()


@settings(max_examples=scaled(40))
@given(
    st.lists(batches(FEATURES), min_size=1, max_size=8),
    st.floats(0.2, 1.0),
    st.sampled_from(["zero", "initial", "restored", "none"]),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from(["plain", "unique"]),
)
def test_servers_change_no_bit(servers, trained, budget, reset, spare, ids):
    options = {"reset": reset, "spare_share": spare, "round_steps": 2, "decay_steps": 3}
    here, there = pruned(budget, **options), served(servers, budget, wire=WireSettings(ids=ids), **options)
    for seed, batch in enumerate(trained):
        assert step(there, batch, seed) == step(here, batch, seed)
    same(there, here)
    for table in TABLES:
        rows = np.arange(table.vocabulary_size)[::-1]
        assert there.weights_of(table.name, rows).tobytes() == here.weights_of(table.name, rows).tobytes()
    there.close()


@settings(max_examples=scaled(20))
@given(st.lists(batches(FEATURES), min_size=2, max_size=8), st.floats(0.2, 0.9), st.integers(0, 7))
def test_a_run_goes_on_there_and_here(servers, trained, budget, stop):
    options = {"round_steps": 3, "decay_steps": 2}
    first, last = pruned(budget, **options), served(servers, budget, **options)
    expected = pruned(budget, **options)
    for seed, batch in enumerate(trained):
        if seed == stop:
            last.load_state(first.state())
        engine = first if seed < stop else last
        assert step(engine, batch, seed) == step(expected, batch, seed)
    back = pruned(budget, **options)
    engine = first if stop >= len(trained) else last
    back.load_state(engine.state())
    same_states(back.state(), expected.state())
    last.close()


@settings(max_examples=scaled(20))
@given(st.floats(0.2, 0.9), st.integers(0, 100))
def test_a_snapshot_is_of_its_moment_while_rows_lose_their_places(servers, budget, seed):
    engine = served(servers, budget, round_steps=2)
    assert_snapshot_of_its_moment(engine, budget, seed)
    engine.close()


@settings(max_examples=scaled(15))
@given(st.floats(0.2, 0.9), st.integers(0, 100))
def test_lookups_overlap_with_updates_and_rounds(servers, budget, seed):
    """Each lookup is begun before the update of the batch before it, also where a round moves rows in between."""
    options = {"round_steps": 2, "decay_steps": 3}
    here, there = pruned(budget, **options), served(servers, budget, overlaps=True, **options)
    trained = [popular_batch(seed + k, shift=k) for k in range(8)]
    expected, ends = here.lookup(trained[0]), [there.begin_lookup(trained[0])]
    for k, batch in enumerate(trained):
        after = here.lookup(trained[k + 1]) if k + 1 < len(trained) else expected
        if k + 1 < len(trained):
            ends.append(there.begin_lookup(trained[k + 1]))
        assert ends.pop(0)().tobytes() == expected.tobytes()
        expected = after.copy()
        for engine in (here, there):
            engine.apply_gradients(batch, gradients_of(batch, engine.width, k))
    same(there, here)
    there.close()


def test_a_batch_takes_one_fetch_and_one_update_and_new_rows_one_message_more():
    links: list[list] = [[] for _ in range(SERVERS)]
    with thread_servers(SERVERS) as made:
        engine = over([counted(*one) for one in zip(made, links, strict=True)], **NEVER)
        for own in links:
            own[0].requests.clear()
        writes = 0
        for k in range(12):
            before = engine.addresses.free_rows.sum()
            step(engine, popular_batch(k), k)
            writes += int(engine.addresses.free_rows.sum() < before)
        engine.finish()
        assert 0 < writes < 12
        for own in links:
            found = Counter(one.kind for one in own[0].requests)
            assert found == {Kind.FETCH: 12, Kind.UPDATE: 12, Kind.WRITE_VALUES: writes}
        engine.close()


@pytest.mark.parametrize("reset", ["zero", "restored"])
def test_values_of_many_rows_take_several_messages(servers, monkeypatch, reset):
    monkeypatch.setattr(pruned_places, "MESSAGE_BYTES", 64)
    options = {"reset": reset, "round_steps": 2}
    here, there = pruned(0.4, **options), served(servers, 0.4, **options)
    for k in range(8):
        batch = popular_batch(k, shift=k)
        assert step(there, batch, k) == step(here, batch, k)
    same(there, here)
    assert there.counts.moved_rows > 0
    there.close()


def test_a_row_without_a_place_is_read_as_zeros_and_never_trained(servers):
    table = TableSpec("t", 40, 4, SGD(0.1), "mean")
    engine = served(servers, 0.25, features=[FeatureSpec("f", table)], **NEVER)
    for rows in (range(10), range(10, 20)):
        batch = batch_of([[[row] for row in rows]])
        engine.lookup(batch)
        engine.apply_gradients(batch, np.ones((10, 4), np.float32))
    found = engine.lookup(batch_of([[[3, 15], [15], []]]))
    assert found[0].tobytes() == (engine.weights_of("t", np.array([3]))[0] * np.float32(0.5)).tobytes()
    assert not found[1:].any()
    assert not engine.weights_of("t", np.array([15])).any()
    engine.close()


def test_bad_input_changes_nothing(servers):
    engine = served(servers, **NEVER)
    step(engine, popular_batch(1), 1)
    before, importance = engine.state(), engine.histories()["one"].importance.tobytes()
    bad = batch_of([[[10**6]]] + [[[]]] * (len(FEATURES) - 1))
    with pytest.raises(BadBatch):
        engine.lookup(bad)
    with pytest.raises(BadBatch):
        engine.apply_gradients(bad, np.ones((1, engine.width), np.float32))
    batch = popular_batch(2)
    with pytest.raises(NonFiniteLoss):
        engine.apply_gradients(batch, np.full((batch.rows, engine.width), np.nan, np.float32))
    with pytest.raises(TornCheckpoint):
        engine.load_state({})
    same_states(engine.state(), before)
    assert engine.histories()["one"].importance.tobytes() == importance
    engine.close()


def test_killed_servers_change_no_bit(tmp_path):
    """Also when they are killed while rows get places."""
    with processes(tmp_path, 2) as running, ThreadPoolExecutor(1) as pool:
        engine = over([link_to(one.address) for one in running], 0.4, round_steps=3, decay_steps=5)
        here, ends = pruned(0.4, round_steps=3, decay_steps=5), []

        def disturb() -> None:
            draw = random.Random(1)
            for _ in range(scaled(40)):
                one = draw.choice(running)
                one.kill()
                one.start()
                time.sleep(draw.uniform(0.0, 0.02))
            ends.append(True)

        disturbing, k = pool.submit(disturb), 0
        while not ends or k < 12:
            if disturbing.done():
                disturbing.result()
            batch = popular_batch(k, shift=k // 3)
            assert step(engine, batch, k) == step(here, batch, k)
            k += 1
        same(engine, here)
        assert here.counts.moved_rows > 0
        engine.close()


def test_a_whole_state_is_loaded_within_the_budget(servers):
    whole = CpuEngine(FEATURES, seed=SEED)
    for k in range(6):
        step(whole, popular_batch(k), k)
    here, there = pruned(0.3), served(servers, 0.3)
    for engine in (here, there):
        engine.load_state(whole.state())
    same(there, here)
    there.close()
