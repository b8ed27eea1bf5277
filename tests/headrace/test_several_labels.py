"""A model of several labels on the command line: submitted, checked, trained, tested, shown and scored."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.headrace.conftest import UNTRIED

pytest.importorskip("tensorflow")

MODELS = """
import headrace as hr

both = hr.Model("both", client="search", table="log", label={
    "click": "clicked", "top": hr.int64("position") < 3, "place": hr.Label(hr.int64("position") % 3, "multiclass", 3)})
both.input("words", hr.text("query").lower().unigrams().hash_buckets(300))
both.input("user", hr.int64("user_id").hash_buckets(500))
both.input("price", hr.float32("price").fill_null(0.0).log1p())
"""
OPTIONS = {**UNTRIED, "deep": True, "embedding_learning_rate": 0.03, "deterministic": False, "batch_rows": 64, "dim": 4,
           "task_mlp": [4], "task_weights": {"place": 0.5}}  # fmt: skip
NAMES = ["click", "top", "place"]


@pytest.mark.slow
def test_several_labels_from_the_model_file_to_scores(cli, small_log, tmp_path):
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS), encoding="utf-8")
    cli("table", "add", "log", small_log, "--time-column", "time")
    checked = cli("model", "check", tmp_path / "models.py", "--json").json["models"][0]
    assert [one["input"].partition(":")[0] for one in checked["label"]] == NAMES
    assert "label click: clicked" in cli("model", "check", tmp_path / "models.py").out
    cli("model", "submit", tmp_path / "models.py")
    shown = cli("model", "show", "both", "--json").json
    assert shown["task"] == "multitask"
    assert shown["label"].startswith("click: clicked, top: less(position, 3), place: ")
    train = ("train", "both", "--config", tmp_path / "options.json", "--run-dir", tmp_path / "run",
             "--end", "2026-03-02T03:00", "--test-end", "2026-03-02T04:00")  # fmt: skip
    trained = cli(*train, "--json").json
    assert list(trained["test"]["tasks"]) == NAMES
    assert {"auc", "normalized_entropy", "calibration"} <= trained["test"]["tasks"]["click"].keys()
    assert trained["test"]["tasks"]["place"]["accuracy"] > 0
    out = cli(*train).out
    assert "click, " in out
    assert "calibration" in out
    assert "baseline needs" in cli(*train, "--baseline", "price", status=2).err
    assert "click auc" in cli("ckpt", "show", tmp_path / "run").out
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({**OPTIONS, "task_weights": {"clik": 1}}), encoding="utf-8")
    assert "click" in cli("train", "both", "--config", wrong, "--run-dir", tmp_path / "other", status=2).err

    from trainer.serving.trained import load_trained

    cli("model", "read", "both", "--output", tmp_path / "read.parquet", "--no-label")
    expected = load_trained(str(tmp_path / "run")).predict(pq.read_table(tmp_path / "read.parquet"))
    cli("predict", "both", "--run-dir", tmp_path / "run", "--output", tmp_path / "scores")
    scores = pa.concat_tables(pq.read_table(path) for path in sorted((tmp_path / "scores").rglob("*.parquet")))
    keys = ["partition", "fragment", "row", "time"]
    assert scores.column_names == [*keys, *(f"prediction_{name}" for name in NAMES)]
    for name in NAMES:
        scored = np.array(scores[f"prediction_{name}"].to_pylist(), np.float32)
        np.testing.assert_allclose(scored, expected[name], rtol=1e-5, atol=1e-6)
