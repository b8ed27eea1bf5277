"""Event files of a run: each point once, whatever is killed, and void events after an older commit."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.tracking.event_folder import EventFolder
from headrace.tracking.event_records import read_events
from headrace.tracking.points import new_points
from tests.support.examples import scaled
from tests.trainer.run.history.histories import HEADS, history_of, train
from trainer.model.heads import BINARY
from transforms.errors import StorageError

HISTORY = history_of(BINARY, [20, 50, 33])


def clock():
    counter = itertools.count(1_900_000_000)
    return lambda: float(next(counter))


def points_of(folder: Path) -> list[tuple[str, int]]:
    """The kind and the step of each point, as a reader sees them that skips void events."""
    found: list[tuple[str, int]] = []
    for path in sorted(folder.iterdir()):
        for event in read_events(path.read_bytes()):
            if event.voids_later:
                found = [one for one in found if one[1] < event.step]
            elif event.scalars:
                found.append((next(iter(event.scalars)).partition("/")[0], event.step))
    return found


def wanted(history) -> list[tuple[str, int]]:
    return [(point.kind, point.step) for point in new_points(history, {})]


def test_points_are_closed_windows_and_commits():
    assert wanted(HISTORY) == [("windows", 16), ("commits", 20), ("windows", 32), ("windows", 48), ("windows", 64),
                               ("commits", 70), ("windows", 80), ("windows", 96), ("commits", 103)]  # fmt: skip
    point = new_points(HISTORY, {"windows": 80, "commits": 103})[0]
    assert point.values["windows/events"] == 288
    assert {
        "windows/log_loss",
        "windows/auc",
        "windows/normalized_entropy",
        "windows/calibration",
    } <= point.values.keys()
    assert "windows/gradient_norm" not in point.values  # not measured


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.sampled_from(HEADS), st.data())
@settings(max_examples=scaled(40))
def test_killed_processes_leave_each_point_once(tmp_path_factory, commits, head, data):
    folder, now = tmp_path_factory.mktemp("events") / "run", clock()
    history = history_of(head, commits[:1])
    to = EventFolder(folder, now)
    for steps in [*commits[1:], 0]:
        to.add(history)
        if data.draw(st.booleans()):  # killed, perhaps within a record
            files = sorted(folder.iterdir())
            if files and data.draw(st.booleans()):
                content = files[-1].read_bytes()
                files[-1].write_bytes(content[: data.draw(st.integers(0, len(content)))])
            to = EventFolder(folder, now)
        if steps:
            history = train(history, head, [steps])
    EventFolder(folder, now).add(history)
    assert sorted(points_of(folder)) == sorted(wanted(history))


def test_events_after_an_older_commit_are_void(tmp_path):
    now = clock()
    EventFolder(tmp_path, now).add(HISTORY)
    older = history_of(BINARY, [20])
    EventFolder(tmp_path, now).add(older)
    assert points_of(tmp_path) == wanted(older)
    longer = train(older, BINARY, [40])
    EventFolder(tmp_path, now).add(longer)
    assert points_of(tmp_path) == wanted(longer)


def test_nothing_new_writes_nothing(tmp_path):
    to = EventFolder(tmp_path, clock())
    assert to.add(HISTORY) == 9
    (path,) = tmp_path.iterdir()
    size = path.stat().st_size
    assert to.add(HISTORY) == 0
    assert EventFolder(tmp_path, clock()).add(HISTORY) == 0
    assert path.stat().st_size == size


def test_a_failed_write_is_made_up_for_in_a_new_file(tmp_path, monkeypatch):
    to = EventFolder(tmp_path, clock())
    to.add(history_of(BINARY, [20]))

    def full(descriptor):
        raise OSError(28, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StorageError, match="event files"):
            to.add(HISTORY)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-5])
    to.add(HISTORY)
    assert sorted(points_of(tmp_path)) == sorted(wanted(HISTORY))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_made_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="event files"):
        EventFolder(tmp_path / "file" / "run", clock())


def test_the_real_tensorboard_reads_each_point_once(tmp_path):
    """Files of three processes, of which one was killed within a record and one went on from an older commit."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    now = clock()
    EventFolder(tmp_path, now).add(HISTORY)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-7])
    older = history_of(BINARY, [20])
    EventFolder(tmp_path, now).add(older)
    longer = train(older, BINARY, [100])
    EventFolder(tmp_path, now).add(longer)
    found = accumulator.EventAccumulator(str(tmp_path), size_guidance={"scalars": 0})
    found.Reload()
    for kind in ("windows", "commits"):
        steps = [one.step for one in found.Scalars(f"{kind}/log_loss")]
        assert steps == [step for own, step in wanted(longer) if own == kind]
    points = {point.step: point for point in new_points(longer, {}) if point.kind == "windows"}
    for one in found.Scalars("windows/normalized_entropy"):
        assert one.value == pytest.approx(points[one.step].values["windows/normalized_entropy"], rel=1e-6)
        assert one.wall_time == points[one.step].at_secs
