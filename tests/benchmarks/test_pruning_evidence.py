"""The evidence of pruning: correlations, tables that are cut at the end, shares by table, and differences by seed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import pruning_evidence
from benchmarks.pruning_quality import Outcome
from benchmarks.support.comparisons import Comparisons
from trainer.options.pruning import PruningOptions
from trainer.tables import SGD, FeatureSpec, IdBatch, TableSpec
from trainer.tables.routes.pruned_engine import PrunedEngine


def trained(metric="gradient"):
    """Whole tables whose row k was updated with gradients of norm k + 1; the rows from 6 on of the second never."""
    features = [FeatureSpec(name, TableSpec(name, rows, 4, SGD(0.1), "sum")) for name, rows in (("a", 6), ("b", 9))]
    engine = PrunedEngine(features, PruningOptions.read({"budget": 1.0, "metric": metric}), seed=0)
    batch = IdBatch(np.tile(np.arange(6), 2), np.stack([np.arange(7), 6 + np.arange(7)]), None)
    engine.lookup(batch)
    engine.apply_gradients(batch, np.repeat(np.arange(1, 7, dtype=np.float32)[:, None] / 2, engine.width, axis=1))
    return engine


@pytest.mark.medium
def test_importance_is_correlated_with_what_training_has_changed():
    found = pruning_evidence.correlation_of(trained(), least_rows=2)
    assert found.changed_pearson == pytest.approx(1)
    assert found.changed_rank == pytest.approx(1)
    assert abs(found.pearson) < 1, "the first values are part of the final ones"


def test_a_table_of_few_rows_has_no_correlation_of_its_own():
    engine = trained()
    assert np.isnan(pruning_evidence.correlation_of(engine, least_rows=7).pearson)


def test_tables_are_cut_to_their_most_important_rows():
    engine = trained()
    before = engine.weights_of("b", np.arange(9))
    assert pruning_evidence.cut_rows(engine, 0.5) == 6
    kept = {name: one.rows.tolist() for name, one in engine.state().items()}
    assert kept == {"a": [3, 4, 5], "b": [3, 4, 5]}
    assert engine.weights_of("b", np.arange(3, 6)).tobytes() == before[3:6].tobytes()
    assert not engine.weights_of("b", np.arange(3)).any()
    assert pruning_evidence.cut_rows(engine, 0.2) == 2, "the rows that have left still count"
    assert {name: one.rows.tolist() for name, one in engine.state().items()} == {"a": [5], "b": [5]}


def test_each_table_has_the_share_of_its_own_rows():
    side = pruning_evidence.side_by_table(SimpleNamespace(seen_by_table={"a": 10, "b": 1}), 0.3)
    assert side.pruning == {"groups": [{"tables": ["a"], "rows": 3}, {"tables": ["b"], "rows": 1}]}


def test_a_difference_is_by_seed():
    one, other = ([Outcome(value, 0.5, 1, 1) for value in values] for values in ((1.1, 2.2, 3.3), (1.0, 2.0, 3.0)))
    counted = Comparisons()
    assert pruning_evidence.difference(counted, "a", one, other, "lifetime").startswith("+10.000 +- 0.000")
    assert pruning_evidence.difference(counted, "b", one, other, "next_days") == "0"
    assert counted.summary.startswith("of 1 comparisons")


def test_sides_have_names_of_their_own():
    names = [side.name for side in pruning_evidence.SIDES]
    assert len(set(names)) == len(names)
