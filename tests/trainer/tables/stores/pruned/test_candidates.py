"""A round that looks at some rows finds what one finds that looks at all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.trainer.tables.routes.partitioned.test_partitioned_engine import same_states
from tests.trainer.tables.stores.pruned.test_pruned_engine import popular_batch, pruned, step
from tests.trainer.tables.stores.pruned.test_pruned_store import same_stores, store_in, update
from trainer.planning.row_groups import RowGroup
from trainer.tables.kernels.memory import PrivateMemory
from trainer.tables.kernels.threads import Team
from trainer.tables.stores.pruned.addresses import Addresses
from trainer.tables.stores.pruned.candidates import Candidates
from trainer.tables.stores.pruned.memory import PrunedMemory

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
