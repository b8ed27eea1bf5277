"""Operators over numbers compared with 60-digit arithmetic, and on special values."""

from __future__ import annotations

import decimal
import math
import random
import time
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from transforms.errors import InputError, TypeMismatch
from transforms.execution.plan import compile_plan
from transforms.operators import elementary
from transforms.types import Dense, DType

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")


@pytest.fixture(autouse=True)
def sixty_digits() -> Iterator[None]:
    with decimal.localcontext(prec=60):
        yield


def run(expression: hr.Expr, **columns: Any) -> list[Any]:
    batch = pa.table(
        {name: values if isinstance(values, pa.Array) else pa.array(values) for name, values in columns.items()}
    )
    result = compile_plan({"it": expression.node}).run(batch)
    assert not result.failures, result.failures
    return result.columns["it"].to_pylist()


def _sine(angle: Decimal) -> Decimal:
    term = total = angle
    for i in range(1, 60):
        term = -term * angle * angle / ((2 * i) * (2 * i + 1))
        total += term
    return total


def test_log_is_within_two_units_of_the_truth() -> None:
    source = random.Random(2)
    values = [10 ** source.uniform(-308, 308) for _ in range(1500)] + [
        1 + source.uniform(-0.4, 0.6) for _ in range(1500)
    ]
    values += [5e-324, 2.0**-1060, 1 - 2.0**-53, 1 + 2.0**-52, 1.7976931348623157e308]
    for x, y in zip(values, run(hr.float64("x").log(), x=values), strict=True):
        truth = Decimal(x).ln()
        assert abs(Decimal(y) - truth) <= 2 * Decimal(math.ulp(y)), x


@pytest.mark.parametrize("period", [1.0, 24.0, 0.1, 86_400.0, 365.2425])
def test_periodic_functions_are_as_near_the_truth_as_they_say(period: float) -> None:
    source = random.Random(3)
    values = [source.uniform(-3, 3) * period for _ in range(400)] + [source.uniform(-1e18, 1e18) for _ in range(200)]
    values += [k * period / 8 for k in range(-17, 17)]
    sines, cosines = (
        run(expression, x=values)
        for expression in (hr.float64("x").sin_periodic(period), hr.float64("x").cos_periodic(period))
    )
    limit = Decimal(2) ** -50
    for x, sine, cosine in zip(values, sines, cosines, strict=True):
        part = Fraction(x) / Fraction(period)
        part -= round(part)
        angle = 2 * _PI * Decimal(part.numerator) / Decimal(part.denominator)
        assert abs(Decimal(sine) - _sine(angle)) <= limit, x
        assert abs(Decimal(cosine) - _sine(angle + _PI / 2)) <= limit, x


def test_quarters_of_a_period_are_exact() -> None:
    hours = [0, 6, 12, 18, 24, -6, 2400 + 18]
    assert run(hr.int64("x").sin_periodic(24), x=hours) == [0.0, 1.0, 0.0, -1.0, 0.0, -1.0, -1.0]
    assert run(hr.int64("x").cos_periodic(24), x=hours) == [1.0, 0.0, -1.0, 0.0, 1.0, 0.0, 0.0]


def test_square_roots_are_those_of_ieee_754() -> None:
    source = random.Random(4)
    values = [source.uniform(0, 1) * 10 ** source.uniform(-320, 308) for _ in range(2000)] + [0.0, 5e-324, 4.0]
    assert run(hr.float64("x").sqrt(), x=values) == [math.sqrt(x) for x in values]


def test_what_has_no_logarithm() -> None:
    values = [0.0, -0.0, -1.0, math.inf, -math.inf, math.nan, None]
    assert repr(run(hr.float64("x").log(), x=values)) == "[-inf, -inf, nan, inf, nan, nan, None]"
    assert repr(run(hr.float64("x").sign_log(), x=values)[:2]) == "[0.0, -0.0]"


def test_the_least_integer() -> None:
    low = -(2**63)
    assert run(abs(hr.int64("x")), x=[low, low + 1]) == [low, 2**63 - 1]
    assert run(-hr.int64("x"), x=[low, 5]) == [low, -5]
    assert run(hr.int64("x").modulo(1000), x=[low, -1]) == [low % 1000, 999]
    assert run(hr.int64("x") % (2**63 - 1), x=[low]) == [2**63 - 2]


def test_minus_zero_is_the_lesser_zero() -> None:
    zeros = {"a": [0.0, -0.0], "b": [-0.0, 0.0]}
    a, b = hr.float64("a"), hr.float64("b")
    assert repr(run(hr.minimum(a, b), **zeros)) == "[-0.0, -0.0]"
    assert repr(run(hr.maximum(a, b), **zeros)) == "[0.0, 0.0]"
    assert repr(run(-a, **zeros)) == "[-0.0, 0.0]"
    assert repr(run(hr.float64("x").ceil(), x=[-0.5, 5e-324, -5e-324])) == "[-0.0, 1.0, -0.0]"
    assert repr(run(hr.float64("x").floor(), x=[0.5, 5e-324, -5e-324])) == "[0.0, 0.0, -1.0]"


def test_a_constant_column_is_standardized_to_zero() -> None:
    assert repr(run(hr.float64("x").standardize(3, 0), x=[3.0, 7.0, math.inf, math.nan])) == "[0.0, 0.0, 0.0, nan]"


def test_literals_stand_in_for_numbers() -> None:
    assert run(hr.minimum(hr.int64("x"), 3), x=[1, 5, None]) == [1, 3, None]
    assert run(hr.maximum(0.5, hr.float32("x")), x=pa.array([0.25, 2.0], pa.float32())) == [0.5, 2.0]


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda: hr.float64("x").min_max(2, 2), "must be below high"),
        (lambda: hr.float64("x").min_max(-1e308, 1e308), "must be below high"),
        (lambda: hr.float64("x").standardize(0, -1), "allowed value"),
        (lambda: hr.float64("x").sin_periodic(0), "allowed value"),
        (lambda: hr.int64("x").modulo(0), "allowed value"),
        (lambda: hr.float64("x") % 7, "does not take"),
        (lambda: hr.text("x").log(), "does not take"),
        (lambda: hr.int64("x").is_nan(), "does not take"),
    ],
)  # fmt: skip
def test_mistakes_are_errors(mistake: Any, says: str) -> None:
    with pytest.raises((InputError, TypeMismatch), match=says):
        mistake()


def test_operators_work_on_the_items_of_lists() -> None:
    prices = pa.array([[1.0, math.nan, -2.0], [], [4.0]], pa.list_(pa.float64()))
    items = hr.ragged("items", "float64")
    assert run(items.sqrt().fill_nan(0), items=prices) == [[1.0, 0.0, 0.0], [], [2.0]]
    assert run(items * hr.float64("rate"), items=prices, rate=[2.0, 1.0, None])[2] == []
    assert run(items - 1, items=prices)[2] == [3.0]
    assert run((items > 0) & hr.boolean("b"), items=prices, b=[None, True, False]) == [[False, False], [], [False]]
    assert run(items.bucketize([0.0, 2.0]), items=prices) == [[1, 2, 0], [], [2]]


def test_a_list_of_a_hundred_thousand() -> None:
    items = pa.array([list(range(100_000)), [7]], pa.list_(pa.int64()))
    begun = time.process_time()
    logs = run(hr.ragged("items", "int64").log1p(), items=items)
    assert time.process_time() - begun < 20, "even with compilation"
    assert len(logs[0]) == 100_000
    assert logs[0][99_999] == elementary.log1p(99_999.0)


def test_compiled_and_plain_agree_on_every_bit() -> None:
    bits = np.random.default_rng(5).integers(-(2**63), 2**63 - 1, 5000).view(np.float64)
    for name, plain in (("log", elementary.log), ("log1p", elementary.log1p)):
        got = run(getattr(hr.float64("x"), name)(), x=bits)
        assert [value.hex() for value in got] == [plain(x).hex() for x in bits.tolist()]
    got = run(hr.float64("x").sin_periodic(0.3), x=bits)
    assert [value.hex() for value in got] == [elementary.sine_of_period(x, 0.3, 0).hex() for x in bits.tolist()]


def test_remainders_are_exact() -> None:
    from transforms.kernels.elementary import _remainders

    source = np.random.default_rng(6)
    for period in (24.0, 0.1, 1 / 3, 2.0 - 2.0**-52, 1.0 + 2.0**-52, 86_400.0, 365.2425, 2.0**-256, 2.0**256):
        near = source.uniform(-(2.0**27), 2.0**27, 20_000) * period
        whole = np.round(source.uniform(-100, 100, 5000)) * period
        values = np.concatenate(
            [near, near * 1e-7, whole, np.nextafter(whole, 0), np.nextafter(whole, np.inf), near * 1e30]
        )
        assert np.array_equal(_remainders(values, period), np.fmod(values, period))


@pytest.mark.parametrize(
    ("expression", "gives"),
    [
        (hr.int64("x") + 1, [-(2**63), -(2**63) + 1]),
        (hr.int64("x") - 1, [2**63 - 2, 2**63 - 1]),
        (hr.int64("x") * 2, [-2, 0]),
        (-hr.int64("x"), [-(2**63) + 1, -(2**63)]),
        (abs(hr.int64("x")), [2**63 - 1, -(2**63)]),
        (hr.int64("x").cast("float64") + 1.0, [2.0**63, -(2.0**63)]),
        ((hr.int64("x") + 1.0).cast("int64"), [None, -(2**63)]),
    ],
)
def test_int64_wraps_around_at_its_ends_in_kernel_and_twin(expression: hr.Expr, gives: list[Any]) -> None:
    from transforms.twins.graph import compute
    from transforms.twins.tensors import from_arrow, to_arrow

    ends = pa.array([2**63 - 1, -(2**63)])
    twin = compute({"it": expression.node}, {"x": from_arrow(ends, Dense(DType.INT64))})["it"]

    assert run(expression, x=ends) == gives
    assert to_arrow(twin, expression.type).to_pylist() == gives
