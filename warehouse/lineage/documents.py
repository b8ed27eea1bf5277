"""The JSON of OpenLineage's run events, version 2-0-2 of the specification. Pure: equal values give equal bytes."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

#: Names of runs are made of texts by UUID version 5, in this space.
_RUNS = uuid.UUID("6f0b3a0e-5d0d-5a6e-9b7e-2f6d1c3a4e58")
_SPEC = "https://openlineage.io/spec"
_RUN_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = {
    "columnLineage": "facets/1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet",
    "dataSource": "facets/1-0-1/DatasourceDatasetFacet.json#/$defs/DatasourceDatasetFacet",
    "documentation": "facets/1-1-0/DocumentationDatasetFacet.json#/$defs/DocumentationDatasetFacet",
    "errorMessage": "facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
    "jobType": "facets/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
    "lifecycleStateChange": "facets/1-0-1/LifecycleStateChangeDatasetFacet.json#/$defs/LifecycleStateChangeDatasetFacet",
    "outputStatistics": "facets/1-0-2/OutputStatisticsOutputDatasetFacet.json#/$defs/OutputStatisticsOutputDatasetFacet",
    "processing_engine": "facets/1-1-1/ProcessingEngineRunFacet.json#/$defs/ProcessingEngineRunFacet",
    "schema": "facets/1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
    "version": "facets/1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet",
}
_MOST_MESSAGE = 2_000


class EventKind(StrEnum):
    """The state of a run that an event reports."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    ABORT = "ABORT"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """A column of a dataset that another column is computed from."""

    namespace: str
    dataset: str
    column: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """An input or output of a run; facets that are empty are left out.

    Attributes:
        namespace, name: which one it is.
        columns: the type of each column.
        sources: of each column, those that it is computed from.
        version: of its data.
        description: what it is.
        change: how its schema or life changed, such as CREATE.
        rows, size_bytes: what the run wrote; None for inputs.
    """

    namespace: str
    name: str
    columns: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, Sequence[ColumnSource]] = field(default_factory=dict)
    version: str = ""
    description: str = ""
    change: str = ""
    rows: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a job, which has a START and one event of its end.

    Attributes:
        key: what the run is; equal keys give equal ids.
        namespace: of the job.
        job: its name.
        job_type: its kind, such as MEMOIZE.
        inputs, outputs: what it reads and writes.
        release: of Headrace.
    """

    key: Sequence[str]
    namespace: str
    job: str
    job_type: str
    inputs: Sequence[Dataset] = ()
    outputs: Sequence[Dataset] = ()
    release: str = ""

    @property
    def run_id(self) -> str:
        """A UUID, the same whenever and wherever it is made."""
        return str(uuid.uuid5(_RUNS, json.dumps([self.namespace, self.job, *self.key])))


@dataclass(frozen=True, slots=True)
class LineageEvent:
    """An event as it is sent.

    Attributes:
        key: 64 hexadecimal digits; equal for one event that is made twice.
        document: its JSON.
    """

    key: str
    document: str


def lineage_event(run: Run, kind: EventKind, at: float, *, error: str = "", part: str = "") -> LineageEvent:
    """An event of a run.

    Args:
        run: the run.
        kind: its state.
        at: seconds since the epoch.
        error: the message of a run that failed.
        part: tells events of one kind of the run apart.
    """
    producer = f"urn:headrace:{run.release}" if run.release else "urn:headrace"
    make = _Maker(producer)
    facets = {"processing_engine": make.facet("processing_engine", name="Headrace", version=run.release)}
    if error:
        facets["errorMessage"] = make.facet("errorMessage", message=error[:_MOST_MESSAGE], programmingLanguage="Python")
    is_batch = {"processingType": "BATCH", "integration": "HEADRACE", "jobType": run.job_type}
    document = {
        "eventType": kind.value,
        "eventTime": datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "run": {"runId": run.run_id, "facets": facets},
        "job": {"namespace": run.namespace, "name": run.job, "facets": {"jobType": make.facet("jobType", **is_batch)}},
        "inputs": [make.dataset(one) for one in run.inputs],
        "outputs": [make.output(one) for one in run.outputs],
        "producer": producer,
        "schemaURL": _RUN_EVENT,
    }
    key = hashlib.sha256(json.dumps([run.run_id, kind.value, part]).encode()).hexdigest()
    return LineageEvent(key, json.dumps(document, separators=(",", ":")))


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the parts of a document."""

    producer: str

    def facet(self, kind: str, /, **values: object) -> dict[str, Any]:
        return {"_producer": self.producer, "_schemaURL": f"{_SPEC}/{_FACETS[kind]}", **values}

    def dataset(self, one: Dataset) -> dict[str, Any]:
        """A dataset, without what a run wrote into it."""
        facets: dict[str, Any] = {}
        if "://" in one.namespace:
            facets["dataSource"] = self.facet("dataSource", name=one.namespace, uri=one.namespace)
        if one.columns:
            fields = [{"name": name, "type": kind} for name, kind in one.columns.items()]
            facets["schema"] = self.facet("schema", fields=fields)
        if one.sources:
            lineage = {name: {"inputFields": [*map(_input_field, found)]} for name, found in one.sources.items()}
            facets["columnLineage"] = self.facet("columnLineage", fields=lineage)
        if one.version:
            facets["version"] = self.facet("version", datasetVersion=one.version)
        if one.description:
            facets["documentation"] = self.facet("documentation", description=one.description)
        if one.change:
            facets["lifecycleStateChange"] = self.facet("lifecycleStateChange", lifecycleStateChange=one.change)
        return {"namespace": one.namespace, "name": one.name, "facets": facets}

    def output(self, one: Dataset) -> dict[str, Any]:
        """A dataset, with what a run wrote into it."""
        sizes = {"rowCount": one.rows, "size": one.size_bytes}
        written = {name: value for name, value in sizes.items() if value is not None}
        found = {"outputStatistics": self.facet("outputStatistics", **written)} if written else {}
        return {**self.dataset(one), "outputFacets": found}


def _input_field(source: ColumnSource) -> dict[str, Any]:
    how = {"type": "DIRECT", "subtype": "TRANSFORMATION", "description": "", "masking": False}
    return {"namespace": source.namespace, "name": source.dataset, "field": source.column, "transformations": [how]}
