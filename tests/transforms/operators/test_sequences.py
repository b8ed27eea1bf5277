"""Users' histories: sessions, gaps, and the time since each item."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import transforms.expressions.expression as hr
from tests.transforms.adversarial import arrow_column, bits
from tests.transforms.twins.traced import by_graph, by_kernels, lists
from transforms.errors import InputError
from transforms.types import Dense, DType, Ragged

times, now = hr.ragged("times", "timestamp"), hr.timestamp("now")
SECOND = 1_000_000


@pytest.mark.parametrize(
    "source", ["times.session_index(2)", "times.session_index(0)", "times.gaps_secs()", "times.sort().gaps_secs()"]
)
def test_traced_graphs_give_what_kernels_give(source: str) -> None:
    expression = eval(source, globals())
    for rows, lengths in ((48, (3, 0, 1, 2, 60, 5)), (1, (9,)), (3, (0,)), (0, (0,))):
        columns = {"times": lists(times.type, np.random.default_rng(5), rows, lengths)}
        assert by_graph(expression, columns) == by_kernels(expression, columns)


def test_a_session_ends_where_more_than_the_gap_passes() -> None:
    half_hour = 1800 * SECOND
    row = [0, half_hour, half_hour + half_hour, 3 * half_hour + 1, 3 * half_hour + 1, 5, 2**62]
    for found in (by_kernels, by_graph):
        assert found(times.session_index(1800), {"times": [row, [], [7]]}) == [[0, 0, 0, 1, 1, 1, 2], [], [0]]


@pytest.mark.slow
def test_sessions_and_gaps_of_a_hundred_thousand_items() -> None:
    row = np.cumsum(np.random.default_rng(1).integers(0, 3600 * SECOND, 100_000)).tolist()
    steps = np.diff(row)
    sessions = np.concatenate([[0], np.cumsum(steps > 1800 * SECOND)]).tolist()
    for found in (by_kernels, by_graph):
        assert found(times.session_index(1800.0), {"times": [row, row[:3]]}) == [sessions, sessions[:3]]
    gaps = [0.0, *(steps / 1e6).tolist()]
    assert by_kernels(times.gaps_secs(), {"times": [row]}) == [bits(gaps, Ragged(DType.FLOAT64))]


def test_gaps_keep_the_length_and_are_exact_at_the_limits() -> None:
    lowest, highest = -(2**63), 2**63 - 1
    columns: dict[str, Any] = {"times": [[SECOND, 3 * SECOND + 1, 3 * SECOND], [lowest, highest, lowest], [], [9]]}
    wanted = [[0.0, 2.000001, -1e-06], [0.0, (2.0**64) / 1e6, -(2.0**64) / 1e6], [], [0.0]]
    for found in (by_kernels, by_graph):
        assert found(times.gaps_secs(), columns) == [bits(row, Ragged(DType.FLOAT64)) for row in wanted]


def test_the_age_of_each_item_is_the_dense_operator_over_a_list() -> None:
    columns = {"times": [[0, 2 * SECOND], [], [5]], "now": [3 * SECOND, 7, None]}
    for found in (by_kernels, by_graph):
        assert found(now.age_secs(times), columns) == [bits([3.0, 1.0], Dense(DType.FLOAT64)), [], []]


def test_what_happened_within_the_last_day_is_a_filter() -> None:
    columns = {"times": [[0, 86_400 * SECOND, 86_401 * SECOND]], "now": [2 * 86_400 * SECOND]}
    recent = times.filter(now.age_secs(times) <= 86_400.0)
    assert by_kernels(recent, columns) == [[86_400 * SECOND, 86_401 * SECOND]]
    assert arrow_column(columns["times"], times.type).type.value_type.tz == "UTC"


@pytest.mark.parametrize("gap_secs", [-1, float("nan"), float("inf"), 1e12, True])
def test_gaps_that_are_none_are_refused(gap_secs: Any) -> None:
    with pytest.raises(InputError):
        times.session_index(gap_secs)
