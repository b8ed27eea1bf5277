"""The chart: what Helm has rendered of it, by the schemas of Kubernetes, by what its pods may do, and run as it says beside a real PostgreSQL."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from headrace.cli.main import run
from headrace.metrics.catalogue import exposed_names
from tests.headrace.launchers.test_container_files import FILES
from tests.headrace.launchers.test_deployments import WRITABLE, make_home
from tests.headrace.web.pages import Browser
from tests.headrace.web.ui_command import command
from tests.support.helm_chart import CASES, CHART, head, rendered_file, rendered_objects, values
from tests.support.kubernetes_schemas import check_object
from tests.support.processes import end, free_port, is_listening, start, wait_until
from transforms.child_process import module_command

OBJECTS = {case: rendered_objects(case) for case in CASES}
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
_FIELD = re.compile(r"(\*|[0-9]+)(-[0-9]+)?(/[0-9]+)?(,[0-9]+)*\Z")


def of_kind(case: str, kind: str) -> list[dict[str, Any]]:
    """The objects of a kind."""
    return [one for one in OBJECTS[case] if one["kind"] == kind]


def pods(case: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The templates of pods, with the names of the objects that have them."""
    for one in OBJECTS[case]:
        if one["kind"] == "Deployment":
            yield one["metadata"]["name"], one["spec"]["template"]
        elif one["kind"] == "CronJob":
            yield one["metadata"]["name"], one["spec"]["jobTemplate"]["spec"]["template"]


def containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    """All containers of a pod."""
    spec = template["spec"]
    return [*spec.get("initContainers", ()), *spec["containers"]]


@pytest.mark.parametrize("case", CASES)
def test_objects_were_rendered_of_this_chart(case: str) -> None:
    first = rendered_file(case).read_text(encoding="utf-8").partition("\n")[0]
    assert f"{first}\n" == head(), "the chart has changed: HEADRACE_WRITE_GOLDENS=1 make test-deployment"


@pytest.mark.parametrize("case", CASES)
def test_objects_follow_the_schemas(case: str) -> None:
    for one in OBJECTS[case]:
        check_object(one)
    names = [(one["kind"], one["metadata"]["name"]) for one in OBJECTS[case]]
    assert len(set(names)) == len(names)


def test_a_case_has_every_kind() -> None:
    kinds = {case: sorted({one["kind"] for one in OBJECTS[case]}) for case in CASES}
    assert kinds["workers"] == ["Deployment", "PodDisruptionBudget", "Service"]
    assert kinds["least"] == ["CronJob", "Deployment", "PodDisruptionBudget", "Service", "ServiceAccount"]
    assert kinds["all"] == sorted({*kinds["least"], "ConfigMap", "HorizontalPodAutoscaler", "NetworkPolicy", "Secret", "ServiceMonitor"})  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_pod_may_do_what_it_needs_alone(case: str) -> None:
    for name, template in pods(case):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        context = spec["securityContext"]
        assert (context["runAsNonRoot"], context["runAsUser"], context["seccompProfile"]) == (True, 1000, {"type": "RuntimeDefault"})  # fmt: skip
        volumes = {one["name"] for one in spec["volumes"]}
        for one in containers(template):
            assert one["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}  # fmt: skip
            assert {"requests", "limits"} <= set(one["resources"])
            assert {mount["name"] for mount in one.get("volumeMounts", ())} <= volumes, name
            for variable in one.get("env", ()):
                is_secret = any(word in variable["name"] for word in ("URL", "SECRET", "TOKEN", "PASSWORD"))
                assert ("secretKeyRef" in variable.get("valueFrom", {})) == is_secret, variable
            if one["name"] != "proxy":
                image = one["image"].rpartition("/")[2].partition(":")[0]
                assert image.removeprefix("headrace-") in FILES
                assert {mount["mountPath"] for mount in one["volumeMounts"]} - {"/run/secrets/headrace"} == set(
                    WRITABLE
                )


@pytest.mark.parametrize("case", CASES)
def test_objects_name_what_is_there(case: str) -> None:
    """Selectors choose pods of the release, a reference leads to an object of it or to one that the values name."""
    given = values(case)
    labels = [template["metadata"]["labels"] for _, template in pods(case)]
    here = {(one["kind"], one["metadata"]["name"]) for one in OBJECTS[case]}

    def chosen(selector: dict[str, str]) -> int:
        return sum(selector.items() <= one.items() for one in labels)

    for one in OBJECTS[case]:
        spec = one.get("spec", {})
        if one["kind"] in ("Deployment", "PodDisruptionBudget"):
            assert chosen(spec["selector"]["matchLabels"]) == 1
        elif one["kind"] == "Service":
            assert chosen(spec["selector"]) == 1
        elif one["kind"] == "NetworkPolicy":
            assert chosen(spec["podSelector"]["matchLabels"]) == 1
        elif one["kind"] == "ServiceMonitor":
            found = [two for two in of_kind(case, "Service") if spec["selector"]["matchLabels"].items() <= two["metadata"]["labels"].items()]  # fmt: skip
            assert [port["name"] for two in found for port in two["spec"]["ports"]] == [spec["endpoints"][0]["port"]]
        elif one["kind"] == "HorizontalPodAutoscaler":
            assert ("Deployment", spec["scaleTargetRef"]["name"]) in here
            (metric,) = spec["metrics"]
            assert metric["external"]["metric"]["name"] in exposed_names()
    secrets = {given["catalog"].get("existingSecret"), given.get("page", {}).get("tokenSecret"), "headrace-page-proxy"}
    for name, template in pods(case):
        spec = template["spec"]
        account = spec["serviceAccountName"]
        assert ("ServiceAccount", account) in here or account == "default"
        for volume in spec["volumes"]:
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] == given["home"]["claim"]
            if "secret" in volume:
                assert volume["secret"]["secretName"] in secrets
        for one in containers(template):
            for variable in one.get("env", ()):
                if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                    assert ("Secret", reference["name"]) in here or reference["name"] in secrets, name
            for source in one.get("envFrom", ()):
                assert ("ConfigMap", source["configMapRef"]["name"]) in here


def test_options_have_their_effect() -> None:
    (scaled,) = (one for one in of_kind("all", "Deployment") if one["metadata"]["name"].endswith("worker"))
    assert "replicas" not in scaled["spec"]
    arguments = scaled["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments == ["work", "--metrics-address", "0.0.0.0:9465", "--batch-bytes", "2GB"]
    (least,) = (one for one in of_kind("least", "Deployment") if one["metadata"]["name"].endswith("worker"))
    assert least["spec"]["replicas"] == 2
    (page,) = (one for one in of_kind("all", "Deployment") if one["metadata"]["name"].endswith("page"))
    first, proxy = page["spec"]["template"]["spec"]["containers"]
    assert ("ports" in first, "--host" in first["args"], "--token-file" in first["args"]) == (False, False, False)
    assert proxy["name"] == "proxy"
    (settings,) = of_kind("all", "ConfigMap")
    assert settings["data"] == {"HEADRACE_LEASE_SECS": "120", "HEADRACE_DEADLINE_SECS": "1800"}


@pytest.mark.parametrize("case", CASES)
def test_schedules_are_those_of_cron(case: str) -> None:
    for one in of_kind(case, "CronJob"):
        fields = one["spec"]["schedule"].split()
        assert (len(fields), all(map(_FIELD.match, fields))) == (5, True)
        assert one["spec"]["concurrencyPolicy"] == "Forbid"
    kinds = [one["arguments"][0] for one in values()["maintenance"]["jobs"]]
    assert kinds == ["gc", "compact", "verify"]


def _places(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, one in schema.get("properties", {}).items():
        yield (*path, name)
        yield from _places(one, (*path, name))


def _keys(found: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, one in found.items():
        yield (*path, name)
        if isinstance(one, dict):
            yield from _keys(one, (*path, name))


def test_the_schema_has_the_values() -> None:
    """Each value of the chart is in the schema, and the other way round; the values of the cases follow it."""
    open_ones = {"resources", "requests", "limits", "cpu", "memory"}
    keys = {path for path in _keys(values()) if not open_ones & set(path[1:])} | {("global",)}
    places = {path for path in _places(SCHEMA) if not open_ones & set(path[1:])}
    assert keys == places
    check = jsonschema.Draft7Validator(SCHEMA)

    def merged(base: Any, over: Any) -> Any:
        if isinstance(base, dict) and isinstance(over, dict):
            return {**base, **{name: merged(base.get(name), one) for name, one in over.items()}}
        return over

    for case in CASES:
        assert [one.message for one in check.iter_errors(merged(values(), values(case)))] == []
    assert not check.is_valid(values()), "repository, location and catalog must be given"
    wrong = copy.deepcopy(merged(values(), values("least")))
    wrong["worker"]["replica"] = 3
    assert not check.is_valid(wrong)


def arguments(case: str, name: str) -> list[str]:
    """The arguments of the container with this name."""
    found: list[str] = next(one["args"] for _, template in pods(case) for one in containers(template) if one["name"] == name)  # fmt: skip
    return found


@pytest.mark.slow
def test_the_containers_run_as_the_chart_says(
    new_database: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With PostgreSQL: the home is made twice, the worker answers its probes, the page its own, and maintenance ends with status 0."""
    url = new_database(migrated=False)
    monkeypatch.setenv("HEADRACE_CATALOG_URL", url)
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    for _ in range(2):
        assert run(arguments("least", "init")) == 0
    home = make_home(tmp_path, url)
    port = free_port()
    words = [one.replace("0.0.0.0:9464", f"127.0.0.1:{port}") for one in arguments("least", "worker")]
    worker = start(module_command("headrace", *words), tmp_path / "worker.txt")
    try:
        wait_until(lambda: is_listening(port), "the port of the probes is open", {"worker": worker})
    finally:
        end(worker)
    for name in ("gc", "compact", "verify"):
        assert run(arguments("least", name)) == 0, name
    token = tmp_path / "token"
    token.write_text("a token of this page")
    options = [one.replace("/run/secrets/headrace/token", str(token)).replace("0.0.0.0", "127.0.0.1") for one in arguments("least", "page")[1:]]  # fmt: skip
    (page,) = (template["spec"]["containers"][0] for name, template in pods("least") if name.endswith("page"))
    at = options.index("--port")
    with command(home, tmp_path / "ui.txt", *options[:at], *options[at + 2 :]) as inside:
        served = inside.browser.address.split(":")[2].partition("/")[0]
        code = page["livenessProbe"]["exec"]["command"][2].replace("8321", served)
        assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
        assert Browser(f"http://127.0.0.1:{served}/").get("/graphs").status == 403
