"""Values of any kind, rendered by Helm: objects that follow the schemas, with texts as they were given."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.deployment.install import PROGRAMS, is_ready
from tests.support.helm_chart import CHART, NAMESPACE
from tests.support.kubernetes_schemas import KUBERNETES, check_object

pytestmark = pytest.mark.deployment

#: Texts that YAML and templates read in another way when they are not quoted.
HOSTILE = st.one_of(
    st.sampled_from(
        [
            "yes",
            "null",
            "~",
            "0x10",
            "1e3",
            "-",
            "a: b",
            "a #b",
            "'",
            '"',
            "{{ .Values }}",
            "*a",
            "&a",
            "!b",
            "|",
            "%",
            "@",
            "`",
            "\\",
            "\t",
            "a\nb",
            " x ",
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=20),
)
NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
ACCESS = st.sampled_from([{"tokenSecret": "token"}, {"proxy": {"image": "proxy:1", "arguments": ["--a"]}}])
VALUES = st.fixed_dictionaries(
    {
        "images": st.fixed_dictionaries(
            {"repository": st.just("registry.example.com/ads"), "pullSecrets": st.lists(NAMES, max_size=2)}
        ),
        "home": st.sampled_from(
            [{"location": "gs://b/home"}, {"location": "/var/lib/headrace/home", "claim": "warehouse"}]
        ),
        "catalog": st.sampled_from([{"existingSecret": "headrace"}, {"url": "postgresql://u:p'\"#@h/db?a=b"}]),
        "settings": st.dictionaries(st.from_regex(r"HEADRACE_[A-Z]{1,8}_X", fullmatch=True), HOSTILE, max_size=3),
        "serviceAccount": st.fixed_dictionaries(
            {"create": st.booleans(), "annotations": st.dictionaries(NAMES, HOSTILE, max_size=2)}
        ),
        "worker": st.fixed_dictionaries(
            {
                "enabled": st.booleans(),
                "replicas": st.integers(0, 100),
                "arguments": st.lists(HOSTILE, max_size=3),
                "autoscaling": st.fixed_dictionaries(
                    {"enabled": st.booleans(), "selector": st.dictionaries(NAMES, NAMES, max_size=2)}
                ),
                "disruptionBudget": st.sampled_from([{"maxUnavailable": 1}, {"maxUnavailable": "25%"}]),
                "tolerations": st.sampled_from([[], [{"key": "spot", "operator": "Exists"}]]),
            }
        ),
        "page": st.builds(
            lambda access, rest: access | rest,
            ACCESS,
            st.fixed_dictionaries(
                {
                    "enabled": st.booleans(),
                    "allowChanges": st.booleans(),
                    "allowedHosts": st.lists(HOSTILE, max_size=2),
                }
            ),
        ),
        "maintenance": st.fixed_dictionaries({"enabled": st.booleans()}),
        "serviceMonitor": st.fixed_dictionaries({"enabled": st.booleans()}),
        "networkPolicy": st.fixed_dictionaries({"enabled": st.booleans()}),
    }
)


def rendered(release: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects that Helm makes of values."""
    words = ("template", release, str(CHART), "--namespace", NAMESPACE, "--kube-version", KUBERNETES, "--values", "-")
    done = subprocess.run(
        [str(PROGRAMS / "helm"), *words], input=json.dumps(values, ensure_ascii=False), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one is not None]


@settings(max_examples=60)
@given(release=NAMES, values=VALUES)
def test_values_that_are_accepted_make_sound_objects(release: str, values: dict[str, Any]) -> None:
    if not is_ready():
        pytest.skip("no programs of deployments here: make test-deployment")
    objects = rendered(release, values)
    for one in objects:
        check_object(one)
    found = {one["kind"]: one for one in objects}
    if values["settings"]:
        assert found["ConfigMap"]["data"] == values["settings"]
    if values["serviceAccount"]["create"]:
        assert found["ServiceAccount"]["metadata"].get("annotations", {}) == values["serviceAccount"]["annotations"]
    for one in objects:
        if one["kind"] == "Deployment":
            first = one["spec"]["template"]["spec"]["containers"][0]
            if first["name"] == "worker":
                arguments = values["worker"]["arguments"]
                assert first["args"][len(first["args"]) - len(arguments) :] == arguments
            else:
                named = [
                    after
                    for word, after in zip(first["args"], first["args"][1:], strict=False)
                    if word == "--allowed-host"
                ]
                assert named[: len(values["page"]["allowedHosts"])] == values["page"]["allowedHosts"]
