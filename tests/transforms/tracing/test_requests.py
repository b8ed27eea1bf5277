from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transforms.tracing.requests import ONE_OF, answered_request, asked_request, is_kept, request_span
from transforms.tracing.spans import Place, Span, Tracer, span, use_tracer

PARENT = Place("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
NUMBERS = st.integers(0, 2**63 - 1)


@given(NUMBERS, st.integers(0, 2**40), st.integers(1, 6))
def test_one_in_so_many_is_kept_whatever_a_step_repeats(connection, first, period):
    kept = [number for number in range(first, first + period * ONE_OF) if is_kept(connection, number)]
    assert len(kept) == period
    assert {number % period for number in kept} == set(range(period)), "each of the requests of a step"


@given(NUMBERS, NUMBERS)
def test_the_span_of_a_request_is_one_of_opentelemetry(connection, number):
    name = request_span(connection, number)
    assert Place.parse(f"00-{PARENT.trace}-{name}-01").span == name
    assert request_span(connection, number ^ 1) != name


def traced(within: Place | None) -> list[Span]:
    """The spans of a request that is asked and answered by one process, inside a step."""
    found: list[Span] = []
    use_tracer(Tracer(found.append, within=within))
    try:
        with span("step"):
            asked = asked_request(ONE_OF, 0, "fetch")
            with answered_request(ONE_OF, 0, "fetch"), span("inner"):
                pass
            assert asked is not None
            asked.end()
            assert asked_request(ONE_OF, 1, "fetch") is None
            with answered_request(ONE_OF, 1, "fetch"):
                pass
    finally:
        use_tracer(None)
    return found


def test_an_answer_is_inside_its_request_and_that_inside_its_step():
    inner, answer, request, step = traced(PARENT)
    assert [one.name for one in (inner, answer, request, step)] == ["inner", "answer", "request", "step"]
    assert inner.parent == answer.place.span
    assert answer.parent == request.place.span == request_span(ONE_OF, 0)
    assert request.parent == step.place.span
    assert answer.attributes == request.attributes == {"kind": "fetch"}


def test_a_process_with_a_trace_of_its_own_has_answers_in_it():
    _, answer, request, step = traced(None)
    assert answer.parent == step.place.span != request.place.span


def test_without_a_collector_there_is_no_span():
    assert asked_request(ONE_OF, 0, "fetch") is None
    assert answered_request(ONE_OF, 0, "fetch") is answered_request(ONE_OF, 1, "fetch")
