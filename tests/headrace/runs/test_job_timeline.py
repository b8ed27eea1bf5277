"""The states of a job over time, and their drawing."""

from __future__ import annotations

import random
import xml.etree.ElementTree as ElementTree
from itertools import groupby, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.runs import job_timeline
from headrace.runs.job_timeline import StateSpan, read_timeline, timeline_of
from headrace.screens.timeline_drawing import timeline_svg
from tests.support.examples import scaled
from tests.trainer.job.launch.held_jobs import REASON, hold, make_run
from tests.trainer.scheduling.random_events import RandomEvents, random_settings
from trainer.errors import IllegalEvent
from trainer.job.control.event_log import Entry
from trainer.scheduling.advance import advance
from trainer.scheduling.job import Job
from trainer.scheduling.transitions import JobState
from transforms.errors import NotFound

SVG = "{http://www.w3.org/2000/svg}"


def random_log(seed: int, events: int) -> tuple[Job, list[Entry], list[Job]]:
    """A job, the entries of its log, and the job after each."""
    draw = random.Random(seed)
    first = job = Job(random_settings(draw))
    source = RandomEvents(draw)
    entries, after = list[Entry](), list[Job]()
    while len(entries) < events:
        event = source.next(job)
        entry = Entry(event, job.clock_secs, job.now_secs)
        try:
            job, _ = advance(job, event)
        except IllegalEvent:
            continue
        entries.append(entry)
        after.append(job)
    return first, entries, after


@given(st.integers(0, 1 << 32), st.integers(0, 80))
@settings(max_examples=scaled(40))
def test_spans_follow_each_other_through_the_states_of_the_job(seed: int, events: int) -> None:
    first, entries, after = random_log(seed, events)
    found = timeline_of(first, entries, 7.0)
    last = after[-1] if after else first
    assert found.spans[0].begin_secs == 0
    assert all(one.end_secs == other.begin_secs for one, other in pairwise(found.spans))
    assert found.spans[-1].end_secs == last.now_secs - first.now_secs
    moments = [(one.state, one.attempt) for one in (first, *after)]
    assert [(one.state, one.attempt) for one in found.spans] == [key for key, _ in groupby(moments)]
    assert (found.attempt, found.epochs, found.restarts) == (last.attempt, last.commit.epochs, last.restarts)
    assert all(one.reason for one in found.spans if one.state is JobState.HELD)
    root = ElementTree.fromstring(timeline_svg(found.spans))
    bars = [one for one in root.findall(f"{SVG}rect") if one.get("class") != "ground"]
    assert len(bars) == len(found.spans)
    assert all(0 <= float(one.get("x") or -1) <= float(root.get("width") or 0) for one in bars)


def test_the_newest_spans_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first, entries, _ = random_log(3, 300)
    whole = timeline_of(first, entries, 7.0).spans
    monkeypatch.setattr(job_timeline, "MOST_SPANS", 5)
    assert timeline_of(first, entries, 7.0).spans == whole[-5:]
    assert len(whole) > 5


def test_a_row_for_each_state_and_a_bar_that_can_be_seen_for_each_span() -> None:
    spans = (StateSpan(JobState.STARTING, 0.0, 60.0, 0), StateSpan(JobState.TRAINING, 60.0, 7200.0, 1), StateSpan(JobState.HELD, 7200.0, 7200.0, 1))  # fmt: skip
    root = ElementTree.fromstring(timeline_svg(spans))
    texts = [one.text for one in root.findall(f"{SVG}text")]
    assert [one for one in texts if one in JobState.__members__] == ["STARTING", "TRAINING", "HELD"]
    assert texts[-1] == "hours"
    bars = [one for one in root.findall(f"{SVG}rect") if one.get("class") != "ground"]
    assert [one.get("class") for one in bars] == ["waits", "trains", "fails"]
    assert min(float(one.get("width") or 0) for one in bars) >= 2
    ElementTree.fromstring(timeline_svg(()))


def test_the_log_of_a_run_is_read(tmp_path) -> None:
    found = read_timeline(hold(tmp_path / "held"))
    assert found is not None
    assert [one.state for one in found.spans] == [JobState.STARTING, JobState.HELD]
    assert (found.spans[-1].event, found.spans[-1].reason) == ("plan failed", REASON)
    assert read_timeline(make_run(tmp_path / "new")) is None
    from trainer.job.control.job_files import JobFiles

    with pytest.raises(NotFound):
        read_timeline(JobFiles(tmp_path))
