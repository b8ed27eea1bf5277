"""``headrace train``, ``predict`` and ``model export`` on a commit that consists of the parts of several hosts."""

from __future__ import annotations

import json
import shutil

import pyarrow.parquet as pq
import pytest

from tests.headrace.conftest import UNTRIED
from tests.trainer.checkpoints.job_states import assert_equal, publish_as_parts
from trainer.checkpoints.checkpoint import read_newest
from trainer.checkpoints.read import Checkpoint

pytest.importorskip("tensorflow")

OPTIONS = {**UNTRIED, "deep": True, "dim": 4, "bottom_mlp": [4], "top_mlp": [4], "batch_rows": 64,
           "partitions_per_epoch": 1, "embedding_learning_rate": 0.05, "deterministic": False}  # fmt: skip


@pytest.fixture
def train(submitted, tmp_path):
    """Trains the model ``first`` in a folder, up to an hour."""
    settings = tmp_path / "training.json"
    settings.write_text(json.dumps(OPTIONS), encoding="utf-8")
    return lambda folder, hour: submitted(
        "train", "first", "--end", f"2026-03-02T0{hour}:00", "--config", settings, "--run-dir", folder
    )


def newest(folder) -> Checkpoint:
    found = read_newest(folder, on_skip=pytest.fail)
    assert found is not None
    return found


def scores(folder):
    files = sorted(folder.rglob("scores-*.parquet"))
    return [pq.read_table(file, partitioning=None) for file in files]


@pytest.mark.slow
def test_the_commands_work_unchanged_on_commits_of_parts(train, submitted, tmp_path):
    one = tmp_path / "one"
    train(one, 2)
    written = newest(one)
    for hosts in (1, 2, 3):
        run = tmp_path / f"hosts-{hosts}"
        shutil.copytree(one, run)
        shutil.rmtree(run / "checkpoints" / written.name)
        publish_as_parts(written, run, hosts)
        assert_equal(newest(run), written)
    predict = ("predict", "first", "--start", "2026-03-02T02:00", "--end", "2026-03-02T03:00", "--output")
    for folder in ("one", "hosts-3"):
        submitted(*predict, tmp_path / f"scores-{folder}", "--run-dir", tmp_path / folder)
    assert scores(tmp_path / "scores-one") == scores(tmp_path / "scores-hosts-3") != []
    exported = submitted("model", "export", "first", "--output", tmp_path / "served", "--trained", tmp_path / "hosts-2")
    assert written.name in exported.out
    # A single process continues from the parts, and ends in the bits of one that never stopped.
    train(one, 3)
    train(tmp_path / "hosts-2", 3)
    assert_equal(newest(tmp_path / "hosts-2"), newest(one))
