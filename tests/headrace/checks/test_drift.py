"""Drift of inputs: equal distributions are no finding, changed ones are, and authors set limits of their own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.checks.column_sketch import ColumnSketch, sketch_column
from headrace.checks.drift import Limits, drift_of
from headrace.metrics.drift import InputDrift, drift_families
from headrace.metrics.exposition import text_of
from transforms.analysis.expectation import Expect
from transforms.errors import InputError
from transforms.ranges import between
from transforms.types import Dense

NUMBERS, IDS = Dense("float64"), Dense("int64", 100_000)


def numbers(values, empty=0):
    return sketch_column(pa.array([*values, *[None] * empty], pa.float64()), NUMBERS)


def ids(values):
    return sketch_column(pa.array(values, pa.int64()), IDS)


@pytest.mark.parametrize("rows", [20, 100, 1000, 10_000])
def test_equal_distributions_are_seldom_a_finding(rows):
    """Of few events too: what chance does is taken off."""
    random, found = np.random.default_rng(rows), 0
    for _ in range(60):
        old, new = (numbers(random.lognormal(size=count), int(count * 0.05)) for count in (rows * 7, rows))
        found += bool(drift_of(old, new).findings)
        old, new = (ids(random.zipf(1.3, count) % 50_000) for count in (rows * 7, rows))
        found += bool(drift_of(old, new).findings)
    assert found <= 2


@pytest.mark.parametrize(
    ("before", "now", "figure"),
    [
        (lambda r: numbers(r.normal(0, 1, 7000)), lambda r: numbers(r.normal(0.6, 1, 1000)), "psi"),
        (lambda r: numbers(r.normal(0, 1, 7000)), lambda r: numbers(r.normal(0.4, 1, 1000)), "ks"),
        (lambda r: numbers(r.normal(0, 1, 7000), 70), lambda r: numbers(r.normal(0, 1, 1000), 150), "empty_share"),
        (lambda r: ids(r.zipf(1.3, 7000) % 1000), lambda r: ids(r.zipf(1.3, 1000) % 1000 + 5000), "psi"),
        (lambda r: numbers(np.zeros(7000)), lambda r: numbers(np.ones(1000)), "ks"),
    ],
)
def test_a_change_is_a_finding_of_its_figure(before, now, figure):
    random = np.random.default_rng(1)
    assert figure in {one.figure for one in drift_of(before(random), now(random)).findings}


def test_the_psi_of_known_counts():
    found = drift_of(numbers([1.0] * 5000 + [10.0] * 5000), numbers([1.0] * 8000 + [10.0] * 2000))
    assert found.psi == pytest.approx((0.8 - 0.5) * np.log(0.8 / 0.5) + (0.2 - 0.5) * np.log(0.2 / 0.5), abs=0.003)
    assert found.ks == pytest.approx(0.3)


def test_an_author_sets_limits_beside_the_common_ones():
    random = np.random.default_rng(2)
    old, new = numbers(random.normal(0, 1, 7000)), numbers(random.normal(0.4, 1, 1000), 60)
    assert not drift_of(old, new, Expect(psi=1.0, ks=0.5, empty_share=0.1)).findings
    strict = drift_of(old, new, Expect(values=between(-1, 1), empty_share=0.01))
    assert [one.figure for one in strict.findings if one.is_expected] == ["empty_share", "values", "values"]
    assert drift_of(old, new, limits=Limits(psi=1.0, ks=0.5, empty_change=0.1)).findings == ()


def test_new_ids_are_a_finding_where_a_limit_is_expected():
    old, new = ids(range(100)), ids([*range(50), *range(1000, 1050)])
    assert drift_of(old, new).new_share == 0.5
    assert "new_share" not in {one.figure for one in drift_of(old, new).findings}
    assert "new_share" in {one.figure for one in drift_of(old, new, Expect(new_share=0.3)).findings}


def test_infinite_values_are_outside_every_range_and_ids_have_none():
    assert [
        one.text for one in drift_of(numbers([1.0]), numbers([1.0, np.inf]), Expect(values=between(0, 2))).findings
    ] == ["1 values are NaN or infinite"]
    assert "ids or text" in drift_of(ids([1]), ids([1]), Expect(values=between(0, 2))).findings[0].text


def test_no_events_are_no_figures():
    nothing = ColumnSketch(0, 0)
    found = drift_of(nothing, nothing)
    assert (found.psi, found.ks, found.new_share, found.findings) == (None, None, None, ())


@pytest.mark.parametrize(
    "wrong", [{"psi": -1}, {"ks": 2.0}, {"empty_share": float("nan")}, {"new_share": True}, {"values": (0, 1)}]
)
def test_a_limit_that_is_none_is_refused(wrong):
    with pytest.raises(InputError):
        Expect(**wrong)


def test_metrics_are_text_of_prometheus_whatever_the_names_are():
    found = [InputDrift("in\\put\n", 0.25, None, None, 0.0, 1)]
    text = text_of(drift_families('a "model"', found)).decode()
    families = {one.name: one for one in text_string_to_metric_families(text)}
    sample = families["headrace_checks_psi_ratio"].samples[0]
    assert (sample.labels, sample.value) == ({"model": 'a "model"', "input": "in\\put\n"}, 0.25)
    assert families["headrace_checks_ks_ratio"].samples == []
