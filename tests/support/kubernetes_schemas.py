"""The schemas of Kubernetes, JobSet, Kueue and the Prometheus operator, against which rendered manifests are checked.

Kubernetes' own come with the package ``kubernetes-validate``. Those of the others are in ``tests/data/kubernetes``, taken from
the definitions of their custom resources without the descriptions. To renew them:

    go mod download -json sigs.k8s.io/jobset@VERSION sigs.k8s.io/kueue@VERSION \
      github.com/prometheus-operator/prometheus-operator@VERSION                    # prints the folders
    python -m tests.support.kubernetes_schemas JOBSET_FOLDER KUEUE_FOLDER OPERATOR_FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[1] / "data" / "kubernetes"
KUBERNETES = "1.34.0"
_KINDS = {
    "JobSet": "jobset.x-k8s.io_jobsets",
    "Workload": "kueue.x-k8s.io_workloads",
    "ClusterQueue": "kueue.x-k8s.io_clusterqueues",
    "LocalQueue": "kueue.x-k8s.io_localqueues",
    "ResourceFlavor": "kueue.x-k8s.io_resourceflavors",
    "WorkloadPriorityClass": "kueue.x-k8s.io_workloadpriorityclasses",
    "ServiceMonitor": "monitoring.coreos.com_servicemonitors",
}
#: Where a repository has the definitions of its custom resources.
_FOLDERS = ("config/components/crd/bases", "example/prometheus-operator-crd")


def check_object(document: Mapping[str, Any]) -> None:
    """Fail unless the object is one of its kind, without members that the schema does not know."""
    kind = document["kind"]
    if kind not in _KINDS:
        return _check_core(document)
    jsonschema = pytest.importorskip("jsonschema")
    stored = _stored(kind)
    assert document["apiVersion"] == stored["apiVersion"]
    problems = [f"{'/'.join(map(str, one.path))}: {one.message}"
                for one in jsonschema.Draft202012Validator(stored["schema"]).iter_errors(document)]  # fmt: skip
    assert problems == []
    _check_core({"apiVersion": "v1", "kind": "ConfigMap", "metadata": document["metadata"]})
    if kind == "JobSet":
        for one in document["spec"]["replicatedJobs"]:
            _check_core({"apiVersion": "batch/v1", "kind": "Job", **one["template"]})


def _check_core(document: Mapping[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    validate.validate(document, KUBERNETES, strict=True)


@cache
def _stored(kind: str) -> Any:
    return json.loads((DATA / f"{kind}.json").read_text())


def schema_of(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The stored document of a definition of a custom resource: its version and its strict schema."""
    (version,) = (one for one in definition["spec"]["versions"] if one["storage"])
    return {
        "apiVersion": f"{definition['spec']['group']}/{version['name']}",
        "schema": _strict(version["schema"]["openAPIV3Schema"]),
    }


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON schema of a structural one, which refuses unknown members."""
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            found[key] = {name: _strict(one) for name, one in value.items()}
        elif key in ("items", "not") or (key == "additionalProperties" and isinstance(value, Mapping)):
            found[key] = _strict(value)
        elif key in ("anyOf", "oneOf", "allOf"):
            found[key] = [_strict(one) for one in value]
        elif key not in ("description", "default", "format", "example") and not key.startswith("x-kubernetes"):
            found[key] = value
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if "properties" in found and not is_open:
        found["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string"):
        found = {"type": ["integer", "string"]}
    return found


def _renew(folders: list[str]) -> None:
    import yaml

    DATA.mkdir(parents=True, exist_ok=True)
    for kind, name in _KINDS.items():
        (path,) = (
            one for folder in folders for below in _FOLDERS for one in Path(folder).rglob(f"{below}/{name}.yaml")
        )
        document = schema_of(yaml.safe_load(path.read_text()))
        (DATA / f"{kind}.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    _renew(sys.argv[1:])
