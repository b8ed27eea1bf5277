from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import InputError
from warehouse.scheduling.backoff import TRANSACTION_BACKOFF, Backoff, Retry

DRAWS = st.floats(0, 1, exclude_max=True)


@given(failed=st.integers(1, 10**6), draw=DRAWS, jitter=st.floats(0, 1), first_secs=st.floats(0, 3))
def test_waits_double_up_to_a_limit_and_jitter_is_the_share_that_is_drawn(
    failed: int, draw: float, jitter: float, first_secs: float
) -> None:
    backoff = Backoff(first_secs, most_secs=3.0, jitter=jitter)
    longest = min(3.0, first_secs * 2.0 ** min(failed - 1, 60))
    assert longest * (1 - jitter) <= backoff.wait_secs(failed, draw) <= longest
    assert backoff.wait_secs(failed, 0.0) == longest * (1 - jitter)


def test_half_of_a_wait_is_drawn_unless_the_jitter_says_otherwise() -> None:
    assert [Backoff(1.0, 9.0).wait_secs(failed, 0.5) for failed in (1, 2, 3, 4, 5)] == [0.75, 1.5, 3.0, 6.0, 6.75]
    assert [Backoff(1.0, 9.0, jitter=1.0).wait_secs(3, draw) for draw in (0.0, 0.5)] == [0.0, 2.0]


def test_a_server_has_the_time_to_be_restarted() -> None:
    assert TRANSACTION_BACKOFF.attempts is not None
    waits = [TRANSACTION_BACKOFF.wait_secs(failed, 0.0) for failed in range(1, TRANSACTION_BACKOFF.attempts)]
    assert 5 < sum(waits) <= sum(2 * wait for wait in waits) < 13


@pytest.mark.parametrize(
    "wrong",
    [{"attempts": 0}, {"first_secs": -1.0}, {"first_secs": 31.0}, {"jitter": 1.5}, {"limit_secs": float("nan")}],
)
def test_a_backoff_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Backoff(**{"first_secs": 0.5, "most_secs": 30.0, **wrong})


def failing(times: int, error: Exception) -> tuple[Callable[[], str], list[int]]:
    calls: list[int] = []

    def call() -> str:
        calls.append(len(calls))
        if len(calls) <= times:
            raise error
        return "done"

    return call, calls


def retry(backoff: Backoff, draw: float = 0.0, attempt_secs: float | None = None) -> tuple[Retry, list[float]]:
    """With a clock that moves by what is slept and by ``attempt_secs`` a reading; None: without a clock."""
    waits: list[float] = []
    readings: list[float] = []

    def clock() -> float:
        readings.append(attempt_secs or 0.0)
        return 100.0 + sum(waits) + sum(readings[1:])

    is_transient = lambda error: isinstance(error, OSError)  # noqa: E731
    return Retry(backoff, is_transient, waits.append, lambda: draw, None if attempt_secs is None else clock), waits


@given(st.integers(0, 12), DRAWS, st.integers(1, 10), st.sampled_from([None, 0.0]))
def test_waits_double_up_to_the_longest_and_attempts_are_counted(
    times: int, draw: float, attempts: int, attempt_secs: float | None
) -> None:
    backoff = Backoff(first_secs=1.0, most_secs=5.0, jitter=1.0, attempts=attempts, limit_secs=1e9)
    patient, waits = retry(backoff, draw, attempt_secs)
    call, calls = failing(times, error := OSError("passing"))
    if times < attempts:
        assert patient.call(call) == "done"
        assert len(calls) == times + 1
    else:
        with pytest.raises(OSError, match="passing") as caught:
            patient.call(call)
        assert caught.value is error
        assert len(calls) == attempts
    assert waits == [draw * wait for wait in (1.0, 2.0, 4.0, *[5.0] * 20)][: len(calls) - 1]


@pytest.mark.parametrize(
    ("shortens_last", "attempt_secs", "expected"),
    [
        (False, 0.0, [1.0, 2.0, 4.0]),
        (False, None, [1.0, 2.0, 4.0]),
        (True, 0.0, [1.0, 2.0, 4.0, 3.0]),
        (True, None, [1.0, 2.0, 4.0, 3.0]),
        (False, 2.0, [1.0, 2.0]),
        (True, 2.0, [1.0, 2.0, 1.0]),
    ],
)
def test_no_attempt_begins_after_the_limit(
    shortens_last: bool, attempt_secs: float | None, expected: list[float]
) -> None:
    backoff = Backoff(1.0, 64.0, jitter=0.0, limit_secs=10.0, shortens_last=shortens_last)
    patient, waits = retry(backoff, attempt_secs=attempt_secs)
    call, calls = failing(99, OSError("passing"))
    with pytest.raises(OSError, match="passing"):
        patient.call(call)
    assert waits == expected
    assert len(calls) == len(expected) + 1


def test_what_does_not_pass_is_raised_at_once() -> None:
    patient, waits = retry(Backoff(1.0, 5.0))
    call, calls = failing(1, KeyError("for good"))
    with pytest.raises(KeyError):
        patient.call(call)
    assert (len(calls), waits) == (1, [])


def test_each_wait_is_announced_with_the_error_before_it() -> None:
    announced: list[tuple[int, float, str]] = []
    note = lambda failed, passed_secs, error: announced.append((failed, passed_secs, str(error)))  # noqa: E731
    backoff = Backoff(1.0, 5.0, jitter=0.0, attempts=3)
    with pytest.raises(OSError, match="passing"):
        Retry(backoff, lambda _: True, lambda _: None, lambda: 0.0, None, note).call(failing(9, OSError("passing"))[0])
    assert announced == [(1, 0.0, "passing"), (2, 1.0, "passing")]
