from __future__ import annotations

import json
import random
from typing import TypeVar

import pytest

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.trainer.scheduling.random_events import RandomEvents, random_settings
from trainer.errors import TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.scheduling.advance import advance
from trainer.scheduling.documents import read_value, value_document
from trainer.scheduling.events import EVENT_TYPES, DataChanged, DataRange, Event, Published, StopAsked
from trainer.scheduling.job import Job

T = TypeVar("T")


def history(seed: int, events: int = 150) -> tuple[list[Event], list[Job]]:
    draw = random.Random(seed)
    job, source, log, jobs = Job(random_settings(draw)), RandomEvents(draw), list[Event](), list[Job]()
    for _ in range(events):
        log.append(source.next(job))
        job, _ = advance(job, log[-1])
        jobs.append(job)
    return log, jobs


def again(value: T, kind: type[T]) -> T:
    return read_value(kind, DocumentField(json.loads(json.dumps(value_document(value), allow_nan=False)), "log"))


def test_events_and_jobs_are_read_as_they_were_written() -> None:
    kinds = set()
    for seed in range(scaled(30)):
        log, jobs = history(seed)
        kinds |= {event.kind for event in log}
        assert [again(event, Event) for event in log] == log
        for job in jobs[::10]:
            read = again(job, Job)
            assert read == job
            assert hash(read.settings) == hash(job.settings)
    assert len(kinds) == len(EVENT_TYPES) - 4, "all but the derived ones"


def test_a_log_may_begin_with_a_job() -> None:
    """The replay from a stored job, of stored events, gives the job."""
    for seed in range(scaled(10)):
        log, jobs = history(seed)
        job = again(jobs[70], Job)
        for event in log[71:]:
            job, _ = advance(job, again(event, Event))
        assert job == jobs[-1]


@pytest.mark.parametrize(
    "document",
    [
        None,
        {},
        {"kind": "nothing"},
        {"kind": 3},
        {"kind": "published", "at_secs": 1.0},
        {"kind": "published", "at_secs": 1.0, "attempt": 1, "more": 2},
        {"kind": "published", "at_secs": "1", "attempt": 1},
        {"kind": "published", "at_secs": float("nan"), "attempt": 1},
        {"kind": "published", "at_secs": 1.0, "attempt": -1},
        {"kind": "published", "at_secs": 1.0, "attempt": True},
        {"kind": "stop asked", "at_secs": 1.0, "now": 1},
        {"kind": "heartbeat", "at_secs": 1.0, "incarnation": 1, "role": {"kind": "cook", "name": "x"}},
        {"kind": "data changed", "at_secs": 1.0, "data": {"name": "p", "stop_unit": 5, "stops": [6]}},
    ],
)
def test_a_damaged_event_is_refused(document: object) -> None:
    with pytest.raises(TornCheckpoint):
        read_value(Event, DocumentField(document, "log"))


def test_mutated_documents_are_refused_or_read() -> None:
    draw = random.Random(5)
    log, jobs = history(3)
    texts: list[tuple[bytes, type]] = [(json.dumps(value_document(one)).encode(), Event) for one in log[:60]]
    texts += [(json.dumps(value_document(jobs[-1])).encode(), Job)] * 20
    refused = 0
    for _ in range(scaled(4000)):
        text, kind = draw.choice(texts)
        try:
            document = json.loads(mutated(text, draw, tokens=[b"null", b"-1", b'"', b"[]", b"{}", b"1e999"]))
        except ValueError:
            continue
        try:
            read_value(kind, DocumentField(document, "log"))
        except TornCheckpoint:
            refused += 1
    assert refused


def test_documents_are_plain() -> None:
    assert value_document(Published(2.5, 7)) == {"kind": "published", "at_secs": 2.5, "attempt": 7}
    assert value_document(StopAsked(1.0)) == {"kind": "stop asked", "at_secs": 1.0, "now": False}
    data = DataChanged(0.0, DataRange("p", 5, (2, 5)))
    assert value_document(data)["data"] == {"name": "p", "stop_unit": 5, "stops": [2, 5], "is_last": True}
