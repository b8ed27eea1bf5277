"""The queue as a command prints it, and its drawing."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.screens.queue import QueueScreen
from headrace.screens.queue_drawing import queue_svg
from headrace.terminal.output import plain_text
from headrace.views.queue import minutes_of
from transforms.errors import InputError
from warehouse.queue.clients import Client
from warehouse.queue.history import KEPT_MINUTES, ClientSample, LeaseHolder, QueueMinute

NOW = 1_760_000_000.0
ADS = Client("ads", 2.0, None, 0.75, 30, 4, 1, 120, 8.5)


def minute(ago: int, **queued: int) -> QueueMinute:
    at = (int(NOW // 60) - ago) * 60
    return QueueMinute(at, 1, {name: ClientSample(count, 0, 0) for name, count in queued.items()})


def screen(*history: QueueMinute, holders: tuple[LeaseHolder, ...] = ()) -> QueueScreen:
    return QueueScreen(NOW, 60, (ADS,), 0.05, 600.0, holders, history)


def test_the_text_has_clients_workers_and_the_history() -> None:
    shown = screen(minute(3, ads=40), minute(2, ads=35), minute(0, ads=30), holders=(LeaseHolder("w1", 4, NOW - 90, NOW + 30),))  # fmt: skip
    text = plain_text(shown)
    assert re.search(r"w1 +4 +1 m 30 s +30.0 s", text)
    assert "most 40, last 30; recorded in 3 minutes of 60" in text
    assert any("\u2800" < one <= "\u28ff" for one in text), "a line of dots"
    assert plain_text(screen()).rstrip().endswith("no worker recorded the queue in the last 60 minutes")
    assert "no worker holds a lease; next: headrace work" in plain_text(screen())


def test_json_has_times_as_text() -> None:
    found = screen(minute(0, ads=1)).to_dict()
    assert found["at"] == "2025-10-09T08:53:20+00:00"
    assert found["history"][0]["at"] == "2025-10-09T08:53:00+00:00"
    assert found["history"][0]["clients"] == {"ads": {"queued": 1, "leased": 0, "failed": 0}}


@given(
    st.lists(
        st.tuples(st.integers(0, 3000), st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 10**12), max_size=9)),
        max_size=30,
    ),
    st.integers(1, KEPT_MINUTES),
)  # fmt: skip
def test_a_drawing_is_whole_and_in_its_frame(found: list[tuple[int, dict[str, int]]], minutes: int) -> None:
    """Names of clients may be any text; bars are at their times and no bar leaves the frame."""
    history = [QueueMinute((int(NOW // 60) - ago) * 60, 1, {name: ClientSample(count, 0, 0) for name, count in clients.items()})
               for ago, clients in sorted(found, key=lambda one: -one[0])]  # fmt: skip
    root = ElementTree.fromstring(queue_svg(history, NOW, minutes))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for one in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y, wide, high = (float(one.attrib[name]) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + wide <= width + 1.1
        assert 0 <= y <= y + high <= height + 0.11
        assert high >= 0


def test_a_time_without_a_worker_is_shaded() -> None:
    def shaded(*history: QueueMinute) -> int:
        return queue_svg(history, NOW, 60).count('class="none"')

    assert (shaded(), shaded(minute(5, ads=1), minute(4)), shaded(*map(minute, range(60)))) == (60, 58, 0)


def test_the_fullest_minute_of_a_bar_is_drawn() -> None:
    svg = queue_svg([minute(9, ads=7), minute(8, ads=900), minute(7, ads=3)], NOW, 1440)
    assert "ads: 900 queued" in svg
    assert "ads: 7 queued" not in svg


@pytest.mark.parametrize("secs", [0.0, -60.0, 8 * 86_400.0])
def test_more_than_a_week_is_refused(secs: float) -> None:
    with pytest.raises(InputError, match="at most a week"):
        minutes_of("--last", secs)
    assert minutes_of("--last", 61.0) == 2
