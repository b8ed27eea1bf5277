"""A round that looks at some rows finds what one finds that looks at all of them."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import same_states
from tests.trainer.tables.stores.pruned.test_pruned_engine import popular_batch, pruned, step
from tests.trainer.tables.stores.pruned.test_pruned_store import same_stores, store_in, update
from trainer.options.pruning import PruningOptions
from trainer.planning.row_groups import RowGroup
from trainer.tables.kernels.memory import PrivateMemory
from trainer.tables.kernels.threads import Team
from trainer.tables.stores.pruned import round as rounds
from trainer.tables.stores.pruned.addresses import Addresses
from trainer.tables.stores.pruned.candidates import Candidates
from trainer.tables.stores.pruned.memory import PrunedMemory
from trainer.tables.stores.pruned.round import TableRound, TableRows, select_rows
from trainer.tables.stores.pruned.row_importance import RowImportance

RULES = st.fixed_dictionaries({
    "round_steps": st.integers(1, 3), "metric": st.sampled_from(["gradient", "frequency", "random"]), "normalised": st.booleans(),
    "spare_share": st.sampled_from([0.0, 0.1, 0.3]), "decay": st.sampled_from([0.001, 0.8]), "decay_steps": st.integers(1, 3),
    "reset": st.sampled_from(["zero", "restored"]),
})  # fmt: skip


@pytest.mark.medium
@settings(max_examples=scaled(40))
@given(st.integers(0, 10**6), RULES, st.sampled_from([0.2, 0.4, 0.7]), st.booleans())
def test_rounds_over_candidates_are_those_over_all_rows(seed, rules, budget, is_store):
    """Also of rows that are equally important, and where all importance is divided now and then."""
    one, other = (store_in(PrivateMemory(), budget=budget, **rules) if is_store else pruned(budget, **rules) for _ in range(2))  # fmt: skip
    for k in range(14):
        (other if is_store else other.rows).candidates.forget()
        for tables in (one, other):
            if is_store:
                update(tables, seed % 1000 + k)
            else:
                step(tables, popular_batch(seed + k, shift=k // 2), k)
    if is_store:
        same_stores(one, other)
        return
    same_states(one.state(), other.state())
    for name, history in one.rows.histories().items():
        assert history.importance.tobytes() == other.rows.histories()[name].importance.tobytes()


@settings(max_examples=scaled(200))
@given(
    st.integers(0, 10**6),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from([3, 16, 1 << 18]),
)
def test_a_full_group_moves_the_rows_that_a_round_over_all_rows_moves(seed, one, other, values, is_all, piece_rows):
    """Also of few different values of importance and of none, in pieces that end anywhere; unmarked rows are those that would get no place."""
    draw, sizes, team = np.random.default_rng(seed), (one, other), Team(2)
    places = int(draw.integers(1, one + other))
    kept, group = int(draw.integers(1, places + 1)), RowGroup((0, 1), places)
    addresses = Addresses(sizes, [group], PrunedMemory())
    placed = np.sort(draw.permutation(one + other)[:places])
    for t, rows in enumerate((placed[placed < one], placed[placed >= one] - one)):
        addresses.place(t, rows)
    importance = RowImportance(addresses, np.full(2, 3), 3 + places, PruningOptions.read({}), 0, team, PrunedMemory())
    drawn = [draw.integers(0, values, size).astype(np.float32) for size in sizes]
    candidates = Candidates(addresses, 1)
    expected = select_rows([TableRows(t, drawn[t], addresses.of_table(t)) for t in (0, 1)], [1.0, 1.0], kept, team)
    for t, of_rows in enumerate(drawn):
        importance.of_table(t)[:] = of_rows
        importance.carry(t, *addresses.placed(t))
        rows, _ = addresses.placed(t)
        importance.of_table(t)[rows] = draw.integers(0, values, len(rows))  # older values, which nothing reads
        never = np.setdiff1d(np.flatnonzero(addresses.of_table(t) < 0), expected[t].coming)
        marked = np.setdiff1d(np.arange(sizes[t]), never[draw.random(len(never)) < 0.5])
        offsets = np.tile([[0], [0]], 2)
        offsets[t:, 1], offsets[t + 1 :, 0] = len(marked), len(marked)
        candidates.mark(marked, offsets, np.arange(2))
    with mock.patch.object(rounds, "_PIECE_ROWS", piece_rows):
        listed, changes = importance.select_of_full((0, 1), places, kept, candidates, is_all=is_all)
    for t in (0, 1):
        found = TableRound.joined([change for rows, change in zip(listed, changes, strict=True) if rows.table == t])
        assert found.leaving.tolist() == expected[t].leaving.tolist()
        assert found.coming.tolist() == expected[t].coming.tolist()


def test_a_round_looks_at_few_rows_once_one_has_kept_the_most_important_ones():
    store = store_in(PrivateMemory(), budget=0.2, round_steps=1, spare_share=0.0)
    for seed in range(12):
        update(store, seed)
    g, group = 0, store.groups[0]
    kept = group.rows
    assert store.candidates.suffice(g, kept)
    assert not store.candidates.suffice(g, kept - 1)
    found = [len(piece.importance) for t in group.tables for piece in store.importance.candidates(t, store.candidates)]
    assert sum(found) == kept
    store.load_state(store.state())
    assert not store.candidates.suffice(g, kept)


@given(st.lists(st.integers(0, 40), max_size=60), st.lists(st.integers(0, 40), max_size=20), st.integers(1, 30))
def test_candidates_are_the_rows_with_places_and_the_marked_ones(marked, placed, sizes):
    """Of two tables, whose rows share no byte of marks once one of them is unmarked."""
    vocabulary = [41, sizes]
    groups = [RowGroup((0,), 41), RowGroup((1,), sizes)]
    addresses = Addresses(vocabulary, groups, PrunedMemory())
    addresses.place(0, np.unique(np.array(placed, np.int64)))
    candidates, team = Candidates(addresses, 2), Team(1)
    other = np.array([row for row in marked if row < sizes], np.int64)
    ids = np.concatenate([np.array(marked, np.int64), [41], other])
    candidates.mark(ids, np.array([[0, len(marked) + 1], [len(marked) + 1, len(ids)]]), np.arange(2))
    of_places, of_rows = np.arange(100, dtype=np.float32), -np.arange(41, dtype=np.float32)
    (found,) = candidates.of_table(0, 5, of_places, of_rows, team)
    expected = sorted({*marked, *placed})
    assert found.rows.tolist() == expected
    address = addresses.of_table(0)
    assert found.address.tolist() == address[expected].tolist()
    assert found.importance.tolist() == [5 + address[row] if address[row] >= 0 else -row for row in expected]
    candidates.end_round(0, 7)
    assert candidates.suffice(0, 7)
    (found,) = candidates.of_table(0, 5, of_places, of_rows, team)
    assert found.rows.tolist() == sorted(set(placed))
    (found,) = candidates.of_table(1, 0, of_places, of_rows[:sizes], team)
    assert found.rows.tolist() == sorted(set(other.tolist()))
