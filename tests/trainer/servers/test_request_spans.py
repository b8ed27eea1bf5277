"""Requests over real sockets: those that are kept have a span at both ends, one inside the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.parameter_servers import engine_on_servers
from tests.trainer.tables.routes.servers.random_batches import FEATURES, train
from transforms.tracing import requests
from transforms.tracing.spans import Place, Span, Tracer, span, use_tracer

PARENT = Place("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Span]]:
    """The spans of this process, which is the engine and its servers; of requests every third one."""
    monkeypatch.setattr(requests, "ONE_OF", 3)
    found: list[Span] = []
    tracer = Tracer(found.append, within=PARENT)
    use_tracer(tracer)
    yield found
    use_tracer(None)
    assert {one.parent for one in found if one.name == "request"} <= {
        tracer.own.span,
        *(one.place.span for one in found if one.name == "step"),
    }


def test_each_kept_request_has_its_answer_inside_it(recorded):
    engine = engine_on_servers(FEATURES, seed=1, servers=2)
    with span("step"):
        train(engine, range(10))
        engine.close()
    asked = {one.place.span: one for one in recorded if one.name == "request"}
    answers = {one.parent: one for one in recorded if one.name == "answer"}
    assert {"fetch", "update"} <= {one.attributes["kind"] for one in asked.values()}
    assert asked.keys() <= answers.keys()
    for name, one in asked.items():
        answer = answers[name]
        assert answer.attributes == one.attributes
        assert one.place.trace == answer.place.trace == PARENT.trace
        assert one.began_ns <= answer.began_ns
        assert answer.began_ns <= one.ended_ns
