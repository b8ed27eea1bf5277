"""Read the columns of a preprocessing_fn over a partition, as record batches for tf.Transform's tensor adapter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2

from transforms.columns.arrow_types import arrow_type
from transforms.derived_documents import Form, document_of, read_value, whole
from transforms.documents import parse_document
from transforms.errors import DataError
from transforms.execution.plan import Plan, compile_plan
from transforms.graphs.graph import component_from_document
from transforms.types import ColumnType, Dense, DType, Vector, type_document, type_from_document
from warehouse.files.artifacts import ArtifactSource
from warehouse.storage.storage import Storage
from warehouse.tables.raw import read_raw
from warehouse.tables.table import Fragment

#: Events per batch, few enough that TensorFlow reduces them on one thread, in one order, on any machine.
_BATCH_EVENTS = 4096
#: tf.Transform accepts neither booleans nor times.
_ITEMS = {DType.STRING: pa.binary(), DType.TIMESTAMP: pa.int64(), DType.BOOL: pa.int64()}


@dataclass(frozen=True)
class PreprocessingWork:
    """One partition to read for a preprocessing_fn.

    Attributes:
        number: its place in the range.
        fragments: its fragments, in order.
        columns: the component of every key that the analyzers read.
        ways: the representation of every key's column.
        types: the type of every key's column; columns that are not read are empty or zeros.
    """

    number: Annotated[int, whole(most=2**31)]
    fragments: tuple[Fragment, ...]
    columns: Mapping[str, Any]
    ways: Mapping[str, str]
    types: Mapping[str, Annotated[ColumnType, Form(type_from_document, type_document)]]

    def to_json(self) -> str:
        """The work as an element of the pipeline."""
        return json.dumps(document_of(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> PreprocessingWork:
        """The inverse of :meth:`to_json`. Raises :class:`DataError`."""
        return read_value(cls, parse_document(text, "work on a preprocessing_fn"))

    @property
    def rows(self) -> int:
        """Events in the partition."""
        return sum(fragment.rows for fragment in self.fragments)


def representation(
    ways: Mapping[str, str], types: Mapping[str, ColumnType]
) -> tuple[list[tuple[str, pa.DataType]], dict[str, Any]]:
    """The Arrow fields of the record batches, and their tensor representations."""
    fields = [(key, pa.list_(_item_type(types[key]))) for key in sorted(ways)]
    return fields, {key: _tensor_representation(key, ways[key], types[key]) for key in sorted(ways)}


def _tensor_representation(key: str, way: str, column_type: ColumnType) -> Any:
    made = schema_pb2.TensorRepresentation()
    match way:
        case "sparse":
            made.varlen_sparse_tensor.column_name = key
        case "ragged":
            made.ragged_tensor.feature_path.step.append(key)
            made.ragged_tensor.row_partition_dtype = schema_pb2.TensorRepresentation.RowPartitionDType.INT64
        case _:
            made.dense_tensor.column_name = key
            sizes = [column_type.size] if isinstance(column_type, Vector) else [1] * (way == "column")
            text_format.Parse("".join(f"dim {{ size: {size} }}" for size in sizes), made.dense_tensor.shape)
    return made


def _item_type(column_type: ColumnType) -> pa.DataType:
    return _ITEMS.get(column_type.dtype) or arrow_type(Dense(column_type.dtype))


def column_batches(home: str, work: PreprocessingWork) -> Iterator[pa.RecordBatch]:
    """Every column as lists, in batches whose bounds do not depend on the fragments.

    Raises the errors of :func:`warehouse.tables.raw.read_raw`, and :class:`DataError` if an expression fails or a dense
    tensor would hold a null.
    """
    plan = compile_plan(
        {key: component_from_document(document) for key, document in work.columns.items()}, ArtifactSource(home)
    )
    pending: list[pa.RecordBatch] = []
    for fragment in work.fragments:
        pending.append(_batch(Storage(home), plan, fragment, work))
        whole = pa.Table.from_batches(pending)
        cut = whole.num_rows - whole.num_rows % _BATCH_EVENTS
        yield from _cut(whole.slice(0, cut))
        pending = whole.slice(cut).combine_chunks().to_batches()
    if pending:
        yield from _cut(pa.Table.from_batches(pending))


def _cut(whole: pa.Table) -> Iterator[pa.RecordBatch]:
    for start in range(0, whole.num_rows, _BATCH_EVENTS):
        yield from whole.slice(start, _BATCH_EVENTS).combine_chunks().to_batches()


def _batch(storage: Storage, plan: Plan, fragment: Fragment, work: PreprocessingWork) -> pa.RecordBatch:
    names = sorted({column.name for column in plan.columns})
    result = plan.run(read_raw(storage, fragment, names, coded=names), checked=True)
    for failure in result.failures.values():
        raise DataError(f"operator {failure.operator} failed", where=f"{failure.expression}, {fragment.path}",
                        value=failure.error, next_step="repair the data or the expression")  # fmt: skip
    return pa.record_batch({key: _lists(key, result.columns, fragment, work) for key in sorted(work.ways)})


def _lists(key: str, columns: Mapping[str, pa.Array], fragment: Fragment, work: PreprocessingWork) -> pa.Array:
    way, column_type = work.ways[key], work.types[key]
    if key not in columns:
        return _unread(way, column_type, fragment.rows)
    values = columns[key]
    if isinstance(column_type, Vector):
        items, offsets = values.flatten(), np.arange(len(values) + 1) * column_type.size
    elif isinstance(column_type, Dense):
        if way != "sparse" and values.null_count:
            raise DataError("a dense tensor of a preprocessing_fn must have a value in every row that is analyzed",
                            where=f"column {key}, {fragment.path}", value=f"{values.null_count} nulls",
                            allowed="values",
                            next_step=f"fill them, as in hr.text({key!r}).fill_null(''), or let the column enter as a "
                            f"VarLenFeature does: sparse=[{key!r}]")  # fmt: skip
        items = values.drop_null()
        offsets = np.concatenate([[0], np.cumsum(np.asarray(values.is_valid()))])
    else:
        items, offsets = values.flatten(), np.concatenate([[0], np.cumsum(values.value_lengths().fill_null(0))])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), _as_item(items, column_type))


def _unread(way: str, column_type: ColumnType, rows: int) -> pa.Array:
    """A placeholder for a column that no analyzer reads: empty lists, or zeros for a dense tensor."""
    size = column_type.size if isinstance(column_type, Vector) else 1
    count = rows * size if way in ("dense", "column") else 0
    offsets = np.arange(rows + 1, dtype=np.int32) * (size if count else 0)
    zero = b"" if column_type.dtype is DType.STRING else 0
    items = pa.array([zero] * count, _item_type(column_type)) if count else pa.array([], _item_type(column_type))
    return pa.ListArray.from_arrays(pa.array(offsets), items)


def _as_item(items: pa.Array, column_type: ColumnType) -> pa.Array:
    if column_type.dtype is DType.STRING:
        return items.cast(pa.string()).cast(pa.binary())
    return items.cast(_item_type(column_type)) if items.type != _item_type(column_type) else items
