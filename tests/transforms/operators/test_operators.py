"""Every operator: its kernel equals its reference bit for bit, and its laws hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.transforms.adversarial import (
    COMPUTABLE,
    acceptable_types,
    argument_types,
    arrow_column,
    bits,
    columns_for,
    computed,
    operation,
    python_values,
    values_of,
)
from tests.transforms.operators.parameters import params_of
from tests.transforms.trials import drawn_trial
from transforms.operators import REGISTRY, Law, Operator
from transforms.operators.declaration import Imported
from transforms.types import Dense, DType, Weighted

every_operator = pytest.mark.parametrize("operator", COMPUTABLE, ids=lambda operator: operator.name)
quick = settings(max_examples=scaled(50), suppress_health_check=list(HealthCheck))


@pytest.mark.medium
@every_operator
@given(data=st.data())
@quick
def test_kernel_equals_reference(operator: Operator, data: st.DataObject) -> None:
    trial = drawn_trial(operator, data)
    root = trial.root
    got = computed(root, trial.arrays, trial.rows, trial.constants)

    got.validate(full=True)
    assert bits(python_values(got, root.type), root.type) == bits(trial.expected(), root.type)
    buckets = getattr(root.type, "buckets", None)
    if buckets is not None and all(getattr(column_type, "buckets", None) is None for column_type in trial.types):
        flat = got if isinstance(root.type, Dense) else got.flatten()
        flat = flat.flatten()[0] if isinstance(root.type, Weighted) else flat
        assert all(value is None or 0 <= value < buckets for value in flat.to_pylist())
    chunked = [pa.chunked_array([a.slice(0, 2), a.slice(2)]) for a in trial.arrays]
    assert _bytes(computed(root, chunked, trial.rows, trial.constants)) == _bytes(got), "other chunks, other bytes"


def _bytes(array: pa.Array) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"it": array})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _with_law(law: Law) -> pytest.MarkDecorator:
    lawful = [operator for operator in REGISTRY if law in operator.laws]
    return pytest.mark.parametrize("operator", lawful, ids=lambda operator: operator.name)


class _Lawful:
    """Three columns of one type for an operator, and its results over them."""

    def __init__(self, operator: Operator, data: st.DataObject) -> None:
        self.operator = operator
        self.params = operator.bind_params(data.draw(params_of(operator.name)))
        alike = [types for types in acceptable_types(operator, self.params) if len(set(types)) == 1]
        types = (data.draw(st.sampled_from(alike))[0],) * 3
        self.columns = columns_for(types)
        rows = data.draw(st.lists(st.tuples(*(values_of(column_type) for column_type in types)), max_size=5))
        self.rows = len(rows)
        self.arrays = [arrow_column([row[i] for row in rows], column_type) for i, column_type in enumerate(types)]

    def of(self, *operands: Any) -> Any:
        return operation(self.operator.name, operands, self.params)

    def equal(self, left: Any, right: Any) -> None:
        assert left.type == right.type
        assert _bytes(computed(left, self.arrays, self.rows)) == _bytes(computed(right, self.arrays, self.rows))


@_with_law(Law.COMMUTATIVE)
@given(data=st.data())
@quick
def test_arguments_commute(operator: Operator, data: st.DataObject) -> None:
    case = _Lawful(operator, data)
    a, b, c = case.columns
    case.equal(case.of(a, b), case.of(b, a))
    if operator.args[-1].variadic:
        case.equal(case.of(a, b, c), case.of(c, a, b))


@_with_law(Law.ASSOCIATIVE)
@given(data=st.data())
@quick
def test_arguments_associate(operator: Operator, data: st.DataObject) -> None:
    case = _Lawful(operator, data)
    a, b, c = case.columns
    flat = case.of(a, b, c)
    case.equal(case.of(case.of(a, b), c), flat)
    case.equal(case.of(a, case.of(b, c)), flat)


@_with_law(Law.IDEMPOTENT_ARGUMENTS)
@given(data=st.data())
@quick
def test_repeated_arguments_add_nothing(operator: Operator, data: st.DataObject) -> None:
    case = _Lawful(operator, data)
    a, b, _ = case.columns
    case.equal(case.of(a, a, b), case.of(a, b))
    case.equal(case.of(a, b, a), case.of(a, b))
    case.equal(case.of(a, a), case.of(a))


@_with_law(Law.IDEMPOTENT)
@given(data=st.data())
@quick
def test_applying_twice_adds_nothing(operator: Operator, data: st.DataObject) -> None:
    params = operator.bind_params(data.draw(params_of(operator.name)))
    types = data.draw(argument_types(operator, params))
    values = data.draw(st.lists(values_of(types[0]), max_size=6))
    once = operation(operator.name, columns_for(types), params)
    twice = operation(operator.name, [once], params)
    assert twice.type == once.type
    arrays = [arrow_column(values, types[0])]
    assert _bytes(computed(twice, arrays, len(values))) == _bytes(computed(once, arrays, len(values)))


@every_operator
def test_declaration_is_complete(operator: Operator) -> None:
    assert operator.summary.endswith(".")
    assert operator.cost_ns > 0
    assert isinstance(operator.kernel, Imported)
    assert all(param.doc for param in operator.params)
    assert all(not arg.variadic for arg in operator.args[:-1])


def test_unary_int64_without_nulls_stays_without_a_validity_bitmap() -> None:
    root = operation("clip", columns_for([Dense(DType.INT64)]), {"low": 0.0})
    assert computed(root, [pa.array([-1, 5])], 2).buffers()[0] is None


def test_float_results_have_one_nan() -> None:
    odd = np.array([0x7FF8000000000123, 0xFFF8000000000000], np.uint64).view(np.float64)
    column = columns_for([Dense(DType.FLOAT64)])
    for name, params in (("log1p", {}), ("scale", {"factor": 2.0}), ("clip", {}), ("cast", {"dtype": "float64"})):
        got = computed(operation(name, column, params), [pa.array(odd)], 2)
        assert got.to_numpy().view(np.uint64).tolist() == [0x7FF8000000000000] * 2, name


def test_clip_changes_only_what_is_beyond_a_bound() -> None:
    column = columns_for([Dense(DType.FLOAT64)])
    got = computed(operation("clip", column, {"low": -1.0, "high": 0.0}), [pa.array([-0.0, 0.0, 5e-324, -2.0])], 4)
    assert [value.hex() for value in got.to_pylist()] == [value.hex() for value in (-0.0, 0.0, 0.0, -1.0)]
