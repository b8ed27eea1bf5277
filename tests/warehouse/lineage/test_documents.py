from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lineage_rules import checked_event
from warehouse.lineage.documents import ColumnSource, Dataset, EventKind, Run, lineage_event
from warehouse.lineage.names import namespace_of, source_dataset

NAMES = st.text(min_size=1, max_size=20)
COLUMNS = st.dictionaries(NAMES, NAMES, max_size=3)
SOURCES = st.dictionaries(NAMES, st.lists(st.builds(ColumnSource, NAMES, NAMES, NAMES), min_size=1, max_size=2), max_size=2)  # fmt: skip
DATASETS = st.builds(
    Dataset,
    st.sampled_from(["file:///home", "gs://bucket/home", "file"]),
    NAMES,
    COLUMNS,
    SOURCES,
    st.sampled_from(["", "3"]),
    st.text(max_size=30),
    st.sampled_from(["", "CREATE", "DROP"]),
)
RUNS = st.builds(
    Run,
    st.lists(NAMES, min_size=1, max_size=3),
    st.just("file:///home"),
    NAMES,
    st.sampled_from(["MEMOIZE", "IMPORT", "TRAIN"]),
    st.lists(DATASETS, max_size=2),
    st.lists(DATASETS, max_size=2),
    st.sampled_from(["", "0.1.0"]),
)
TIMES = st.floats(0, 4e9)


@given(RUNS, st.sampled_from(EventKind), TIMES, st.text(max_size=20))
def test_any_event_follows_the_specification_and_has_the_same_bytes_again(run, kind, at, error):
    event = lineage_event(run, kind, at, error=error)
    document = checked_event(event.document)
    assert event == lineage_event(run, kind, at, error=error)
    assert (document["run"]["runId"], document["eventType"]) == (run.run_id, kind)
    assert re.fullmatch("[0-9a-f]{64}", event.key)
    assert event.document.isascii(), "any text can be stored and sent"


@given(RUNS, RUNS)
def test_a_run_is_known_by_its_job_and_its_key_alone(one, other):
    same = (list(one.key), one.job) == (list(other.key), other.job)
    assert (one.run_id == other.run_id) == same
    kinds = [lineage_event(one, kind, 0.0).key for kind in EventKind]
    assert len(set(kinds)) == len(kinds)
    assert lineage_event(one, EventKind.RUNNING, 0.0, part="a").key != lineage_event(one, EventKind.RUNNING, 9.0, part="b").key  # fmt: skip


def test_what_a_run_wrote_is_in_its_outputs_alone():
    wrote = Dataset("file:///home", "log", rows=7, size_bytes=56)
    document = json.loads(lineage_event(Run(["a"], "n", "job", "IMPORT", (wrote,), (wrote,)), EventKind.COMPLETE, 0.0).document)  # fmt: skip
    statistics = document["outputs"][0]["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (7, 56)
    assert "outputFacets" not in document["inputs"][0]
    assert document["eventTime"] == "1970-01-01T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("/data/log", [("file", "/data/log")]),
        ("file:///data/log", [("file", "/data/log")]),
        ("gs://anonymous@bucket/log?scheme=http", [("gs://bucket", "log")]),
        ("s3://bucket", [("s3://bucket", "/")]),
        ("kafka://broker:9092/clicks", [("kafka://broker:9092", "clicks")]),
        ("", []),
        ("rows of a frame", []),
    ],
)
def test_sources_are_named_as_openlineage_names_them(source, named):
    assert [(one.namespace, one.name) for one in source_dataset(source)] == named


def test_the_namespace_is_the_home():
    assert namespace_of("/data/home") == "file:///data/home"
    assert namespace_of("/data/my home") == "file:///data/my%20home"
    assert namespace_of("gs://bucket/home") == "gs://bucket/home"
