"""``headrace stats features``: what training records in the catalog, and plans made from it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from headrace.feature_statistics import PROCESS, merge_documents, recorder
from tests.headrace.test_commands import check_golden
from tests.support.processes import PATIENCE_SECS
from trainer.planning.feature_statistics import RESIDUES, FeatureStatistics
from trainer.planning.row_frequencies import RowFrequencies
from trainer.planning.valencies import VALENCY_BOUNDS
from trainer.run.progress.run_statistics import NamedStatistics
from transforms.derived_documents import document_of
from warehouse import Warehouse, WarehouseConfig
from warehouse.models.feature_statistics import Sample, record_sample

CLASSES = len(VALENCY_BOUNDS)
STATISTICS = FeatureStatistics(
    events=1000, batches=10, ids=7000, longest_bag=9, bags_by_valency=(0.0,) * CLASSES, ids_by_valency=(0.0,) * CLASSES,
    distinct_rows=2150, most_distinct_rows=300, ids_by_residue=(1.0,) * (RESIDUES - 1) + (3.0,),
    frequencies=RowFrequencies.power_law(500, 1.1),
)  # fmt: skip


def config_of(home: Path, **options: float) -> WarehouseConfig:
    return WarehouseConfig(str(home), f"sqlite:///{home}/catalog.db", **options)


@pytest.fixture
def recorded(submitted, tmp_path):
    """The statistics of one feature, of two hours ago."""
    inputs = submitted("model", "show", "second", "--json").json["inputs"]
    fingerprint = next(one["fingerprint"] for one in inputs if one["name"] == "user")
    with Warehouse.open(config_of(tmp_path / "home"), clock=lambda: time.time() - 7230.0) as warehouse:
        record_sample(warehouse, Sample("r", 1, PROCESS, {fingerprint: document_of(STATISTICS)}), merge_documents)
    return submitted


def test_features_are_shown_with_the_models_that_share_them(recorded):
    check_golden("stats_features", recorded("stats", "features").out)
    document = recorded("stats", "features", "--model", "first", "--json").json
    assert [one["names"] for one in document["features"]] == [["user"]]
    assert document["features"][0]["models"] == ["first", "second"]
    assert document["without"] == ["overlap", "price"]
    assert document["features"][0]["mean_ids"] == 7
    assert recorded("stats", "features", "overlap").out == "without statistics: overlap\n"
    assert "must be an input of a model" in recorded("stats", "features", "none", status=4).err
    recorded("stats", "features", "--model", "none", status=4)


def test_an_empty_catalog_says_how_to_fill_it(submitted):
    assert "next: headrace train MODEL" in submitted("stats", "features").out


def test_plans_use_the_statistics_of_the_catalog(recorded, tmp_path):
    made = recorded("plan", "make", "second", "--topology", "cpu:2", "--output", tmp_path / "plan.json", "--json")
    rows = {one["name"]: one for one in made.json["tables"]}
    assert rows["user"]["ids_per_event"] == 7
    assert (
        rows["user"]["statistics"] == "a sample of 1,000 events in 10 batches from the catalog, by 1 commit of training"
    )
    assert "assumed" in rows["overlap"]["statistics"]
    assert "a sample of 1,000 events in 10 batches" in recorded("plan", "show", tmp_path / "plan.json").out


def test_limits_of_sparse_core_are_by_statistics_unless_they_are_given(recorded, tmp_path):
    pytest.importorskip("tensorflow")
    arguments = (
        "tpu",
        "check",
        "second",
        "--topology",
        "v6e:2x2",
        "--events",
        512,
        "--environment",
        tmp_path,
        "--json",
    )
    without = recorded(*arguments)
    assert {one["max_ids"] for one in without.json["slices"][0]["stacks"]} == {256}
    assert "there are no statistics of overlap, position" in without.err
    inputs = recorded("model", "show", "second", "--json").json["inputs"]
    documents = {
        one["fingerprint"]: document_of(replace(STATISTICS, frequencies=RowFrequencies.power_law(rows, 1.1)))
        for one in inputs
        if (rows := {"overlap": 1000, "user": 500, "position": 10}.get(one["name"]))
    }
    with Warehouse.open(config_of(tmp_path / "home")) as warehouse:
        record_sample(warehouse, Sample("other", 1, PROCESS, documents), merge_documents)
    stacks = recorded(*arguments).json["slices"][0]["stacks"]
    assert all(one["max_ids"] > 256 for one in stacks)  # 7 ids an event of 3 features, 64 events a core of 8
    assert all(one["max_unique_ids"] < one["max_ids"] for one in stacks)
    given = recorded(*arguments, "--max-ids", 64, "--max-unique-ids", 32).json["slices"][0]["stacks"]
    assert {(one["max_ids"], one["max_unique_ids"]) for one in given} == {(64, 32)}


def test_a_catalog_that_cannot_be_written_does_not_stop_training(recorded, tmp_path, capsys):
    config = config_of(tmp_path / "home", busy_timeout_secs=0.2)
    with Warehouse.open(config) as warehouse, Warehouse.open(config) as other:
        record = recorder(warehouse, PROCESS)
        with other.catalog.write() as connection:
            connection.execute(text("DELETE FROM feature_samples WHERE run = 'none'"))
            record("run", 1, {"f" * 64: NamedStatistics("user", STATISTICS)})
        assert "the statistics of commit 1 were not recorded, training goes on" in capsys.readouterr().err
        record("run", 2, {"f" * 64: NamedStatistics("user", STATISTICS)})
    assert len(recorded("stats", "features", "--json").json["features"]) == 2


def test_damaged_statistics_are_replaced(capsys):
    new = document_of(STATISTICS)
    assert merge_documents({"events": "x"}, new) == new
    assert "were replaced" in capsys.readouterr().err
    assert merge_documents(new, new)["version"] == 2


@pytest.mark.slow
def test_training_in_one_process_and_in_jobs_records_each_commit_once(submitted, tmp_path):
    pytest.importorskip("tensorflow")
    settings = tmp_path / "training.json"
    settings.write_text(json.dumps({"batch_rows": 32, "passes": 1, "partitions_per_epoch": 1, "statistics_share": 1.0}))

    def train(*options):
        """In a process of its own: other tests of this one may have begun TensorFlow with other threads."""
        command = ["train", "first", "--end", "2026-03-02T02:00", "--config", settings, "--home", tmp_path / "home"]
        words = [sys.executable, "-m", "headrace", *map(str, (*command, *options))]
        subprocess.run(words, check=True, timeout=PATIENCE_SECS)

    train("--run-dir", tmp_path / "one")
    first = _by_name(submitted)
    assert set(first) == {"overlap", "user"}
    train("--run-dir", tmp_path / "one")  # nothing is left to train
    assert {name: one["version"] for name, one in _by_name(submitted).items()} == {"overlap": 2, "user": 2}
    train("--run-dir", tmp_path / "two", "--hosts", 2, "--readers", 1)
    both = _by_name(submitted)
    assert {name: one["version"] for name, one in both.items()} == {"overlap": 4, "user": 4}
    for name, one in both.items():  # the job has trained the same events
        assert one["events"] == pytest.approx(2 * first[name]["events"], rel=1e-3)
        assert one["mean_ids"] == pytest.approx(first[name]["mean_ids"], rel=1e-3)
        assert one["top_share"] == pytest.approx(first[name]["top_share"], rel=0.02)
    train("--run-dir", tmp_path / "two", "--hosts", 1)
    assert _by_name(submitted)["user"]["version"] == 4


def _by_name(cli):
    return {one["names"][0]: one for one in cli("stats", "features", "--json").json["features"]}
