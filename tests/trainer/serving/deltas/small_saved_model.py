"""A small SavedModel with the variables of a history's tables, as an export of a trained model has them, and what links make of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.trainer.serving.deltas.histories import TABLES, Array, History
from trainer.options.document_field import DocumentField
from trainer.serving.deltas.chain import Position
from trainer.serving.deltas.model_digest import model_digest_of
from trainer.serving.saved_model_document import EXTRA
from trainer.serving.served_model import ServedModel, ServedTable
from trainer.tables.optimizers import SGD
from trainer.tables.spec import Constant, Quantization, TableSpec, Uniform
from trainer.tables.tpu.initial_rows import initial_rows

#: The rows of each table.
ROWS = 120
SEED = 5
SERVED = tuple(
    ServedTable(
        kind,
        TableSpec(
            table,
            ROWS,
            columns,
            SGD(1.0),
            initializer=Constant(0.0) if kind == "linear" else Uniform(-0.5, 0.5),
            quantization=Quantization(16, -1.0, 1.0) if table == "words" else None,
        ),
    )
    for kind, table, columns in TABLES
)


def expected_variables(commits: History, epochs: int) -> dict[str, Array]:
    """What a server reads after so many epochs, by kind and table or by ``dense`` and name: a loop over rows."""
    arrays = commits.states[epochs - 1]
    found = {}
    for one in SERVED:
        kind, table = one.kind, one.spec.name
        rows = initial_rows(one.spec, SEED, np.arange(ROWS, dtype=np.int64))
        rows[arrays[f"{kind}/rows/{table}"]] = arrays[f"{kind}/weights/{table}"]
        found[f"{kind}/{table}"] = one.served(rows)
    dense = {name: array for name, array in arrays.items() if name.startswith("dense/") and "optimizer" not in name}
    return found | dense


def document_of(commits: History, epochs: int, sha256: str) -> dict[str, Any]:
    """The description beside the graph."""
    found = commits.checkpoint(epochs)
    position = Position(model_digest_of(DocumentField(found.document, "document")), epochs, sha256)
    dense = ("moving/000", "random/000", "weights/000")
    served = ServedModel(position, SEED, SERVED, dense)
    return {"model": "small", "checkpoint": f"epoch-{epochs:06d}", "served": served.to_document(), "left_out": []}


def write_saved_model(folder: Path, commits: History, epochs: int, sha256: str) -> None:
    """Write the SavedModel of a commit. Its signature gives the sum of a row of each table."""
    import tensorflow as tf

    expected = expected_variables(commits, epochs)
    module, scorer = tf.Module(), tf.Module()
    scorer.deep_tables = {one.spec.name: tf.Variable(expected[f"{one.kind}/{one.spec.name}"]) for one in SERVED if one.kind == "embedding"}  # fmt: skip
    scorer.linear_tables = {one.spec.name: tf.Variable(expected[f"{one.kind}/{one.spec.name}"]) for one in SERVED if one.kind == "linear"}  # fmt: skip
    scorer.layers = [tf.Variable(expected[f"dense/{name}"]) for name in ("moving/000", "random/000", "weights/000")]
    module.scorer, module.other = scorer, tf.Variable([1.0, 2.0])  # a variable that no link has

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64)], autograph=False)
    def serve(ids: Any) -> dict[str, Any]:
        tables = [*scorer.deep_tables.values(), *scorer.linear_tables.values()]
        sums = [tf.reduce_sum(tf.gather(tf.convert_to_tensor(table), ids), axis=1) for table in tables]
        return {"prediction": sum(sums) + tf.reduce_sum(scorer.layers[2]) + module.other[0]}

    tf.saved_model.save(module, str(folder), signatures={"serving_default": serve})
    (folder / EXTRA).parent.mkdir(parents=True)
    (folder / EXTRA).write_text(json.dumps(document_of(commits, epochs, sha256)), encoding="utf-8")


def variables_of(folder: Path) -> dict[str, bytes]:
    """The bytes of the variables of a SavedModel, by the names of :func:`expected_variables`."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    paths = {f"{one.kind}/{one.spec.name}": f"scorer/{'deep' if one.kind == 'embedding' else 'linear'}_tables/{one.spec.name}" for one in SERVED}  # fmt: skip
    paths |= {f"dense/{name}": f"scorer/layers/{k}" for k, name in enumerate(("moving/000", "random/000", "weights/000"))}  # fmt: skip
    return {name: np.array(reader.get_tensor(f"{path}/.ATTRIBUTES/VARIABLE_VALUE")).tobytes() for name, path in paths.items()}  # fmt: skip
