"""Served twins: traced into graphs that TensorFlow optimises, over subnormal numbers.

What the graph optimiser does to sums and products, and what kernels do to subnormals, does not show in a twin that is
run by itself over everyday numbers.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import headrace as hr
from tests.transforms.adversarial import FLOATS, INT64S, NASTY_TEXT, arrow_column, bits, python_values
from transforms.arrays import Array
from transforms.execution.plan import compile_plan
from transforms.graphs.graph import raw_columns
from transforms.operators import REGISTRY
from transforms.types import ColumnType, Dense, DType

_ROWS = 2000
_FAMILIES = {"numeric", "arithmetic", "comparison", "logic", "conditional", "time", "hash"}

x, y = hr.float64("x"), hr.float64("y")
short, whole, text, flag = hr.float32("short"), hr.int64("whole"), hr.text("text"), hr.boolean("flag")
numbers, moments = hr.ragged("numbers", "float64"), hr.ragged("moments", "timestamp")
now, then = hr.timestamp("now"), hr.timestamp("then")

#: What the optimiser would compute otherwise, more so where it knows the number of rows and thereby the constants.
REWRITTEN = (
    "x / 3.0",
    "(x + 1.0) - 1.0",
    "x * 0.1 * 0.3",
    "x * 0.1 + x * 0.3",
    "x + 0.0",
    "0.0 - x",
    "x * 0.0",
    "x - x",
    "x / x",
)

EXPRESSIONS = [
    *(operator.example.expression for operator in REGISTRY if operator.family in _FAMILIES and operator.example),
    *("x + y", "x - y", "x * y", "x / y", "short + short * x", "short / 3", "whole * whole + 1", "whole / whole"),
    *REWRITTEN,
    *("(x / 3.0).cast('float32').cast('float64') * 7.0", "x.scale(0.1, 0.3).scale(3.0).scale(0.7, -0.3)"),
    *("x.scale(1e-300)", "short.scale(1e-30)", "x.min_max(-5e-324, 1e-310, clip=False)", "x.standardize(1e-310, 1e-308)"),
    *("x.log1p()", "x.log()", "x.sqrt()", "x.sign_log()", "short.log1p()", "short.log()", "short.sqrt()"),
    *("x.sin_periodic(0.7)", "x.cos_periodic(86400)", "short.sin_periodic(24)", "whole.cos_periodic(7)"),
    *("x.abs()", "x.floor()", "x.ceil()", "short.floor()", "short.ceil()", "hr.minimum(x, y, short)", "hr.maximum(x, y)"),
    *("x < y", "x == y", "x != short", "x >= 0.0", "short > 5e-324", "whole <= x", "text < 'b'", "text >= text.lower()"),
    *("x.bucketize([-5e-324, 0, 5e-324, 1])", "short.bucketize([0.1, 0.5])", "x.clip(5e-324, 1.0)", "short.clip(-1, 1e-40)"),
    *("x.cast('float32')", "short.cast('float64')", "x.cast('int64')", "x.cast('bool')", "short.cast('bool')", "whole.cast('float32')"),
    *("hr.if_else(x > y, short, whole)", "hr.coalesce(short, x)", "hr.coalesce(x.fill_nan(-0.0), y).fill_null(-0.0)"),
    *("(flag & (x > 0)) | ~(y > 0)", "text.cast('int64').modulo(7)", "whole.cast('string').hash_buckets(1000, salt='s')"),
    *("hr.cross(text, whole, text.lower(), buckets=1000)", "hr.cross(text.unigrams(), whole, text.unigrams(), buckets=97)"),
    *("now.in_zone('America/New_York').hour_of_day()", "now.in_zone('Australia/Lord_Howe').week_of_year()", "now.year()"),
    *("now.recency_buckets(since=then)", "now.truncate_time('week')", "now.age_secs(then)"),
    *("numbers.log1p()", "numbers * x", "numbers.cast('int64') % 10", "(numbers > x) & flag", "now.age_secs(moments)"),
    *("moments.day_of_year()", "numbers - 1.5", "moments.in_zone('Asia/Tokyo').hour_of_day()", "numbers.is_nan()"),
]  # fmt: skip


def _values(column_type: ColumnType, source: np.random.Generator, rows: int) -> list[object]:
    if not isinstance(column_type, Dense):
        sizes = source.integers(0, 4, rows)
        item = Dense(column_type.dtype)
        return [[value for value in _values(item, source, int(size)) if value is not None] for size in sizes]
    match column_type.dtype:
        case DType.STRING:
            values: list[object] = [NASTY_TEXT[i] for i in source.integers(0, len(NASTY_TEXT), rows)]
        case DType.BOOL:
            values = source.integers(0, 2, rows).astype(bool).tolist()
        case DType.FLOAT32 | DType.FLOAT64:
            values = _floats(source, rows).tolist()
        case _:
            some = source.integers(-(2**63), 2**63 - 1, rows) >> source.integers(0, 63, rows)
            values = np.where(source.integers(0, 4, rows) == 0, source.choice(INT64S, rows), some).tolist()
    return [None if missing else value for value, missing in zip(values, source.integers(0, 9, rows) == 0, strict=True)]


def _floats(source: np.random.Generator, rows: int) -> Array:
    """A mixture: any bits, subnormals of both widths, the edges, products that become subnormal, everyday numbers."""
    anything = source.integers(-(2**63), 2**63 - 1, rows).view(np.float64)
    subnormal = source.integers(0, 2**52, rows).view(np.float64) * source.choice([-1.0, 1.0], rows)
    short = source.standard_normal(rows) * 2.0**-135
    edges = source.choice([*FLOATS, 2.0**-1022, -(2.0**-1022), 2.0**-126, 1e-323], rows)
    roots = source.standard_normal(rows) * 2.0 ** source.integers(-560, -480, rows)
    usual = source.standard_normal(rows) * 100
    return np.choose(source.integers(0, 6, rows), [anything, subnormal, short, edges, roots, usual])


@pytest.mark.parametrize("source", EXPRESSIONS)
def test_a_traced_graph_gives_what_the_kernels_give(source: str) -> None:
    import tensorflow as tf

    from transforms.twins.graph import compute
    from transforms.twins.tensors import DenseTensor, from_arrow, to_arrow

    expression = eval(source, globals())
    twinless = [name for name in ("lower", "unigrams") if name in source and REGISTRY[name].twin is None]
    if twinless:
        pytest.skip(f"no twin of {twinless}")
    random = np.random.default_rng(len(source))
    columns = raw_columns(expression.node)
    arrays = {
        column.name: arrow_column(_narrowed(_values(column.type, random, _ROWS), column.type), column.type)
        for column in columns
    }
    want = compile_plan({"it": expression.node}).run(pa.table(arrays))
    assert not want.failures, want.failures
    tensors = {column.name: from_arrow(arrays[column.name], column.type) for column in columns}

    def flat(column):
        return column if isinstance(column, tf.RaggedTensor) else (column.values, column.valid)

    def boxed(parts):
        return parts if isinstance(parts, tf.RaggedTensor) else DenseTensor(*parts)

    def serve(parts):
        return flat(compute({"it": expression.node}, {name: boxed(part) for name, part in parts.items()})["it"])

    parts = {name: flat(tensor) for name, tensor in tensors.items()}
    unknown = tf.nest.map_structure(_of_any_size, parts, expand_composites=False)
    for signature in (None, [unknown]) if source in REWRITTEN else ([unknown],):
        served = tf.function(serve, input_signature=signature, autograph=False)
        got = to_arrow(boxed(served(parts)), expression.type)
        wanted = python_values(want.columns["it"], expression.type)
        assert bits(python_values(got, expression.type), expression.type) == bits(wanted, expression.type)


def _narrowed(values: list[object], column_type: ColumnType) -> list[object]:
    if column_type.dtype is not DType.FLOAT32:
        return values
    with np.errstate(all="ignore"):
        return [None if value is None else float(np.float32(value)) for value in values]


def _of_any_size(tensor):
    import tensorflow as tf

    if isinstance(tensor, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None, None], tensor.dtype, ragged_rank=1, row_splits_dtype=tf.int64)
    return tf.TensorSpec([None], tensor.dtype)


def test_a_saved_model_keeps_every_bit(tmp_path: Path) -> None:
    import tensorflow as tf

    from transforms.twins.graph import compute
    from transforms.twins.tensors import DenseTensor

    expression = x.log1p() / 3.0 + x.sin_periodic(0.7) * 0.1
    values = _floats(np.random.default_rng(1), _ROWS)
    module = tf.Module()
    module.serve = tf.function(
        lambda column: {"it": compute({"it": expression.node}, {"x": DenseTensor(column)})["it"].values},
        input_signature=[tf.TensorSpec([None], tf.float64)],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path), signatures=module.serve)
    served = tf.saved_model.load(str(tmp_path)).signatures["serving_default"](tf.constant(values))["it"].numpy()
    want = compile_plan({"it": expression.node}).run(pa.table({"x": values})).columns["it"].to_pylist()
    assert bits(served.tolist(), expression.type) == bits(want, expression.type)
