"""A trained model as a SavedModel: raw events in, the trainer's predictions out."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.demo.sample_log import write_sample_log
from tests.headrace.conftest import SMALL, UNTRIED
from tests.headrace.test_export import tensors_of
from transforms.columns.columns import cast_to_layout
from transforms.graphs.graph import raw_columns

tf = pytest.importorskip("tensorflow")

MODELS = """
import headrace as hr

words = hr.text("query").lower().unigrams()


def model(name, **kinds):
    made = hr.Model(name, client="search", table="log", **kinds)
    made.input("words", words.hash_buckets(300))
    made.input("weighted", words.term_frequency().hash_buckets(50))
    made.input("user", hr.int64("user_id").hash_buckets(500))
    made.input("padded", words.hash_buckets(70).pad(3, 0))
    made.input("price", hr.float32("price").log1p())
    made.input("hour", hr.timestamp("time").hour_of_day() * 1.0)
    return made


binary = model("binary", label="clicked")
classes = model("classes", label=hr.int64("position") % 3, task="multiclass", classes=3)
several = model("several", label={"click": "clicked", "place": hr.Label(hr.int64("position") % 3, "multiclass", 3)})
number = model("number", label=hr.int64("position") * 1.0, task="regression")
ordered = hr.Model("ordered", client="search", table="log", label="clicked")
ordered.input("words", words.hash_buckets(500))
ordered.input("user", hr.int64("user_id").hash_buckets(500))
ordered.input("kinds", words.hash_buckets(8))
ordered.input("counts", words.term_frequency().hash_buckets(50))
ordered.input("price", hr.float32("price").log1p())
other = hr.Model("other", client="search", table="log", label="clicked")
other.input("user", hr.int64("user_id").hash_buckets(500))
"""
OPTIONS = {
    **UNTRIED,
    "deep": True,
    "embedding_learning_rate": 0.03,
    "deterministic": False,
    "batch_rows": 64,
    "dim": 8,
    "combiners": {"user": "sqrtn"},
    "embeddings": "tests.trainer.model.own_tables:served",
    "dims": {"user": 4},
}


SEQUENCES = {
    "words": {"length": 2, "encoder": "din", "target": "user", "gaps": "kinds"},
    "counts": {"length": 3, "encoder": "sasrec"},
}
ORDERED = {"sequences": SEQUENCES, "embeddings": None, "combiners": {}, "dims": {}, "embedding_initial_stddev": 0.3}
TOWERS = {"tower_modules": {"towers": [["user", "words"], ["padded", "weighted"]], "compression": 2}}


@pytest.mark.medium
@pytest.mark.parametrize(
    ("name", "network", "others"),
    [
        ("binary", "dlrm", TOWERS),
        pytest.param("ordered", "dlrm", ORDERED, marks=pytest.mark.slow),
        pytest.param("binary", "dlrm", {}, marks=pytest.mark.slow),
        pytest.param("binary", "dlrm", {"calibration": "isotonic", "held_out_share": 0.6}, marks=pytest.mark.slow),
        pytest.param("classes", "tests.trainer.model.networks:busy", {}, marks=pytest.mark.slow),
        pytest.param("number", "dcn", TOWERS, marks=pytest.mark.slow),
        pytest.param("several", "dlrm", {}, marks=pytest.mark.slow),
        pytest.param("several", "dlrm", {"calibration": "platt", "held_out_share": 0.6}, marks=pytest.mark.slow),
    ],
)
def test_raw_events_through_the_saved_model_give_the_trainers_predictions(cli, tmp_path, name, network, others):
    from headrace.model_file import chosen_models
    from trainer.serving.trained import load_trained

    small_log = tmp_path / "log"  # with clicks enough for a map where there is one
    write_sample_log(
        small_log, replace(SMALL, mean_rows_per_hour=600) if "calibration" in others else SMALL, late=False
    )
    (tmp_path / "models.py").write_text(MODELS, encoding="utf-8")
    (tmp_path / "options.json").write_text(json.dumps({**OPTIONS, "network": network, **others}), encoding="utf-8")
    cli("table", "add", "log", small_log, "--time-column", "time")
    cli("model", "submit", tmp_path / "models.py")
    run = tmp_path / "run"
    cli("train", name, "--config", tmp_path / "options.json", "--run-dir", run)
    screen = cli("model", "export", name, "--output", tmp_path / "served", "--trained", run, "--json").json
    assert screen["checkpoint"]

    table = hr.read(name, home=str(tmp_path / "home"), time=True, columns=["query", "user_id"])
    trained = load_trained(str(run))
    wanted = trained.predict(table)
    assert {one.kind for one in trained.calibrations.values()} == (
        {others["calibration"]} if "calibration" in others else set()
    )
    raw = pq.read_table(small_log).sort_by("time")
    order = table.append_column("row", [np.arange(table.num_rows)]).sort_by("time")["row"].to_numpy()
    document = json.loads((tmp_path / "served" / "1" / "assets.extra" / "headrace.json").read_text(encoding="utf-8"))
    (model,) = chosen_models([str(tmp_path / "models.py")], [name])
    columns = {column.name: column for item in model.inputs.values() for column in raw_columns(item.component)}
    request = {}
    for described in document["columns"]:
        column = columns[described["column"]]
        request |= tensors_of(cast_to_layout(raw[column.name], column.type).combine_chunks(), described)
    served = tf.saved_model.load(str(tmp_path / "served" / "1")).signatures["serving_default"]
    answer = served(
        **{key: tf.constant(value.tolist() if value.dtype == object else value) for key, value in request.items()}
    )

    named = {f"prediction_{key}": one for key, one in wanted.items()} if name == "several" else {"prediction": wanted}
    assert set(answer) == set(named) == {one["tensor"] for one in document["outputs"]}
    for key, expected in named.items():
        got = answer[key].numpy()
        assert got.shape == expected.shape
        assert np.ptp(expected) > 0
        np.testing.assert_allclose(got, expected[order], rtol=1e-6, atol=1e-6)
    tasks = {
        "binary": ["binary"],
        "ordered": ["binary"],
        "classes": ["multiclass"],
        "number": ["regression"],
        "several": ["binary", "multiclass"],
    }
    assert [one["task"] for one in document["outputs"]] == tasks[name]
    if name in ("binary", "ordered"):
        check_rounded_weights(cli, run, tmp_path / "served" / "1", request, expected[order])
    if name == "binary":
        refused = cli("model", "export", "other", "--output", tmp_path / "other", "--trained", run, status=2)
        assert "trained on the inputs of this version" in refused.err
        alone = cli(
            "model", "export", name, "--output", tmp_path / "x", "--trained", run, "--skip-unservable", status=2
        )
        assert "must be exported with all of its inputs" in alone.err
    if others is TOWERS and name == "binary":
        check_other_names_of_a_run(cli, run, tmp_path, screen["checkpoint"])


def check_other_names_of_a_run(cli, run, folder, checkpoint):
    """A run may be named by its folder alone, and by the name of its model if it is the model's run in the home."""
    shutil.copytree(run, folder / "binary-v1")
    shutil.copytree(run, folder / "home" / "runs" / "binary-v1")
    for k, names in enumerate([(folder / "binary-v1",), ("binary", "--trained", "binary")]):
        found = cli("model", "export", *names, "--output", folder / f"other-{k}", "--json").json
        assert (found["model"], found["version"], found["checkpoint"]) == ("binary", 1, checkpoint)
    refused = cli("model", "export", folder / "binary-v1", "--output", folder / "x", "--version", 2, status=2)
    assert "version" in refused.err


def check_rounded_weights(cli, run, saved_model, request, expected):
    """All weights of the run rounded to float16 and applied: the graph has each of them where links are applied."""
    folder = saved_model.parent.with_name("rounded")
    cli("export", "full", run, "--output", folder / "chain", "--quantize", "fp16")
    cli("export", "apply", folder / "chain", "--to", saved_model, "--output", folder / "1")
    served = tf.saved_model.load(str(folder / "1")).signatures["serving_default"]
    got = served(**{key: tf.constant(value.tolist() if value.dtype == object else value) for key, value in request.items()})  # fmt: skip
    np.testing.assert_allclose(got["prediction"].numpy(), expected, rtol=1e-2, atol=1e-3)
    assert got["prediction"].numpy().tobytes() != expected.tobytes()
