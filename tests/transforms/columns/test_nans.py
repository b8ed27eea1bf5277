"""Every NaN is the quiet NaN, in inputs and in outputs of operators."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from tests.transforms.adversarial import COMPUTABLE, acceptable_types, columns_for, computed
from tests.transforms.odd_nans import QUIET, nans, with_odd_nans
from tests.transforms.operators.parameters import GOLDEN_PARAMS
from tests.transforms.trials import drawn_trial
from transforms.columns.arrow_types import arrow_type
from transforms.columns.columns import cast_to_layout
from transforms.columns.nans import with_one_nan
from transforms.operators import REGISTRY, Operator
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

FLOATS = (DType.FLOAT32, DType.FLOAT64)
TYPES: list[ColumnType] = [Dense(dtype) for dtype in FLOATS] + [Ragged(dtype) for dtype in FLOATS]
TYPES += [Vector(DType.FLOAT32, 2), Weighted(DType.STRING), Weighted(DType.INT64)]


def _rows(column_type: ColumnType) -> list[object]:
    nan = float("nan")
    match column_type:
        case Dense():
            return [nan, None, -0.0, 1.5, nan, nan]
        case Vector():
            return [[nan, 1.0], [-0.0, nan], [2.0, 3.0], [nan, nan]]
        case Weighted(dtype=DType.STRING):
            return [[{"id": "a", "weight": nan}], [], [{"id": "b", "weight": 1.0}, {"id": "c", "weight": nan}]]
        case Weighted():
            return [[{"id": 1, "weight": nan}], [], [{"id": 2, "weight": 1.0}, {"id": 3, "weight": nan}]]
        case _:
            return [[nan, 1.0], [], [nan], [-0.0, nan, nan]]


@pytest.mark.parametrize("column_type", TYPES, ids=str)
def test_reading_leaves_one_nan_and_every_other_value(column_type: ColumnType) -> None:
    array = with_odd_nans(pa.array(_rows(column_type), arrow_type(column_type)))
    assert not nans(array) <= QUIET
    for stored in (array, array.slice(1), pa.chunked_array([array.slice(0, 2), array.slice(2)])):
        read = cast_to_layout(stored, column_type)
        assert nans(read) <= QUIET
        assert str(read.to_pylist()) == str(stored.to_pylist())
        assert with_one_nan(read) is read


@pytest.mark.parametrize("column_type", TYPES, ids=str)
def test_serving_reads_columns_as_plans_do(column_type: ColumnType) -> None:
    from transforms.twins.graph import compute
    from transforms.twins.tensors import from_arrow, to_arrow

    array = with_odd_nans(pa.array(_rows(column_type), arrow_type(column_type)))
    (column,) = columns_for([column_type])
    served = to_arrow(compute({"it": column}, {"c0": from_arrow(array, column_type)})["it"], column_type)
    assert nans(served) <= QUIET
    assert str(served.to_pylist()) == str(computed(column, [array], len(array)).to_pylist())


def test_columns_without_odd_nans_are_not_copied() -> None:
    for array in (
        pa.array([1.0, None, float("nan")]),
        pa.array([[1.0], None]),
        pa.array(["a"]),
        pa.array([], pa.float32()),
    ):
        assert with_one_nan(array) is array


@pytest.mark.parametrize("width", [pa.float16(), pa.float32()])
def test_narrower_floats_are_read_with_one_nan(width: pa.DataType) -> None:
    unsigned = {16: np.uint16, 32: np.uint32}[width.bit_width]
    odd = np.array([{16: 0xFE01, 32: 0xFFC00001}[width.bit_width]], unsigned)
    stored = pa.array(odd.view({16: np.float16, 32: np.float32}[width.bit_width]))
    assert nans(cast_to_layout(stored, Dense(DType.FLOAT64))) <= QUIET
    assert nans(cast_to_layout(pa.array([stored.to_pylist()], pa.list_(width)), Ragged(DType.FLOAT64))) <= QUIET


def test_a_parameter_has_one_nan() -> None:
    (odd,) = np.array([0xFFF8000000000001], np.uint64).view(np.float64)
    bound = REGISTRY["fill_null"].bind_params({"value": float(odd)})["value"]
    assert np.float64(bound).view(np.uint64) in QUIET  # type: ignore[arg-type]
    values = REGISTRY["lookup"].bind_params(
        {"keys": ("a",), "values": (float(odd),), "dtype": "float64", "default": (float(odd),)}
    )
    for name in ("values", "default"):
        assert np.float64(values[name][0]).view(np.uint64) in QUIET  # type: ignore[index,union-attr,arg-type]


def _floats(operator: Operator) -> bool:
    """Whether an operator takes floats or weights, or makes floats of something else."""
    taken = [dtypes for arg in operator.args for dtypes in (arg.dense, arg.ragged, arg.vector)]
    if any(not dtypes.isdisjoint(FLOATS) for dtypes in taken) or any(arg.weighted for arg in operator.args):
        return True
    params = operator.bind_params(GOLDEN_PARAMS.get(operator.name, [{}])[0])
    return any(operator.infer(types, params).dtype in FLOATS for types in acceptable_types(operator, params))


@pytest.mark.parametrize("operator", list(filter(_floats, COMPUTABLE)), ids=lambda operator: operator.name)
@given(data=st.data())
@settings(max_examples=scaled(12), suppress_health_check=list(HealthCheck))
def test_results_have_one_nan(operator: Operator, data: st.DataObject) -> None:
    trial = drawn_trial(operator, data)
    arrays = [with_odd_nans(array) for array in trial.arrays]
    assert nans(computed(trial.root, arrays, trial.rows, trial.constants)) <= QUIET
