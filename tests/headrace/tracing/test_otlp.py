from __future__ import annotations

import json
import re
import subprocess

import pytest

from headrace.cli.main import run
from headrace.tracing.otlp import SpanExporter, traces_document, traces_url
from headrace.tracing.process_traces import OTLP_VARIABLE, PARENT_VARIABLE, begin_tracing, end_tracing
from tests.headrace.conftest import UNTRIED
from tests.support.collector import collecting
from transforms.child_process import child_environment, module_command
from transforms.errors import InputError
from transforms.tracing.spans import Place, Span, span

PLACE = Place("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
SPAN = Span(PLACE, "", "lease", 1, 2**62, {"tasks": 3, "share": 0.5, "partition": "hour=01"}, "Busy")


def test_a_document_is_that_of_otlp():
    (resource,) = traces_document([SPAN], {"service.name": "headrace"})["resourceSpans"]
    assert resource["resource"] == {"attributes": [{"key": "service.name", "value": {"stringValue": "headrace"}}]}
    (found,) = resource["scopeSpans"][0]["spans"]
    assert (found["traceId"], found["spanId"], "parentSpanId" in found) == (PLACE.trace, PLACE.span, False)
    assert (found["startTimeUnixNano"], found["endTimeUnixNano"]) == ("1", str(2**62)), "64 bits are texts"
    values = {one["key"]: one["value"] for one in found["attributes"]}
    assert values == {
        "tasks": {"intValue": "3"},
        "share": {"doubleValue": 0.5},
        "partition": {"stringValue": "hour=01"},
    }
    assert found["status"] == {"code": 2, "message": "Busy"}


@pytest.mark.parametrize(
    ("text", "url"),
    [("http://c:4318", "http://c:4318/v1/traces"), ("https://c/otlp/", "https://c/otlp/v1/traces"), ("http://c/v1/traces", "http://c/v1/traces")],
)  # fmt: skip
def test_the_url_of_a_collector_gets_its_path(text, url):
    assert traces_url(text) == url


@pytest.mark.parametrize("text", ["collector:4318", "ftp://c", "http://", "file:///etc/passwd"])
def test_another_text_is_no_collector(text, capsys):
    with pytest.raises(InputError, match="--otlp"):
        traces_url(text)
    assert run(["--otlp", text, "status"]) == 2
    assert "--otlp" in capsys.readouterr().err


def test_spans_are_sent_and_those_that_are_not_taken_are_counted():
    with collecting() as collector:
        exporter = SpanExporter(traces_url(collector.url), lambda: {})
        for _ in range(1200):
            exporter.record(SPAN)
        exporter.close()
        assert (len(collector.spans), len(collector.documents), exporter.dropped) == (1200, 3, 0)
    with collecting(status=503) as collector:
        exporter = SpanExporter(traces_url(collector.url), lambda: {})
        exporter.record(SPAN)
        exporter.close()
        assert exporter.dropped == 1
    exporter = SpanExporter(traces_url(collector.url), lambda: {})  # it does not listen any more
    exporter.record(SPAN)
    exporter.close()
    assert exporter.dropped == 1


def test_a_process_goes_on_with_the_trace_of_its_parent():
    with collecting() as collector:
        environment = {PARENT_VARIABLE: str(PLACE)}
        begin_tracing(collector.url, environment)
        with span("submit", model="ctr"):
            pass
        end_tracing()
        end_tracing()
    submit, own = collector.spans
    assert submit["parentSpanId"] == own["spanId"] == Place.parse(environment[PARENT_VARIABLE]).span
    assert (own["traceId"], own["parentSpanId"]) == (PLACE.trace, PLACE.span)
    assert environment[OTLP_VARIABLE] == collector.url


@pytest.mark.slow
def test_a_worker_and_a_training_job_send_what_they_do(submitted, tmp_path):
    settings = tmp_path / "training.json"
    settings.write_text(json.dumps({"batch_rows": 64, **UNTRIED}), encoding="utf-8")
    with collecting() as collector:

        def command(*arguments: object) -> set[str]:
            before = len(collector.spans)
            words = [*map(str, arguments), "--home", str(tmp_path / "home")]
            done = subprocess.run(module_command("headrace", "--otlp", collector.url, *words), env=child_environment(), capture_output=True, text=True, check=False)  # fmt: skip
            assert done.returncode == 0, done.stderr
            found = collector.spans[before:]
            assert len({one["traceId"] for one in found}) == 1, "one trace of all processes"
            known = {one["spanId"] for one in found}
            assert [one["name"] for one in found if one.get("parentSpanId") not in known] == [f"headrace {words[0].replace('work', 'worker')}"]  # fmt: skip
            assert all(re.fullmatch("[0-9a-f]{16}", one["spanId"]) for one in found)
            return {str(one["name"]) for one in found}

        assert command("work", "--until-idle") == {"headrace worker", "lease", "job", "fragment", "commit"}
        names = command("train", "first", "--config", settings, "--end", "2026-03-02T02:00")
        assert names == {"headrace train", "epoch", "step", "commit"}
        names = command("train", "second", "--config", settings, "--hosts", 1, "--readers", 1)
        roles = {"headrace controller", "headrace reader", "headrace host"}
        assert names == {"headrace train", *roles, "attempt", "step", "commit", "unit", "publish"}
