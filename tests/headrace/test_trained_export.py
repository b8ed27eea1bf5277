"""An exported trained model: raw columns in, the trainer's own predictions out."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from tests.headrace.conftest import UNTRIED
from tests.headrace.test_export import tensors_of
from transforms.columns import conform
from transforms.graph import component_from_document, raw_columns
from warehouse import Warehouse, WarehouseConfig, read_fragment, read_solution
from warehouse.parquet_files import read_columns

tf = pytest.importorskip("tensorflow")


@pytest.mark.slow
def test_an_exported_model_predicts_what_the_trainer_does(submitted, tmp_path):
    settings, run = tmp_path / "training.json", tmp_path / "run"
    options = {**UNTRIED, "batch_rows": 64, "deep": True, "embedding_learning_rate": 0.03,
               "linear_learning_rate": 0.5, "deterministic": False}  # fmt: skip
    settings.write_text(json.dumps(options), encoding="utf-8")
    submitted("train", "first", "--end", "2026-03-02T03:00", "--config", settings, "--run-dir", run)
    submitted("model", "export", "first", "--trained", run, "--output", tmp_path / "served")
    served = tf.saved_model.load(str(tmp_path / "served" / "1"))
    described = json.loads((tmp_path / "served" / "1" / "assets.extra" / "headrace.json").read_text(encoding="utf-8"))
    assert described["outputs"] == ["prediction"]
    from trainer.trained import load_trained

    with Warehouse.open(WarehouseConfig(home=str(tmp_path / "home"))) as warehouse:
        solution = read_solution(warehouse, "first")
        fragment = solution.partitions[-1].fragments[0]
        table = read_fragment(warehouse.storage, solution, fragment)
        roots = [component_from_document(item.component) for item in solution.inputs]
        columns = {column.name: column.type for root in roots for column in raw_columns(root)}
        raw = read_columns(warehouse.storage, fragment, sorted(columns))
    request = {}
    for each in described["columns"]:
        column = conform(raw.column(each["column"]), columns[each["column"]])
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        request |= {name: tf.constant(values) for name, values in tensors_of(column, each).items()}
    answer = served.signatures["serving_default"](**request)["prediction"].numpy()
    expected = load_trained(str(run)).predict(table)
    assert np.ptp(expected) > 0.005
    np.testing.assert_allclose(answer, expected, rtol=0, atol=1e-6)
    submitted("model", "export", "second", "--trained", run, "--output", tmp_path / "other", status=2)
