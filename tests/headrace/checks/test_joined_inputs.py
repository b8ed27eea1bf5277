"""``headrace model check`` warns of joined columns that see what was not known yet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.checks.joined_inputs import area
from headrace.views.checks import checked_models
from tests.warehouse.joins.scenes import START_SECS, written
from warehouse import Warehouse, WarehouseConfig, register_table

_TIMES = pa.timestamp("us")


@pytest.fixture
def warehouse(tmp_path: Path):
    """Orders that tell of a click in the second before it, and of what was bought by whom long before."""
    draw = np.random.default_rng(1)
    rows = 600
    times = START_SECS + np.arange(rows) * 6
    clicked = draw.random(rows) < 0.4
    user = draw.integers(0, 10**6, rows)
    known = times - np.where(clicked, 1, 5_000)
    order = np.argsort(known)
    with Warehouse.open(WarehouseConfig(str(tmp_path / "home"), read_threads=1)) as opened:
        written(tmp_path / "log", 0, {"at": _at(times), "user": pa.array(user), "clicked": pa.array(clicked)})
        written(
            tmp_path / "orders",
            0,
            {"time": _at(known[order]), "user": pa.array(user[order]), "clicked": pa.array(clicked[order]),
             "seen": _at(known[order] + np.where(np.arange(rows) % 10 == 0, 7_200, 1))},
        )  # fmt: skip
        register_table(opened, "log", str(tmp_path / "log"), time_column="at")
        register_table(opened, "orders", str(tmp_path / "orders"), time_column="time", outside_times="keep")
        yield opened


def _at(secs: np.ndarray) -> pa.Array:
    return pa.array((secs * 10**6).astype(np.int64)).cast(_TIMES)


def surprises(warehouse: Warehouse, expression: hr.Expr) -> list[str]:
    model = hr.Model("m", client="c", label="clicked", table="log")
    model.input("x", expression)
    (found,) = checked_models(warehouse, [model], rows=600).models
    return [one.code for one in found.inputs[0].warnings]


def test_a_column_that_lives_by_the_last_hour_is_named(warehouse):
    orders = hr.table("orders").by(hr.int64("user"))
    assert "falls_with_delay" in surprises(warehouse, orders.count(window="30m") * 2.0)
    assert "falls_with_delay" not in surprises(warehouse, orders.count(window="12h") * 2.0)


def test_the_label_of_earlier_rows_needs_a_delay(warehouse):
    own = hr.table("log").by(hr.int64("user"))
    assert "early_label" in surprises(warehouse, own.mean(hr.boolean("clicked")))
    late = hr.table("log", available_after="1h").by(hr.int64("user"))
    assert "early_label" not in surprises(warehouse, late.mean(hr.boolean("clicked")))


def test_rows_that_are_known_later_than_declared_are_counted(warehouse):
    orders = hr.table("orders", known_at="seen", available_after="10m").by(hr.int64("user"))
    assert "late_rows" in surprises(warehouse, orders.count())
    late = hr.table("orders", known_at="seen", available_after="3h").by(hr.int64("user"))
    assert "late_rows" not in surprises(warehouse, late.count())


def test_the_area_counts_ties_half():
    values, label = pa.chunked_array([[1.0, 2.0, 2.0, None, 3.0]]), pa.chunked_array([[False, True, False, True, True]])
    found = area(values, label)
    assert found is not None
    assert found[0] == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert area(values, pa.chunked_array([[True] * 5])) is None
