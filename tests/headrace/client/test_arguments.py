"""The arguments of commands from Python values."""

from __future__ import annotations

import doctest
from datetime import UTC, date, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cli.train_options.arguments import training_values
from headrace.client import arguments
from headrace.client.arguments import arguments_of
from tests.support.examples import scaled
from transforms.errors import InputError


def test_the_example_of_the_docstring_is_true():
    assert doctest.testmod(arguments, extraglobs={"date": date}).failed == 0


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "hosts": st.integers(0, 99),
            "start": TEXTS,
            "run_dir": TEXTS,
            "follow": st.booleans(),
            "baseline": st.lists(TEXTS, min_size=1, max_size=3),
        },
    )
)
@settings(max_examples=scaled(40))
def test_a_command_gets_the_values_that_were_given(options):
    values = training_values([*arguments_of(options), "--", "model"])
    assert values["model"] == "model"
    for name, value in options.items():
        assert values[name] == value, name


def test_times_are_iso_8601_and_nothing_is_left_out():
    at = datetime(2026, 3, 2, 4, tzinfo=UTC)
    assert arguments_of({"start": at, "end": date(2026, 3, 3), "plan": None, "follow": False}) == [
        "--start=2026-03-02T04:00:00+00:00",
        "--end=2026-03-03",
    ]


@pytest.mark.parametrize("value", [{"dim": 8}, object(), [{"dim": 8}]])
def test_a_value_that_is_no_option_is_refused(value):
    with pytest.raises(InputError) as caught:
        arguments_of({"hosts": value})
    assert caught.value.where == "hosts"
    assert "config" in caught.value.next_step
