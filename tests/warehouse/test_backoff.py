from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warehouse.backoff import Backoff

DRAWS = st.floats(0, 1, exclude_max=True)


@given(attempt=st.integers(1, 60), draw=DRAWS)
def test_waits_double_up_to_a_limit_and_are_at_least_half(attempt: int, draw: float) -> None:
    backoff = Backoff(attempts=60, first_secs=0.1, most_secs=3.0)
    whole = min(3.0, 0.1 * 2 ** (attempt - 1))
    assert whole / 2 <= backoff.wait_secs(attempt, draw) <= whole
    assert backoff.wait_secs(attempt, 0.0) == whole / 2


def test_a_server_has_the_time_to_be_restarted() -> None:
    backoff = Backoff()
    waits = [backoff.wait_secs(attempt, 0.0) for attempt in range(1, backoff.attempts)]
    assert 5 < sum(waits) <= sum(2 * wait for wait in waits) < 13
