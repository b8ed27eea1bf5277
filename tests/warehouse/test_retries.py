from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import InputError
from warehouse.retries import GaveUp, Retrying, RetryPolicy


def failing(times: int, error: Exception) -> tuple[Callable[[], str], list[int]]:
    calls: list[int] = []

    def call() -> str:
        calls.append(len(calls))
        if len(calls) <= times:
            raise error
        return "done"

    return call, calls


def retrying(policy: RetryPolicy, drawn: float = 1.0) -> tuple[Retrying, list[float]]:
    """With a clock that moves by what is slept."""
    waits: list[float] = []
    is_passing = lambda error: isinstance(error, OSError)  # noqa: E731
    return Retrying(policy, is_passing, waits.append, lambda: 100.0 + sum(waits), lambda: drawn), waits


@given(st.integers(0, 12), st.floats(0, 0.999), st.integers(1, 10))
def test_waits_double_up_to_the_longest_and_attempts_are_counted(times: int, drawn: float, attempts: int) -> None:
    policy = RetryPolicy(attempts, first_wait_secs=1.0, longest_wait_secs=5.0, limit_secs=1e9)
    patient, waits = retrying(policy, drawn)
    call, calls = failing(times, OSError("passing"))
    if times < attempts:
        assert patient(call)() == "done"
        assert len(calls) == times + 1
    else:
        with pytest.raises(GaveUp) as caught:
            patient(call)()
        assert caught.value.attempts == len(calls) == attempts
        assert isinstance(caught.value.__cause__, OSError)
    assert waits == [drawn * wait for wait in (1.0, 2.0, 4.0, *[5.0] * 20)][: len(calls) - 1]


def test_no_attempt_begins_after_the_limit() -> None:
    patient, waits = retrying(RetryPolicy(100, first_wait_secs=1.0, longest_wait_secs=64.0, limit_secs=10.0))
    call, calls = failing(99, OSError("passing"))
    with pytest.raises(GaveUp, match="4 attempts"):
        patient(call)()
    assert waits == [1.0, 2.0, 4.0]
    assert len(calls) == 4


def test_what_does_not_pass_is_raised_at_once() -> None:
    patient, waits = retrying(RetryPolicy())
    call, calls = failing(1, KeyError("for good"))
    with pytest.raises(KeyError):
        patient(call)()
    assert (len(calls), waits) == (1, [])


@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"first_wait_secs": -1.0}, {"first_wait_secs": 31.0}, {"limit_secs": float("nan")}]
)
def test_a_policy_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        RetryPolicy(**wrong)
