from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.scheduling.buffer_control import (
    BufferControl,
    BufferSample,
    BufferSettings,
    accepts_unit,
    control_readers,
    units_to_request,
)
from transforms.errors import InputError

SETTINGS = BufferSettings(limit_bytes=1000, units_per_reader=2, shrink_after_secs=10.0)


def sample(at_secs: float, *, fullness: float = 0.1, host: float = 100.0, unit_secs: float = 1.0, left: int = 10**6) -> BufferSample:  # fmt: skip
    """A second in which the host trains ``host`` rows, and a unit of 10 rows takes ``unit_secs``."""
    return BufferSample(
        at_secs=at_secs,
        fullness=fullness,
        consumed_rows=int(host),
        busy_secs=1.0,
        served_units=10,
        served_rows=100,
        served_secs=10 * unit_secs,
        flying_secs_per_row=0.0,
        left_units=left,
    )


def test_readers_are_littles_law_with_a_margin() -> None:
    control = control_readers(BufferControl(), sample(0.0, fullness=0.74), SETTINGS)
    assert control.host_rows_per_sec * control.unit_secs_per_row == pytest.approx(10.0)
    assert control.readers == 7, "10 units in flight and a quarter more, two per reader"
    assert control_readers(BufferControl(), sample(0.0, fullness=0.0), SETTINGS).readers == 8


def test_a_full_buffer_adds_no_reader() -> None:
    held = BufferControl(readers=2)
    assert control_readers(held, sample(0.0, fullness=0.8), SETTINGS).readers == 2


def test_readers_shrink_after_a_smaller_number_was_enough_for_a_while() -> None:
    control = control_readers(BufferControl(), sample(0.0), SETTINGS)
    first, counts = control.readers, []
    for second in range(1, 20):
        control = control_readers(control, sample(float(second), fullness=0.9, host=10.0), SETTINGS)
        counts.append(control.readers)
    assert counts[:9] == [first] * 9
    assert counts[-1] < first / 2


def test_a_small_saving_is_no_change() -> None:
    control = control_readers(BufferControl(), sample(0.0, host=1000.0), SETTINGS)
    first = control.readers
    for second in range(1, 40):
        control = control_readers(control, sample(float(second), host=950.0), SETTINGS)
    assert control.readers == first


def test_late_units_count_before_they_are_delivered() -> None:
    control = control_readers(BufferControl(), sample(0.0), SETTINGS)
    late = BufferSample(1.0, 0.3, 100, 1.0, 0, 0, 0.0, flying_secs_per_row=1.0, left_units=10**6)
    assert control_readers(control, late, SETTINGS).readers == SETTINGS.most_readers


def test_no_more_readers_than_units_are_left() -> None:
    assert control_readers(BufferControl(), sample(0.0, left=5), SETTINGS).readers == 3
    assert control_readers(BufferControl(), sample(0.0, left=0), SETTINGS).readers == 1


def test_there_is_a_reader_while_there_is_work() -> None:
    settings = BufferSettings(least_readers=0, shrink_after_secs=1.0)
    nothing = BufferSample(0.0, 0.0, 0, 0.0, 0, 0, 0.0, 0.0, left_units=7)
    control = control_readers(BufferControl(), nothing, settings)
    assert control.readers == 1
    for second in (5.0, 10.0):
        control = control_readers(control, BufferSample(second, 0.0, 0, 0.0, 0, 0, 0.0, 0.0, left_units=0), settings)
    assert control.readers == 0


def test_a_clock_that_was_set_back_forgets_later_wishes() -> None:
    control = control_readers(BufferControl(), sample(1e9), SETTINGS)
    for second in range(20):
        control = control_readers(control, sample(float(second), fullness=0.9, host=10.0), SETTINGS)
    assert control.readers < 8


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1e6), st.floats(0, 100), st.integers(0, 100)), min_size=1, max_size=50
    )
)
def test_readers_stay_within_their_limits(samples: list[tuple[float, float, float, int]]) -> None:
    settings = BufferSettings(least_readers=2, most_readers=9)
    control = BufferControl()
    for second, (fullness, host, unit_secs, left) in enumerate(samples):
        made = sample(float(second), fullness=fullness, host=host, unit_secs=unit_secs, left=left)
        control = control_readers(control, made, settings)
        assert 2 <= control.readers <= 9
        assert len(control.wishes) <= 9


@given(st.integers(0, 2000), st.integers(0, 50), st.integers(1, 1500), st.integers(0, 20))
def test_requests_reserve_their_bytes(buffered: int, flying: int, unit_bytes: int, readers: int) -> None:
    count = units_to_request(
        SETTINGS, buffered_bytes=buffered, flying_units=flying, unit_bytes=unit_bytes, readers=readers
    )
    assert count >= 0
    assert count == 0 or flying + count <= 2 * readers
    alone = not buffered and not flying and count == 1
    assert count == 0 or alone or buffered + (flying + count) * unit_bytes <= SETTINGS.limit_bytes
    if not buffered and not flying and readers:
        assert count >= 1, "a unit larger than the buffer is trained alone"


def test_a_unit_that_does_not_fit_waits_unless_it_is_next() -> None:
    assert accepts_unit(SETTINGS, buffered_bytes=900, unit_bytes=100, is_next=False)
    assert not accepts_unit(SETTINGS, buffered_bytes=901, unit_bytes=100, is_next=False)
    assert accepts_unit(SETTINGS, buffered_bytes=1000, unit_bytes=5000, is_next=True)


@pytest.mark.parametrize(
    "bad",
    [{"limit_bytes": 0}, {"low": 0.0}, {"low": 1.5}, {"least_readers": 65}, {"units_per_reader": 0}, {"weight": 0.0},
     {"shrink_share": 1.0}, {"margin": float("nan")}],
)  # fmt: skip
def test_settings_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(InputError):
        BufferSettings(**bad)  # type: ignore[arg-type]
