"""Hashed and pruned tables of one model on servers: the bits of one process, of hosts, and of servers that nothing kills."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from tests.support.embedding_workers import ThreadWorker, engine_through
from tests.support.examples import scaled
from tests.support.parameter_servers import thread_servers
from tests.support.server_process import killed_meanwhile
from tests.trainer.servers.test_killed_servers import link_to, processes
from tests.trainer.tables.routes.servers.random_batches import gradients_of, random_batch
from tests.trainer.tables.table_states import assert_same
from tests.trainer.thread_exchange import on_hosts
from trainer.errors import BadBatch
from trainer.options.combinations import Setup
from trainer.options.pruning import PruningOptions
from trainer.run.weights.saved_tables import saved_states, state_arrays
from trainer.servers.client_updates import Greeting, Mode
from trainer.tables import Adagrad, Adam, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.exchange import OneHost
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.routes.servers.engine import PsEngine
from trainer.tables.snapshot_states import state_of
from trainer.tables.stores.hashed.limits import TableLimits

SEED = 3
#: Tables of both kinds in turn, of which two have the width of each other.
FEATURES = (
    FeatureSpec("place", TableSpec("place", 60, 4, Adagrad(0.1, 0.25), "mean")),
    FeatureSpec("user", TableSpec("user", 2**63 - 1, 4, Adagrad(0.1, 0.25), "sum")),
    FeatureSpec("item", TableSpec("item", 90, 3, Adam(0.1), "mean")),
    FeatureSpec("words", TableSpec("words", 2**62, 3, Adam(0.1), "mean")),
)
LIMITS = {
    "user": TableLimits(24, expire_after_steps=9),
    "words": TableLimits(18, admit_after=2, candidates=32, candidate_steps=50),
}
PRUNING = PruningOptions.read(
    {"budget": 0.4, "round_steps": 3, "decay_steps": 5, "spare_share": 0.2, "reset": "restored"}
)
KINDS = {"hashed": LIMITS, "pruning": PRUNING}
HASHED = [1, 3]
ATTEMPTS = count(1)


def batch_of(seed: int) -> IdBatch:
    """A batch of few distinct ids; those of hashed tables are spread over the whole range."""
    small = [
        FeatureSpec(one.name, TableSpec(one.name, min(one.table.vocabulary_size, 90), 1, Adagrad(0.1)))
        for one in FEATURES
    ]
    found = random_batch(small, seed, events=6, weighted=False)
    ids = found.ids.copy()
    for f in HASHED:
        first, stop = found.offsets[f, 0], found.offsets[f, -1]
        ids[first:stop] = ids[first:stop] % 40 * ((2**62 - 1) // 40)
    return IdBatch(ids, found.offsets, found.weights)


def step(engine, seed: int) -> bytes:
    batch = batch_of(seed)
    seen = engine.lookup(batch).tobytes()
    engine.apply_gradients(batch, gradients_of(batch, engine.width, seed))
    return seen


def in_one_process(**options) -> ShardedTables:
    return ShardedTables(FEATURES, seed=SEED, exchange=OneHost(), threads=1, **{**KINDS, **options})


def on_servers(servers, **options) -> PsEngine:
    connects = [one.connect(Greeting(attempt=next(ATTEMPTS))) for one in servers]
    return PsEngine(FEATURES, seed=SEED, servers=connects, threads=1, **{**KINDS, **options})


def assert_same_tables(found, expected) -> None:
    """Values, ages, steps, candidates, importance, and the numbers of pruning."""
    assert_same(found, expected)
    for name, state in expected.items():
        own = found[name].sections
        assert own.by_rows.keys() == state.sections.by_rows.keys()
        assert_same(own.by_rows, state.sections.by_rows)
        assert {key: array.tobytes() for key, array in own.arrays.items()} == {
            key: array.tobytes() for key, array in state.sections.arrays.items()
        }
        assert set(own.arrays) == ({"ages", "steps", "candidates"} if name in LIMITS else {"pruning"})


def test_one_server_has_the_bits_of_one_process_and_goes_on_there_and_here():
    with thread_servers(1) as servers, closing(on_servers(servers)) as served:
        here = in_one_process()
        for seed in range(12):
            assert step(served, seed) == step(here, seed)
        middle = here.state()
        assert_same_tables(served.state(), middle)
        assert served.statistics() == here.statistics()
        assert served.setup == Setup(servers=True, hashed=True, pruned=True)
        assert served.direct.section_names(1) == here.section_names(1)
        assert served.direct.section_names(2) == here.section_names(2)
        counts = here.hashed_counts
        assert counts["user"].evicted
        assert counts["words"].unadmitted
        here, before = in_one_process(), here
        here.load_state(served.state())
        served.load_state(middle)
        for seed in range(12, 24):
            assert step(served, seed) == step(here, seed) == step(before, seed)
        assert_same_tables(served.state(), here.state())


def test_two_hosts_have_the_bits_of_two_clients_of_two_servers():
    """Rows of hashed tables are on the host, and on the server, of their remainder."""

    def train(made, rank: int) -> list[bytes]:
        seen = []
        for seed in range(12):
            batch = batch_of(10 * seed + rank)
            seen.append(made.lookup(batch).tobytes())
            made.apply_gradients(batch, gradients_of(batch, made.width, (seed, rank)))
        return seen

    def work(exchange):
        divided = replace(PRUNING, places="divided")  # as servers do
        made = ShardedTables(FEATURES, seed=SEED, exchange=exchange, threads=1, **{**KINDS, "pruning": divided})
        return train(made, exchange.rank), made.state(), made.hashed_counts

    found = on_hosts(2, work)
    for name, limits in LIMITS.items():
        for rank, (_, states, counts) in enumerate(found):
            assert set(states[name].rows % 2) <= {rank}
            assert len(states[name].rows) == counts[name].stored <= limits.capacity // 2
    attempt = next(ATTEMPTS)
    with thread_servers(2) as servers, ThreadPoolExecutor(2) as pool:
        greetings = [Greeting(attempt=attempt, client=k, clients=2, mode=Mode.SUMMED) for k in range(2)]
        made = [
            PsEngine(FEATURES, seed=SEED, servers=[one.connect(own) for one in servers], threads=1, **KINDS)
            for own in greetings
        ]
        assert list(pool.map(train, made, range(2))) == [seen for seen, _, _ in found]
        state = made[0].state()
        for name, one in state.items():
            of_hosts = [states[name] for _, states, _ in found]
            rows = np.concatenate([own.rows for own in of_hosts])
            order = np.argsort(rows)
            assert rows[order].tobytes() == one.rows.tobytes()
            for array in ("weights", "slots"):
                joined = np.concatenate([getattr(own, array) for own in of_hosts])[order]
                assert joined.tobytes() == getattr(one, array).tobytes()
        for own in made:
            own.close()


@pytest.mark.parametrize("count_after", [1, 3])
def test_other_servers_keep_the_newest_ids_and_the_most_important_rows(count_after):
    with ExitStack() as stack:
        servers, others = (stack.enter_context(thread_servers(number)) for number in (2, count_after))
        before, after = (stack.enter_context(closing(on_servers(one))) for one in (servers, others))
        for seed in range(12):
            step(before, seed)
        state = before.state()
        after.load_state(state)
        moved = after.state()
        for name, one in state.items():
            assert set(moved[name].rows) <= set(one.rows)
            assert len(moved[name].rows) > len(one.rows) // 2
            if name not in LIMITS:
                importance = [found[name].sections.by_rows["importance"].weights.tobytes() for found in (state, moved)]
                assert importance[0] == importance[1]
        for seed in range(12, 18):
            step(after, seed)


def test_a_snapshot_has_the_rows_of_its_moment_and_loads_as_saved_arrays():
    """It is read by ranges while training goes on."""
    with thread_servers(2) as servers, closing(on_servers(servers)) as served:
        for seed in range(9):
            step(served, seed)
        expected = served.state()
        snapshot = served.begin_snapshot(most_bytes=1 << 20)
        for seed in range(9, 12):
            step(served, seed)
        found = {one.name: state_of(snapshot, t, one) for t, one in enumerate(served.tables)}
        served.end_snapshot()
        assert_same_tables(found, expected)
        later = served.state()
        served.load_state(
            saved_states(state_arrays(("embedding", name, one) for name, one in found.items()), "embedding")
        )
        assert_same_tables(served.state(), expected)
        for seed in range(9, 12):
            step(served, seed)
        assert_same_tables(served.state(), later)


def test_an_embedding_worker_has_the_bits_of_servers_alone():
    with ExitStack() as stack:
        own, servers = stack.enter_context(thread_servers(2)), stack.enter_context(thread_servers(2))
        alone = stack.enter_context(closing(on_servers(own)))
        worker = ThreadWorker([one.address for one in servers])
        through = stack.enter_context(closing(engine_through(FEATURES, servers, worker, seed=SEED, **KINDS)))
        assert through.setup == Setup(servers=True, workers=True, hashed=True, pruned=True)
        for seed in range(12):
            assert step(through, seed) == step(alone, seed)
        assert_same_tables(through.state(), alone.state())


@pytest.mark.medium
def test_killed_servers_change_no_bit(tmp_path):
    """Also when they are killed while ids and rows get places, and in rounds."""
    with processes(tmp_path, 2) as running, thread_servers(2) as calm:
        engine = PsEngine(FEATURES, seed=SEED, servers=[link_to(one.address) for one in running], threads=1, **KINDS)
        here, k = on_servers(calm), 0
        with killed_meanwhile(running, scaled(40)) as is_over:
            while not is_over() or k < 12:
                assert step(engine, k) == step(here, k)
                k += 1
        assert_same_tables(engine.state(), here.state())
        engine.close()
        here.close()


def test_bad_input_changes_nothing():
    with thread_servers(2) as servers, closing(on_servers(servers)) as served:
        for seed in range(4):
            step(served, seed)
        expected = served.state()
        batch = batch_of(4)
        ids = batch.ids.copy()
        ids[batch.offsets[0, 0]] = 60
        with pytest.raises(BadBatch):
            served.lookup(IdBatch(ids, batch.offsets))
        assert_same_tables(served.state(), expected)


def test_frozen_tables_read_rows_without_places_as_zeros():
    here = in_one_process()
    unseen = IdBatch(np.array([59, 2**61 + 1, 89, 2**61 + 1]), np.array([[k, k + 1] for k in range(4)]))
    before = here.lookup(unseen).copy()
    here.freeze()
    after = here.lookup(IdBatch(unseen.ids, unseen.offsets))
    columns = [here.columns[one.name] for one in FEATURES]
    for t, own in enumerate(columns):
        if t in HASHED:
            assert before[:, own].tobytes() == after[:, own].tobytes()
            assert after[:, own].any()
        else:
            assert before[:, own].any()
            assert not after[:, own].any()
