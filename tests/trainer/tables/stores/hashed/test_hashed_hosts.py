"""Hashed tables on several hosts: the rows of plain tables where all ids have places, and states that go from one number of hosts to another."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.tables.routes.servers.random_batches import gradients_of
from tests.trainer.tables.routes.servers.test_hashed_servers import (
    FEATURES,
    LIMITS,
    SEED,
    assert_same_sections,
    batch_of,
)
from tests.trainer.tables.table_states import assert_same
from tests.trainer.thread_exchange import on_hosts
from trainer.errors import TornCheckpoint
from trainer.tables import Adagrad, Adam, FeatureSpec, IdBatch, TableSpec
from trainer.tables.engine import TableSections, TableState
from trainer.tables.hashed_counts import HashedCounts, counts_of_numbers, sum_counts
from trainer.tables.routes.partitioned.sharded_tables import ShardedTables
from trainer.tables.stores.hashed.limits import TableLimits
from trainer.tables.stores.hashed.saved_history import AGES, CANDIDATES, STEPS

SMALL = (
    FeatureSpec("user", TableSpec("user", 40, 4, Adagrad(0.1, 0.25), "sum")),
    FeatureSpec("place", TableSpec("place", 30, 4, Adagrad(0.1, 0.25), "mean")),
    FeatureSpec("words", TableSpec("words", 35, 3, Adam(0.1), "mean")),
)
ROOM = {"user": TableLimits(40), "words": TableLimits(36)}


def trained(hosts: int, seeds: range, state=None, *, features=FEATURES, hashed=LIMITS, batches=batch_of):
    """The states of all hosts, what they looked up, and their counts, after each of them has trained a batch a step."""

    def work(exchange):
        tables = ShardedTables(features, seed=SEED, exchange=exchange, hashed=hashed, threads=1)
        if state is not None:
            tables.load_state(state)
        seen = []
        for seed in seeds:
            batch = batches(100 * exchange.rank + seed)
            seen.append(tables.lookup(batch).tobytes())
            tables.apply_gradients(batch, gradients_of(batch, tables.width, seed))
        return tables.state(), seen, tables.hashed_counts

    states, seen, counts = zip(*on_hosts(hosts, work), strict=True)
    return joined(states), seen, sum_counts(counts)


def joined(states) -> dict[str, TableState]:
    """The tables of all hosts, as a commit of their parts is read."""
    found = {}
    for name in states[0]:
        parts = [one[name] for one in states]
        rows = np.concatenate([one.rows for one in parts])
        order = np.argsort(rows)
        weights, slots = (np.concatenate([getattr(one, part) for one in parts])[order] for part in ("weights", "slots"))
        arrays = {
            section: np.concatenate([one.sections.arrays[section] for one in parts])
            for section in parts[0].sections.arrays
        }
        if AGES in arrays:
            arrays[AGES] = arrays[AGES][order]
        found[name] = TableState(rows[order], weights, slots, TableSections(arrays=arrays))
    return found


def small_batch(seed: int) -> IdBatch:
    draw = np.random.default_rng(seed)
    ids = [draw.integers(0, one.table.vocabulary_size, 12) for one in SMALL]
    offsets = np.arange(4) * 4 + np.arange(3)[:, None] * 12
    return IdBatch(np.concatenate(ids), offsets, None)


@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_with_a_place_for_every_id_the_bits_are_those_of_plain_tables(hosts):
    plain, expected, _ = trained(hosts, range(12), features=SMALL, hashed={}, batches=small_batch)
    found, seen, counts = trained(hosts, range(12), features=SMALL, hashed=ROOM, batches=small_batch)
    assert seen == expected
    assert_same(found, plain)
    assert counts["user"].stored == len(found["user"].rows)


@pytest.mark.parametrize("hosts", [2, 3])
def test_a_loaded_state_goes_on_as_hosts_that_were_never_stopped(hosts):
    """What is evicted, expires and is admitted later, too."""
    whole, seen, counts = trained(hosts, range(50))
    assert all(one.evicted + one.expired for one in counts.values()), counts
    assert counts["words"].unadmitted
    middle, _, _ = trained(hosts, range(25))
    assert len(middle["user"].sections.arrays[STEPS]) == hosts
    found, seen_again, _ = trained(hosts, range(25, 50), middle)
    assert [one[25:] for one in seen] == list(seen_again)
    assert_same(found, whole)
    assert_same_sections(found, whole)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 4), (4, 2), (2, 1)])
def test_another_number_of_hosts_has_the_same_rows_and_ages(before, after):
    state, _, _ = trained(before, range(20), hashed={"user": TableLimits(400), "words": TableLimits(400)})
    found, _, counts = trained(after, range(0), state, hashed={"user": TableLimits(400), "words": TableLimits(400)})
    assert_same(found, state)
    for name in LIMITS:
        ours, theirs = found[name].sections.arrays, state[name].sections.arrays
        np.testing.assert_array_equal(ours[AGES], theirs[AGES])
        np.testing.assert_array_equal(ours[STEPS], np.full(after, 20))
        assert counts[name].stored == len(state[name].rows)


def test_more_rows_than_the_hosts_have_places_for_leave_those_used_last():
    state, _, _ = trained(1, range(20), hashed={"user": TableLimits(400), "words": TableLimits(400)})
    found, _, counts = trained(3, range(0), state)
    for name, limits in LIMITS.items():
        rows, ages = state[name].rows, state[name].sections.arrays[AGES]
        kept = []
        for host in range(3):
            own = np.flatnonzero(rows % 3 == host)
            kept += own[np.lexsort((-rows[own], ages[own]))[: -(-limits.capacity // 3)]].tolist()
        np.testing.assert_array_equal(found[name].rows, rows[np.sort(kept)])
        assert counts[name].evicted == len(rows) - len(kept) > 0


def test_a_history_of_other_rows_is_refused():
    state, _, _ = trained(2, range(5))
    arrays = dict(state["user"].sections.arrays)
    for name, wrong in (
        (AGES, arrays[AGES][1:]),
        (STEPS, arrays[STEPS] * 0),
        (CANDIDATES, arrays[CANDIDATES].astype(np.int64)),
    ):
        one = state["user"]
        other = TableState(one.rows, one.weights, one.slots, TableSections(arrays={**arrays, name: wrong}))
        with pytest.raises(TornCheckpoint, match="the history of a hashed table must fit its rows"):
            trained(2, range(0), {**state, "user": other})


def test_counts_are_read_from_the_figures_of_progress():
    counts = {"user": HashedCounts(*range(1, 8)), "linear/two words": HashedCounts(*range(8, 15))}
    numbers = {"hidden_units": 3.0, "hashed stored torn": 1.0}
    for table, one in counts.items():
        numbers |= one.to_numbers(table)
    assert counts_of_numbers(numbers) == counts
