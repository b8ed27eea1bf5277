from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count

import pytest

from transforms.errors import InputError
from transforms.tracing.spans import Place, Span, Tracer, span, use_tracer

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def recorded() -> Iterator[list[Span]]:
    """The spans of a process whose trace began elsewhere."""
    found: list[Span] = []
    clock, draws = count(), count(1)
    use_tracer(Tracer(found.append, within=Place.parse(PARENT), clock_ns=lambda: next(clock), draw=lambda size: f"{next(draws):0{2 * size}x}"))  # fmt: skip
    yield found
    use_tracer(None)


def test_spans_are_inside_those_around_them(recorded):
    with span("job", tasks=3), span("commit"):
        pass
    commit, job = recorded
    assert (job.name, job.attributes, job.parent) == ("job", {"tasks": 3}, f"{1:016x}")
    assert (commit.parent, commit.place.trace) == (job.place.span, "0af7651916cd43dd8448eb211c80319c")
    assert job.began_ns < commit.began_ns < commit.ended_ns < job.ended_ns


def test_a_span_of_another_thread_is_of_the_process(recorded):
    def work() -> None:
        with span("fragment"):
            pass

    with span("job"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [one.parent for one in recorded] == [f"{1:016x}"] * 2


def test_an_error_ends_a_span_and_stays_one(recorded):
    with pytest.raises(KeyError), span("lease"):
        raise KeyError
    assert [one.error for one in recorded] == ["KeyError"]


def test_the_own_span_is_inside_that_of_the_process_before():
    found: list[Span] = []
    tracer = Tracer(found.append, within=Place.parse(PARENT))
    tracer.end("headrace work", {})
    assert (found[0].parent, found[0].place) == ("b7ad6b7169203331", tracer.own)
    assert Place.parse(str(tracer.own)) == tracer.own
    Tracer(found.append).end("headrace work", {})
    assert found[1].parent == ""


def test_without_a_tracer_nothing_is_recorded():
    assert span("lease") is span("commit")
    with span("lease"):
        pass


@pytest.mark.parametrize("text", ["", "00-1-2-01", PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), PARENT.upper(), f"{PARENT}\n"])  # fmt: skip
def test_another_text_is_no_parent(text):
    with pytest.raises(InputError, match="traceparent"):
        Place.parse(text)
