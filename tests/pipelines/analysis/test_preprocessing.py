"""Preprocessing functions with analyzers give a model what tf.Transform gives for the same rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.tf_metadata import dataset_metadata, schema_utils

import transforms.expressions.expression as hr
from pipelines.analysis.analyze import analyze_model
from tests.pipelines.analysis.preprocessing_examples import EXAMPLES, Example, table
from tests.pipelines.scenes import open_home
from transforms.errors import DataError
from transforms.execution.plan import compile_plan
from transforms.expressions.expression import Expr
from transforms.expressions.model import Model
from transforms.graphs.graph import raw_columns
from transforms.ranges import between
from transforms.twins.preprocessing import from_preprocessing_fn
from transforms.types import Dense, Ragged
from warehouse.errors import NotAnalyzed
from warehouse.matching.submit import submit_model
from warehouse.models.models import get_model, stored_inputs
from warehouse.tables.register import register_table
from warehouse.warehouse import Warehouse

OVER = between("2026-01-01", "2026-01-03")


def merged() -> Example:
    """All examples as one function, so that they take one pass: each with keys and outputs of its own."""

    def function(inputs: dict[str, Any]) -> dict[str, Any]:
        found = {}
        for name, example in EXAMPLES.items():
            with tf.name_scope(name.replace(" ", "_")):
                given = {key: inputs[f"{name}/{key}"] for key in example.columns}
                found |= {f"{name}/{output}": tensor for output, tensor in example.function(given).items()}
        return found

    columns = {f"{name}/{key}": each for name, example in EXAMPLES.items() for key, each in _columns(example).items()}
    ways = {
        way: [f"{name}/{key}" for name, example in EXAMPLES.items() for key in _ways(example)[way]]
        for way in ("sparse", "shape1")
    }
    return Example(function, columns, ways)


def _columns(example: Example) -> dict[str, Expr]:
    from transforms.twins.preprocessing import _given

    return _given(example.columns, (), (), ())[0]


def _ways(example: Example) -> dict[str, set[str]]:
    from transforms.twins.preprocessing import _given

    ways = _given(example.columns, example.ways.get("sparse", ()), (), ())[1]
    return {"sparse": ways["sparse"], "shape1": ways["shape1"]}


def feature(name: str, column: Expr, example: Example) -> Any:
    """How tf.Transform is given the column, as an instance has it."""
    kind = {"string": tf.string, "int64": tf.int64, "float32": tf.float32}[column.type.dtype.value]
    if isinstance(column.type, Ragged) or name in example.ways["sparse"]:
        return tf.io.VarLenFeature(kind)
    size = [1] if name in example.ways["shape1"] else [] if isinstance(column.type, Dense) else [3]
    return tf.io.FixedLenFeature(size, kind)


def instance(row: Mapping[str, Any], features: Mapping[str, Any]) -> dict[str, Any]:
    def value(name: str) -> Any:
        found = row[name.rpartition("/")[2]]
        if isinstance(features[name], tf.io.VarLenFeature):
            return found if isinstance(found, list) else [] if found is None else [found]
        return [found] if features[name].shape == [1] else found

    return {name: value(name) for name in features}


def given_by_tf_transform(example: Example, rows: pa.Table, folder: Path) -> list[dict[str, Any]]:
    features = {name: feature(name, column, example) for name, column in example.columns.items()}
    metadata = dataset_metadata.DatasetMetadata(schema_utils.schema_from_feature_spec(features))
    instances = [instance(row, features) for row in rows.to_pylist()]
    with tft_beam.Context(temp_dir=str(folder)):
        (data, _), _ = (instances, metadata) | tft_beam.AnalyzeAndTransformDataset(example.function)
    return list(data)


def inputs_of(warehouse: Warehouse, name: str) -> dict[str, Any]:
    with warehouse.catalog.read() as connection:
        return {item.name: item.component for item in stored_inputs(connection, get_model(connection, name).id)}


def model_of(expressions: Mapping[str, Expr], name: str = "m") -> Model:
    made = Model(name, client="search", label="clicked", table="log")
    for position, key in enumerate(expressions):
        made.input(f"i{position}", expressions[key])
    return made


def write_days(root: Path, rows: pa.Table, days: int = 2) -> None:
    for day in range(days):
        folder = root / f"date=2026-01-{day + 1:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        size = -(-rows.num_rows // days)
        pq.write_table(rows.slice(day * size, size), folder / "part.parquet")


class Scene:
    """Every example analyzed in one pass by Headrace, and by tf.Transform."""

    def __init__(self, root: Path) -> None:
        self.example, rows = merged(), table()
        self.expressions = from_preprocessing_fn(
            self.example.function, self.example.columns, over=OVER, **self.example.ways
        )
        write_days(root / "log", rows)
        with open_home(root / "home") as warehouse:
            register_table(warehouse, "log", str(root / "log"))
            self.analyzed = analyze_model(warehouse, model_of(self.expressions))
            submit_model(warehouse, model_of(self.expressions))
            roots = inputs_of(warehouse, "m")
        self.roots = dict(zip(self.expressions, roots.values(), strict=True))
        result = compile_plan(roots).run(rows)
        assert not result.failures, result.failures
        self.found = {key: result.columns[f"i{place}"].to_pylist() for place, key in enumerate(self.expressions)}
        self.expected = given_by_tf_transform(self.example, rows, root / "temp")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("preprocessing"))


def expected_of(scene: Scene, name: str) -> list[Any]:
    """What tf.Transform gives, as a column holds it: lists of what is there."""
    rows = []
    for row in scene.expected:
        values = next((key for key in row if key.startswith(f"{name}$") and key.endswith("_values")), name)
        rows.append(list(row[values]) if values != name else plain(row[name]))
    return rows


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.generic):
        return value.item()
    return [plain(each) for each in value] if isinstance(value, list | np.ndarray) else value


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_outputs_are_what_tf_transform_gives(scene: Scene, name: str) -> None:
    """Integers and text are equal; the last bits of floats depend on how rows are batched, with tf.Transform too."""
    outputs = [key for key in scene.expressions if key.startswith(f"{name}/")]
    assert outputs
    for key in outputs:
        found, expected = scene.found[key], [plain(each) for each in expected_of(scene, key)]
        if isinstance(scene.roots[key].type, Dense):
            expected = [each[0] if isinstance(each, list) else each for each in expected]
        if scene.roots[key].type.dtype.value.startswith("float"):
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=3e-5, atol=2e-6, err_msg=key)
        else:
            assert found == expected, key


def small(inputs: dict[str, Any]) -> dict[str, Any]:
    """Every kind of column, of which the analyzers read three."""
    word = tft.compute_and_apply_vocabulary(inputs["job"], top_k=2, num_oov_buckets=1)
    return {
        "word": word,
        "age": tft.scale_to_0_1(inputs["age"]),
        "above": tf.cast(inputs["flag"], tf.float32) * tft.mean(inputs["hours"]),
        "plain": inputs["fare"] * 2.0,
    }


def small_columns() -> dict[str, Any]:
    return {
        "job": tf.io.FixedLenFeature([1], tf.string),
        "age": tf.io.FixedLenFeature([], tf.int64),
        "hours": tf.io.FixedLenFeature([], tf.float32, 1.0),
        "flag": hr.boolean("flag"),
        "fare": hr.float32("fare"),
    }


@pytest.mark.slow
def test_a_model_is_bound_to_what_its_function_finds_and_late_rows_change_nothing(tmp_path: Path) -> None:
    rows = pa.table({
        "job": ["b", "a", "b", "c", "a", "b"], "age": [10, 20, 30, 40, 50, 60], "flag": [True, False] * 3,
        "hours": pa.array([1, 2, 3, 4, 5, None], pa.float32()), "fare": pa.array([None, 1, 2, 3, 4, 5], pa.float32()),
        "clicked": [0, 1] * 3,
    })  # fmt: skip
    write_days(tmp_path / "log", rows)
    made = from_preprocessing_fn(small, small_columns(), over=OVER)
    alone = from_preprocessing_fn(lambda inputs: {"it": inputs["fare"] * 2.0}, {"fare": hr.float32("fare")})
    assert made["plain"].node == alone["it"].node, "an output without analyzers is what it is in any other function"
    assert str(made["word"].type) == "Dense[int64]"
    with open_home(tmp_path / "home") as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
        with pytest.raises(NotAnalyzed, match="compute_and_apply_vocabulary"):
            submit_model(warehouse, model_of(made))
        (analyzed,) = analyze_model(warehouse, model_of(made))
        assert (analyzed.operator, analyzed.partitions, analyzed.rows) == ("preprocessing_output", 2, 6)
        assert analyze_model(warehouse, model_of(made)) == ()
        first = submit_model(warehouse, model_of(made))
        roots = dict(zip(made, inputs_of(warehouse, "m").values(), strict=True))
        found = compile_plan(roots).run(rows).columns
        assert found["word"].to_pylist() == [0, 1, 0, 2, 1, 0]
        assert found["age"].to_pylist() == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
        assert found["above"].to_pylist() == pytest.approx([16 / 6, 0.0] * 3)
        assert [column.name for column in raw_columns(roots["above"])] == ["flag"]

        write_days(tmp_path / "log", pa.concat_tables([rows, rows]))
        register_table(warehouse, "log", str(tmp_path / "log"))
        again = submit_model(warehouse, model_of(made))
        assert (again.version, again.unchanged) == (first.version, True)
        assert [(one.rows, one.rows_now, one.is_current) for one in again.analyses] == [(6, 12, False)]
        with pytest.raises(NotAnalyzed):
            submit_model(warehouse, model_of(made, "other"))


@pytest.mark.slow
def test_a_null_that_a_dense_tensor_would_have_to_hold_is_one_clear_error(tmp_path: Path) -> None:
    write_days(tmp_path / "log", pa.table({"fare": pa.array([1.0, None], pa.float32()), "clicked": [0, 1]}), days=1)
    made = from_preprocessing_fn(
        lambda inputs: {"z": tft.scale_to_z_score(inputs["fare"])}, {"fare": hr.float32("fare")}, over=OVER
    )
    with open_home(tmp_path / "home") as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
        with pytest.raises(DataError, match="must have a value in every row") as caught:
            analyze_model(warehouse, model_of(made))
    assert "column fare" in caught.value.where
    assert "fill_null" in caught.value.next_step
