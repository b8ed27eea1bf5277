from __future__ import annotations

import threading
from bisect import bisect_left

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scaled
from transforms.errors import InputError
from transforms.metrics.declarations import SECONDS, Kind, Metric, counter, durations, gauge
from transforms.metrics.families import Distribution, Family, Sample, by_label, single
from transforms.metrics.instruments import Histogram, LabelledHistograms
from transforms.metrics.registry import Registry


@given(st.lists(st.floats(0, 1e5), max_size=50), st.sets(st.floats(0.001, 1e4), min_size=1, max_size=9))
@settings(max_examples=scaled(50))
def test_each_value_is_in_the_bucket_below_its_limit(values, limits):
    bounds = tuple(sorted(limits))
    found = Histogram(bounds)
    for value in values:
        found.observe(value)
    reading = found.reading()
    expected = [sum(bisect_left(bounds, one) == bucket for one in values) for bucket in range(len(bounds) + 1)]
    assert reading == Distribution(tuple(expected), pytest.approx(sum(values)))


def test_threads_lose_no_observation():
    found, labelled = Histogram((1.0,)), LabelledHistograms((1.0,))

    def work(label: str) -> None:
        for _ in range(5_000):
            found.observe(2.0)
            labelled.observe(label, 0.5)

    threads = [threading.Thread(target=work, args=(str(number % 2),)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found.reading() == Distribution((0, 20_000), 40_000.0)
    assert labelled.readings() == {label: Distribution((10_000, 0), 5_000.0) for label in ("0", "1")}


def test_a_block_is_timed_unless_it_raises():
    moments = iter([1.0, 3.5, 4.0])
    found = Histogram((1.0, 3.0), clock=lambda: next(moments))
    with found.timed():
        pass
    with pytest.raises(KeyError), found.timed():
        raise KeyError
    assert found.reading() == Distribution((0, 1, 0), 2.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: counter("headrace_worker_tasks", "No total."),
        lambda: gauge("headrace_worker_tasks_total", "A total."),
        lambda: gauge("headrace_cook_tasks", "No such role."),
        lambda: gauge("tasks", "No role."),
        lambda: durations("headrace_host_step", "No unit."),
        lambda: Metric("headrace_host_step_seconds", Kind.HISTOGRAM, "Not ascending.", bounds=(2.0, 1.0)),
        lambda: gauge("headrace_queue_tasks", "A label that Prometheus refuses.", "Cliént"),
    ],
)
def test_a_name_that_breaks_the_rule_is_refused(make):
    with pytest.raises(InputError, match="must"):
        make()


def test_a_sample_must_fit_its_metric():
    tasks, steps = gauge("headrace_queue_tasks", "Tasks.", "client"), durations("headrace_host_step_seconds", "Steps.")
    assert by_label(tasks, {"a": 1.0}).samples == (Sample(("a",), 1.0),)
    for family in (
        lambda: single(tasks, 1.0),
        lambda: single(steps, 1.0),
        lambda: single(steps, Distribution((1,), 1.0)),
    ):
        with pytest.raises(InputError, match="fit"):
            family()
    assert single(steps, Distribution((0,) * (len(SECONDS) + 1), 0.0)).metric is steps


def test_a_source_replaces_the_one_of_its_name():
    metric, registry = gauge("headrace_fleet_slots", "Slots."), Registry()
    registry.add("one", lambda: [single(metric, 1.0)])
    registry.add("other", lambda: [single(metric, 2.0)])
    registry.add("one", lambda: [single(metric, 3.0)])
    assert registry.families() == [Family(metric, (Sample((), value),)) for value in (3.0, 2.0)]
