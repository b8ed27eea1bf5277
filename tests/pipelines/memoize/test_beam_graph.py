"""Beam graphs: names, coders and types are a contract, and construction has no side effect."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability import common_urns
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.ingest.job import ImportJob
from pipelines.memoize.pipeline import build
from pipelines.runners.elements import CreateStrings, Redistribute
from pipelines.runners.runner import RunnerOptions, counters, pipeline_options, run_pipeline
from tests.pipelines.logs import log_schema
from tests.pipelines.scenes import REPOSITORY
from tests.support.examples import scaled

Build = Callable[[beam.Pipeline], None]


def memoize_on_workers(pipeline: beam.Pipeline) -> None:
    build(pipeline, [], "/no/such/home", "job")


def memoize_in_threads(pipeline: beam.Pipeline) -> None:
    build(pipeline, [], "/no/such/home", "job", threads=3)


def import_logs(pipeline: beam.Pipeline) -> None:
    ImportJob(log_schema(), "time", Path("/no/such/staging"), Path("/no/such/output"), "id").build(pipeline, ["{}"])


REDISTRIBUTE = ["Redistribute", "Redistribute/KeyByDigest", "Redistribute/GroupByKey", "Redistribute/DropKeys"]
STEP_NAMES = {
    memoize_on_workers: ["Fragments", "Fragments/Impulse", "Fragments/Emit", *REDISTRIBUTE, "MemoizeFragments"],
    memoize_in_threads: ["Fragments", "Fragments/Impulse", "Fragments/Emit", "MemoizeFragments"],
    import_logs: [
        "Files",
        "Files/Impulse",
        "Files/Emit",
        *REDISTRIBUTE,
        "ParseLogs",
        "GroupByPartition",
        "WritePartitions",
    ],
}
#: By the step that gives them. Any language's SDK has these coders, and each gives equal elements equal bytes.
CODERS = {
    "Fragments/Impulse": "bytes", "Fragments/Emit": "string_utf8", "Files/Impulse": "bytes", "Files/Emit": "string_utf8",
    "Redistribute/KeyByDigest": "kv<string_utf8, string_utf8>", "Redistribute/GroupByKey": "kv<string_utf8, iterable<string_utf8>>",
    "Redistribute/DropKeys": "string_utf8", "MemoizeFragments": "string_utf8", "ParseLogs": "kv<string_utf8, string_utf8>",
    "GroupByPartition": "kv<string_utf8, iterable<string_utf8>>", "WritePartitions": "string_utf8",
}  # fmt: skip

every_graph = pytest.mark.parametrize("graph", list(STEP_NAMES), ids=lambda graph: graph.__name__)


def as_given_to_a_runner(graph: Build) -> tuple[Any, Any]:
    pipeline = beam.Pipeline(options=pipeline_options(RunnerOptions()))
    graph(pipeline)
    proto, context = pipeline.to_runner_api(return_context=True)
    return proto.components, context


@every_graph
def test_the_name_of_every_step_is_a_contract(graph: Build) -> None:
    components, _ = as_given_to_a_runner(graph)
    names = {step.unique_name for step in components.transforms.values()} - {""}
    assert {name for name in names if not name.startswith("ref_AppliedPTransform")} == set(STEP_NAMES[graph])


@every_graph
def test_every_collection_has_a_deterministic_coder_without_pickle(graph: Build) -> None:
    components, context = as_given_to_a_runner(graph)

    def text(coder: str) -> str:
        found = components.coders[coder]
        inner = ", ".join(text(part) for part in found.component_coder_ids)
        name = found.spec.urn.removeprefix("beam:coder:").removesuffix(":v1")
        return f"{name}<{inner}>" if inner else name

    collections = {found.unique_name.split(".")[0]: found for found in components.pcollections.values()}
    by_step = {name.lstrip("0123456789"): text(found.coder_id) for name, found in collections.items()}
    assert by_step == {name: CODERS[name] for name in STEP_NAMES[graph] if name in CODERS}
    assert all(context.coders.get_by_id(found.coder_id).is_deterministic() for found in collections.values())
    assert not [found.spec.urn for found in components.coders.values() if "pickled" in found.spec.urn]


@every_graph
def test_every_step_says_what_it_takes_and_gives(graph: Build) -> None:
    pipeline = beam.Pipeline(options=pipeline_options(RunnerOptions()))
    graph(pipeline)
    untyped: list[str] = []

    class Visit(beam.pipeline.PipelineVisitor):
        def visit_transform(self, step: Any) -> None:
            for collection in step.outputs.values():
                if collection.element_type in (None, Any, beam.typehints.Any):
                    untyped.append(step.full_label)

    pipeline.visit(Visit())
    assert untyped == []


def test_runners_may_deal_out_elements_by_themselves() -> None:
    components, _ = as_given_to_a_runner(memoize_on_workers)
    urns = {step.unique_name: step.spec.urn for step in components.transforms.values()}
    assert urns["Redistribute"] == common_urns.composites.RESHUFFLE.urn


@pytest.mark.medium
@settings(max_examples=scaled(15))
@given(st.lists(st.text(max_size=5), max_size=8))
def test_spreading_loses_and_doubles_nothing(texts: list[str]) -> None:
    passed: list[str] = []
    _Kept.kept = passed
    run_pipeline(lambda pipeline: _flow(pipeline, texts), RunnerOptions(), one_step=True)
    assert sorted(passed) == sorted(texts)


class _Kept(beam.DoFn):
    kept: list[str]

    def process(self, element: str) -> None:
        self.kept.append(element)


def _flow(pipeline: beam.Pipeline, texts: list[str]) -> None:
    _ = (
        pipeline
        | "CreateStrings" >> CreateStrings(texts)
        | "Redistribute" >> Redistribute()
        | "Keep" >> beam.ParDo(_Kept())
    )


BUILDER = """
import sys
import apache_beam as beam
from pipelines.runners.runner import RunnerOptions, pipeline_options
from tests.pipelines.memoize import test_beam_graph
from tests.pipelines.memoize.test_beam_graph import STEP_NAMES

options = RunnerOptions("FlinkRunner", flags=("--flink_master=nowhere.invalid:1", "--environment_type=LOOPBACK"))

def pipelines():  # Beam makes a folder of its own for each
    return [(graph, beam.Pipeline(options=pipeline_options(options))) for graph in STEP_NAMES]

def build_all(pipelines):
    for graph, pipeline in pipelines:
        graph(pipeline)
        pipeline.to_runner_api()

build_all(pipelines())  # what is imported late is imported now
watched, touched, watching = pipelines(), [], True
def watch(event, arguments):
    if watching and event.partition(".")[0] in ("open", "socket", "os", "shutil", "subprocess", "sqlite3", "tempfile"):
        touched.append((event, arguments))
sys.addaudithook(watch)
build_all(watched)
seen = list(touched)
open("/dev/null").close()
watching = False
assert touched != seen, "the watch sees nothing"
touched = seen
print(touched)
"""


@pytest.mark.medium
def test_nothing_is_read_or_written_while_a_graph_is_built() -> None:
    done = subprocess.run([sys.executable, "-c", BUILDER], cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_counters_of_other_namespaces_are_not_ours() -> None:
    result = run_pipeline(lambda pipeline: _flow_counted(pipeline, 5), RunnerOptions(), one_step=True)
    assert counters(result, "headrace.test") == {"seen": 5}
    assert counters(result, "nobody") == {}


class _Counted(beam.DoFn):
    def process(self, element: str) -> None:
        beam.metrics.Metrics.counter("headrace.test", "seen").inc()


def _flow_counted(pipeline: beam.Pipeline, count: int) -> None:
    _ = pipeline | "CreateStrings" >> CreateStrings([str(n) for n in range(count)]) | "Count" >> beam.ParDo(_Counted())
