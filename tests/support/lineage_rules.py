"""Rules of OpenLineage 2-0-2 for the events and facets that Headrace makes, as a JSON schema written from the specification.

A facet that is not listed, or has another member, fails: receivers ignore what they do not know, so a misspelt one would be lost in silence.
"""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": [*required], "additionalProperties": False}  # fmt: skip


def _facet(name: str, version: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    place = f"https://openlineage.io/spec/facets/{version}/{name}.json#/$defs/{name}"
    return _object({"_producer": {"type": "string", "pattern": "^urn:headrace"}, "_schemaURL": {"const": place}, **required}, optional)  # fmt: skip


def _facets(**known: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": known, "additionalProperties": False}


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


_HOW = _object(
    {
        "type": {"enum": ["DIRECT", "INDIRECT"]},
        "subtype": {"enum": ["IDENTITY", "TRANSFORMATION", "AGGREGATION"]},
        "description": {"type": "string"},
        "masking": {"type": "boolean"},
    }
)
_INPUT_FIELD = _object({"namespace": _TEXT, "name": _TEXT, "field": _TEXT, "transformations": _list(_HOW)})
_LINEAGE = {"type": "object", "additionalProperties": _object({"inputFields": {**_list(_INPUT_FIELD), "minItems": 1}})}
_DATASET_FACETS = _facets(
    dataSource=_facet("DatasourceDatasetFacet", "1-0-1", {"name": _TEXT, "uri": {"type": "string", "format": "uri"}}),
    schema=_facet("SchemaDatasetFacet", "1-2-0", {"fields": _list(_object({"name": _TEXT, "type": _TEXT}))}),
    columnLineage=_facet("ColumnLineageDatasetFacet", "1-2-0", {"fields": _LINEAGE}),
    version=_facet("DatasetVersionDatasetFacet", "1-0-1", {"datasetVersion": _TEXT}),
    documentation=_facet("DocumentationDatasetFacet", "1-1-0", {"description": _TEXT}),
    lifecycleStateChange=_facet("LifecycleStateChangeDatasetFacet", "1-0-1", {"lifecycleStateChange": {"enum": ["ALTER", "CREATE", "DROP", "OVERWRITE"]}}),
)  # fmt: skip
_WRITTEN = _facets(
    outputStatistics=_facet("OutputStatisticsOutputDatasetFacet", "1-0-2", {"rowCount": _COUNT}, {"size": _COUNT})
)
_NAMED = {"namespace": _TEXT, "name": _TEXT, "facets": _DATASET_FACETS}
_RUN_FACETS = _facets(
    processing_engine=_facet("ProcessingEngineRunFacet", "1-1-1", {"name": _TEXT, "version": {"type": "string"}}),
    errorMessage=_facet("ErrorMessageRunFacet", "1-0-1", {"message": _TEXT, "programmingLanguage": {"const": "Python"}}),
)  # fmt: skip
_JOB_TYPE = _facet("JobTypeJobFacet", "2-0-4", {"processingType": {"const": "BATCH"}, "integration": {"const": "HEADRACE"}, "jobType": {"enum": ["MEMOIZE", "IMPORT", "TRAIN"]}})  # fmt: skip
_EVENT = _object(
    {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]},
        "eventTime": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"},
        "run": _object({"runId": {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}, "facets": _RUN_FACETS}),
        "job": _object({"namespace": _TEXT, "name": _TEXT, "facets": _facets(jobType=_JOB_TYPE)}),
        "inputs": _list(_object(_NAMED)),
        "outputs": _list(_object({**_NAMED, "outputFacets": _WRITTEN})),
        "producer": {"type": "string", "format": "uri", "pattern": "^urn:headrace"},
        "schemaURL": {"const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"},
    }
)  # fmt: skip
_RULES = Draft202012Validator(_EVENT, format_checker=FormatChecker())


def checked_event(text: str | bytes) -> dict[str, Any]:
    """An event that follows the rules. Raises :class:`jsonschema.ValidationError`."""
    document: dict[str, Any] = json.loads(text)
    _RULES.validate(document)
    return document
