"""The form in which columns enter a preprocessing_fn: tensors and shapes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import tensorflow as tf

from transforms.twins.refusals import NotBridged
from transforms.twins.tensors import ELEMENT
from transforms.types import ColumnType, Dense, Ragged, Vector

#: The number of tensors of a column by its way. ``column`` is a dense one of shape [rows, 1].
PARTS = {"dense": 1, "column": 1, "sparse": 3, "ragged": 2}


@dataclass(frozen=True)
class Ways:
    """The keys whose columns do not enter in the default way of their type.

    Attributes:
        sparse: dense columns that enter as a SparseTensor; a null has no entry.
        ragged: lists that enter as a RaggedTensor.
        shape1: dense columns that enter as a tensor of shape [rows, 1].
    """

    sparse: Collection[str] = ()
    ragged: Collection[str] = ()
    shape1: Collection[str] = ()

    def of(self, name: str, column_type: ColumnType) -> str:
        """``dense``, ``column``, ``sparse`` or ``ragged``. Raises :class:`NotBridged` for a type that cannot enter so."""
        match column_type:
            case Dense() if name in self.sparse:
                return "sparse"
            case Dense() if name in self.shape1:
                return "column"
            case Dense() | Vector():
                return "dense"
            case Ragged():
                return "ragged" if name in self.ragged else "sparse"
            case _:
                raise NotBridged("a column of a preprocessing_fn must be dense, ragged or a vector", where=f"column {name}",
                                 value=str(column_type), allowed="Dense, Ragged, Vector")  # fmt: skip

    def given(self, columns: Mapping[str, ColumnType]) -> dict[str, str]:
        """The way of every column, by key."""
        return {name: self.of(name, column_type) for name, column_type in columns.items()}


def spec(way: str, column_type: ColumnType) -> tf.TypeSpec:
    """The TensorFlow type for tracing the function."""
    element = ELEMENT[column_type.dtype]
    match way:
        case "sparse":
            return tf.SparseTensorSpec([None, None], element)
        case "ragged":
            return tf.RaggedTensorSpec([None, None], element, 1, tf.int64)
        case "column":
            return tf.TensorSpec([None, 1], element)
        case _:
            size = [column_type.size] if isinstance(column_type, Vector) else []
            return tf.TensorSpec([None, *size], element)
