"""The benchmarks of pruning: the rows of the rival, the entropy of all epochs, and small measurements."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import pruning_hosts, pruning_quality, pruning_speed
from benchmarks.support.comparisons import Comparisons
from benchmarks.support.kept_results import KeptResults
from benchmarks.support.pruning_logs import tail_model
from benchmarks.support.quality_logs import QualityLog, write_hours
from benchmarks.support.quality_scene import Events, quality_scene
from trainer.options.pruning import PruningOptions
from trainer.tables import SGD, FeatureSpec, TableSpec
from trainer.tables.routes.pruned_engine import PrunedEngine


def test_the_rival_has_the_most_frequent_rows_for_good() -> None:
    features = [FeatureSpec(name, TableSpec(name, 10, 2, SGD(0.1), "sum")) for name in ("a", "b")]
    engine = PrunedEngine(features, PruningOptions.read({"budget": 0.25}), seed=0)
    counts = {"a": np.array([9, 0, 7, 0, 0, 1, 0, 0, 0, 0]), "b": np.array([0, 8, 0, 0, 0, 0, 0, 6, 2, 0])}
    pruning_quality.give_places(engine, counts)
    kept = {name: one.rows.tolist() for name, one in engine.state().items()}
    assert kept == {"a": [0, 2], "b": [1, 7, 8]}


def test_counts_may_end_before_the_log_does() -> None:
    ids, starts = (np.array([3, 3, 1, 0, 1, 1]),), (np.array([0, 1, 3, 4, 5, 6]),)
    trained = Events(("a",), (4,), ids, starts, np.zeros((5, 0)), np.zeros(5, np.float32))
    scene = SimpleNamespace(trained=trained)
    assert pruning_quality.row_counts(scene)["a"].tolist() == [1, 3, 0, 2]
    assert pruning_quality.row_counts(scene, 0.4)["a"].tolist() == [0, 1, 0, 2], "of the first two events"


def write_few(folder) -> None:
    draw = np.random.default_rng(0)
    columns = {name: pa.array(draw.integers(0, 50, 400)) for name in ("user_id", "item_id")}
    write_hours(folder, np.arange(400) * 36.0, {**columns, "clicked": pa.array(draw.integers(0, 2, 400))})


@pytest.mark.medium
def test_a_trial_that_is_started_again_trains_the_others_only(tmp_path) -> None:
    side, file = pruning_quality.FREQUENT_AT_FIRST, tmp_path / "found.json"
    with quality_scene(QualityLog("few", write_few, tail_model), tmp_path / "home") as scene:

        def trial(name: str) -> pruning_quality.Trial:
            return pruning_quality.Trial(scene, tmp_path / name, 32, "few", KeptResults(file))

        found = trial("first").run(side, 0.5, 1)
        assert (tmp_path / "first").exists()
        assert trial("second").run(side, 0.5, 1) == found
        assert not (tmp_path / "second").exists(), "nothing was trained"
        others = ((pruning_quality.FREQUENT, 0.5, 1), (side, 0.3, 1), (side, 0.5, 2), (pruning_quality.PRUNED, 0.5, 1))
        keys = [trial("second").key(*one) for one in (*others, (side, 0.5, 1))]
        assert all(key not in keys[:k] for k, key in enumerate(keys)), "each is another training"


def test_the_entropy_of_all_epochs_weighs_them_by_their_events() -> None:
    scores = [
        SimpleNamespace(events=10, positives=5, log_loss=0.5),
        SimpleNamespace(events=30, positives=5, log_loss=0.3),
    ]
    report = SimpleNamespace(history=[SimpleNamespace(scores=one) for one in scores])
    rate = 10 / 40
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    assert pruning_quality.lifetime_entropy(report) == pytest.approx((10 * 0.5 + 30 * 0.3) / 40 / entropy)


def test_a_comparison_states_means_and_differences(capsys) -> None:
    ours, base = (
        [pruning_quality.Outcome(value, 2 * value, 7, 3) for value in values] for values in ((1.1, 1.2), (1.0, 1.0))
    )
    pruning_quality.compare(Comparisons(), "ours", ours, base)
    shown = capsys.readouterr().out
    assert "7 rows,    3 rounds: lifetime 1.15000, +15.000 %" in shown
    assert "next days 2.30000, +15.000 %" in shown


def test_hosts_have_blocks_and_whole_tables() -> None:
    tables = [TableSpec(name, rows, 2, SGD(0.1), "sum") for name, rows in (("a", 10), ("b", 7), ("c", 5))]
    blocks = [one.slices[0] for one in pruning_hosts.in_blocks(tables, 2).tables]
    assert [(one.cores, one.row_ends) for one in blocks] == [((0, 1), (5, 10)), ((0, 1), (3, 7)), ((0, 1), (2, 5))]
    assert [one.slices[0].cores for one in pruning_hosts.as_wholes(tables, 2).tables] == [(0,), (1,), (1,)]
    of_one = {"a": np.array([1, 2]), "b": np.array([3, 4])}
    assert pruning_hosts.common_share({"a": np.array([2, 9]), "b": np.array([3, 4])}, of_one) == 0.75


def test_small_measurements(capsys) -> None:
    pruning_speed.measure_round(20_000, 1)
    shown = capsys.readouterr().out
    assert "a round over 20,000 rows" in shown
    moved = int(shown.partition(" s), ")[2].partition(" rows change places")[0].replace(",", ""))
    assert 0 < moved < 2_000
