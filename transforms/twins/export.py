"""A model's transforms as a TensorFlow SavedModel: raw columns in, model inputs out, bit-equal to the warehouse.

Tensors are flat, so that any TensorFlow server can serve them. For a raw column or an input:

    dense      ``name`` [rows], and ``name__missing`` [rows], true where there is no value
    list       ``name`` [items], and ``name__row_splits`` [rows + 1]
    weighted   as a list, and ``name__weights`` [items]
    vector     ``name`` [rows, n]

Timestamps are int64 microseconds since the epoch, UTC. The signature ``serving_default`` takes the missing flags of dense
columns; ``complete`` takes none, for requests in which every dense column has a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from transforms.errors import InputError
from transforms.graphs.artifacts import Artifacts, no_artifacts
from transforms.graphs.graph import Node, Operation, RawColumn, raw_columns, topological
from transforms.operators import REGISTRY
from transforms.twins.graph import compute
from transforms.twins.tables import kept_tables
from transforms.twins.tensors import ELEMENT, DenseTensor, TensorColumn, VectorTensor, WeightedTensor, rows_of
from transforms.types import ColumnType, Dense, Ragged, Vector, Weighted

FORMAT = "headrace.export/1"
SIGNATURES = ("serving_default", "complete")

_MISSING, _SPLITS, _WEIGHTS = "__missing", "__row_splits", "__weights"


#: Computes the outputs of a served model from its inputs, by name; a ``tf.Module``, so that its variables are saved.
Scorer = Callable[[Mapping[str, TensorColumn]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Unservable:
    """An input that TensorFlow cannot compute: the first operator without a twin, and the reason."""

    name: str
    operator: str
    reason: str


def unservable(components: Mapping[str, Node]) -> tuple[Unservable, ...]:
    """The inputs that TensorFlow cannot compute, in order."""
    found = []
    for name, root in components.items():
        for node in topological([root]):
            if isinstance(node, Operation) and REGISTRY[node.op].twin is None:
                found.append(Unservable(name, node.op, REGISTRY[node.op].untwinned))
                break
    return tuple(found)


def tensor_names(components: Mapping[str, Node]) -> dict[str, str]:
    """The tensor name of every raw column: the column's name, with ``_`` for characters that TensorFlow refuses.

    Raises :class:`InputError` for a column that is read as two types.
    """
    columns: dict[str, RawColumn] = {}
    for root in components.values():
        for column in raw_columns(root):
            known = columns.setdefault(column.name, column)
            if known.type != column.type:
                raise InputError("a column of a signature must have one type", value=column.name,
                                 allowed=f"{known.type} or {column.type}", next_step="cast one of them")  # fmt: skip
    names: dict[str, str] = {}
    for name in sorted(columns):
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        plain = plain if plain[0].isalpha() else f"column_{plain}"
        while plain in names.values():
            plain += "_"
        names[name] = plain
    return names


class Serving:
    """A model's inputs as TensorFlow functions, or the outputs of a ``scorer`` over them.

    Raises :class:`~transforms.twins.graph.NoTwin`, and :class:`InputError` for a column read as two types.
    """

    def __init__(
        self, components: Mapping[str, Node], artifacts: Artifacts = no_artifacts, scorer: Scorer | None = None
    ) -> None:
        self._components = dict(components)
        self._scorer = scorer
        self._artifacts = artifacts
        self._names = tensor_names(components)
        found = (column for root in components.values() for column in raw_columns(root))
        self._columns = {column.name: column for column in found}
        _refuse_clashes([name for each in self.document["columns"] for name in each["tensors"]])
        _refuse_clashes([name for each in self.document["inputs"] for name in each["tensors"]])
        self._module = tf.Module()
        self._module.scorer = scorer
        with kept_tables() as tables:
            self._signatures = {name: self._traced(name == "serving_default") for name in SIGNATURES}
        self._module.tables = tables

    @property
    def document(self) -> dict[str, Any]:
        """The raw columns and the inputs, each with its type and its tensors."""
        columns = [
            {"column": name, "type": str(column.type), "tensors": list(self._specs(column, missing=True))}
            for name, column in sorted(self._columns.items())
        ]
        inputs = [
            {"input": name, "type": str(root.type), "fingerprint": root.identity,
             "tensors": [name + suffix for suffix in _suffixes(root.type)]}
            for name, root in self._components.items()
        ]  # fmt: skip
        return {"format": FORMAT, "signatures": list(SIGNATURES), "columns": columns, "inputs": inputs}

    def save(self, folder: str) -> None:
        """Write the SavedModel. The folder must not exist."""
        tf.saved_model.save(self._module, folder, signatures=self._signatures)

    def _traced(self, missing: bool) -> Any:
        specs: dict[str, tf.TensorSpec] = {}
        for _, column in sorted(self._columns.items()):
            specs |= self._specs(column, missing=missing)

        def serve(**tensors: Any) -> dict[str, Any]:
            columns = {name: self._column(column, tensors) for name, column in self._columns.items()}
            _check_rows(columns)
            computed = compute(self._components, columns, self._artifacts)
            if self._scorer is not None:
                return self._scorer(computed)
            outputs: dict[str, Any] = {}
            for name, root in self._components.items():
                outputs |= _flat(name, computed[name], root.type)
            return outputs

        return tf.function(serve, autograph=False).get_concrete_function(**specs)

    def _specs(self, column: RawColumn, *, missing: bool) -> dict[str, tf.TensorSpec]:
        name, at = self._names[column.name], column.type
        element = ELEMENT[at.dtype]
        specs: dict[str, tuple[list[int | None], tf.DType]]
        match at:
            case Dense():
                flags = {name + _MISSING: tf.bool} if missing else {}
                specs = {name: ([None], element), **{each: ([None], dtype) for each, dtype in flags.items()}}
            case Ragged():
                specs = {name: ([None], element), name + _SPLITS: ([None], tf.int64)}
            case Weighted():
                specs = {
                    name: ([None], element),
                    name + _SPLITS: ([None], tf.int64),
                    name + _WEIGHTS: ([None], tf.float32),
                }
            case Vector(size=size):
                specs = {name: ([None, size], element)}
        return {each: tf.TensorSpec(shape, dtype, name=each) for each, (shape, dtype) in specs.items()}

    def _column(self, column: RawColumn, tensors: Mapping[str, Any]) -> TensorColumn:
        name = self._names[column.name]
        values = tensors[name]
        match column.type:
            case Dense(dtype=dtype):
                if name + _MISSING not in tensors:
                    return DenseTensor(values)
                valid = ~tensors[name + _MISSING]
                empty = tf.zeros([], ELEMENT[dtype])
                return DenseTensor(tf.where(valid, values, empty), valid)
            case Ragged():
                return tf.RaggedTensor.from_row_splits(values, tensors[name + _SPLITS])
            case Weighted():
                splits = tensors[name + _SPLITS]
                weights = tf.RaggedTensor.from_row_splits(tensors[name + _WEIGHTS], splits)
                return WeightedTensor(tf.RaggedTensor.from_row_splits(values, splits), weights)
            case Vector():
                return VectorTensor(values)


def _check_rows(columns: Mapping[str, TensorColumn]) -> None:
    """Refuse a request with columns of different lengths: TensorFlow would repeat a single row."""
    (first, rows), *others = ((name, rows_of(column)) for name, column in columns.items())
    for name, count in others:
        tf.debugging.assert_equal(count, rows, f"columns {first} and {name} must have equal numbers of rows")


def _refuse_clashes(names: Sequence[str]) -> None:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError("the tensors of a signature must have different names", value=", ".join(twice),
                         next_step="rename the input, or the column")  # fmt: skip


def _suffixes(column_type: ColumnType) -> Sequence[str]:
    match column_type:
        case Dense():
            return ("", _MISSING)
        case Ragged():
            return ("", _SPLITS)
        case Weighted():
            return ("", _SPLITS, _WEIGHTS)
        case Vector():
            return ("",)


def _flat(name: str, column: TensorColumn, column_type: ColumnType) -> dict[str, Any]:
    match column:
        case DenseTensor():
            valid = tf.ones(tf.shape(column.values), tf.bool) if column.valid is None else column.valid
            return {name: column.values, name + _MISSING: ~valid}
        case WeightedTensor():
            return {
                name: column.ids.values,
                name + _SPLITS: column.ids.row_splits,
                name + _WEIGHTS: column.weights.values,
            }
        case VectorTensor():
            return {name: column.values}
        case tf.RaggedTensor():
            return {name: column.values, name + _SPLITS: column.row_splits}
        case _:
            raise InputError("an input must read a column", where=name, value=str(column_type))
