"""The chart by Helm, the compose file by its own parser, and what Prometheus reads by promtool and Prometheus."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from tests.conftest import ROOT
from tests.deployment.install import COMPOSE_PARSER, PROGRAMS, is_ready
from tests.support.compose_file import FILE, FOLDER, command_of
from tests.support.helm_chart import CASES, CHART, NAMESPACE, RELEASE, head, rendered_file, values_file
from tests.support.kubernetes_schemas import KUBERNETES
from tests.support.processes import end, free_port, start, wait_until
from transforms.child_process import module_command

pytestmark = pytest.mark.deployment


@pytest.fixture(autouse=True)
def _programs() -> None:
    if not is_ready():
        pytest.skip("no programs of deployments here: make test-deployment")


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """What Helm answers."""
    return subprocess.run([str(PROGRAMS / "helm"), *map(str, words)], capture_output=True, text=True, check=False)


def template(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """The chart rendered."""
    return helm("template", RELEASE, CHART, "--namespace", NAMESPACE, "--kube-version", KUBERNETES, *words)


@pytest.mark.parametrize("case", CASES)
def test_helm_renders_what_the_other_tests_check(case: str) -> None:
    done = template("--values", values_file(case))
    assert done.returncode == 0, done.stderr
    text = head() + done.stdout
    if os.environ.get("HEADRACE_WRITE_GOLDENS"):
        rendered_file(case).write_text(text, encoding="utf-8")
    assert text == rendered_file(case).read_text(encoding="utf-8"), "HEADRACE_WRITE_GOLDENS=1 make test-deployment"


@pytest.mark.parametrize("case", CASES)
def test_helm_lints_the_chart(case: str) -> None:
    done = helm("lint", CHART, "--strict", "--kube-version", KUBERNETES, "--values", values_file(case))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("home.location=bucket/home", "/home/location"),
        ("catalog.existingSecret=", "/catalog"),
        ("catalog.url=postgresql://host/db", "/catalog"),
        ("images.repository=", "/images/repository"),
        ("worker.replica=3", "'replica'"),
        ("worker.replicas=many", "/worker/replicas"),
        ("settings.LEASE_SECS=1", "LEASE_SECS"),
        ("settings.HEADRACE_HOME=x", "HEADRACE_HOME"),
        ("page.tokenSecret=", "page.tokenSecret or page.proxy.image must be given"),
        ("page.proxy.image=proxy:1", "and not both"),
    ],
)
def test_helm_refuses_wrong_values(wrong: str, said: str) -> None:
    done = template("--values", values_file("least"), "--set", wrong)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_chart_is_packaged(tmp_path: Path) -> None:
    done = helm("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.iterdir()
    shown = helm("show", "values", package)
    assert shown.stdout.strip() == (CHART / "values.yaml").read_text(encoding="utf-8").strip()


def compose(*words: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    """The compose file as Docker Compose reads it."""
    return subprocess.run([str(COMPOSE_PARSER), *words], cwd=folder, capture_output=True, text=True, check=False)


def test_the_parser_of_docker_compose_reads_the_file(tmp_path: Path) -> None:
    done = compose("--format", "json", str(FILE))
    assert done.returncode == 0, done.stderr
    services: dict[str, Any] = json.loads(done.stdout)["services"]
    written = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
    assert set(services) == set(written)
    assert services["worker"]["build"]["context"] == str(ROOT)
    for name, one in services.items():
        if "entrypoint" in one:
            assert [*one["entrypoint"], *one["command"]] == command_of(written[name])
    wrong = tmp_path / "compose.yaml"
    wrong.write_text("services: {a: {image: x, comand: [b]}}\n", encoding="utf-8")
    assert "comand" in compose(str(wrong), folder=tmp_path).stderr


@pytest.mark.parametrize("folder", [FOLDER, ROOT / "examples" / "monitoring"])
def test_promtool_accepts_the_configuration(folder: Path, tmp_path: Path) -> None:
    for one in (folder / "prometheus.yml", ROOT / "examples" / "monitoring" / "alerts.yml"):
        (tmp_path / one.name).write_bytes(one.read_bytes())
    done = subprocess.run([str(PROGRAMS / "promtool"), "check", "config", str(tmp_path / "prometheus.yml")], capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "rules found" in done.stdout


def test_prometheus_reads_a_worker(tmp_path: Path, make_home: Callable[[], Path]) -> None:
    """With an address in place of the names of services, which Docker's DNS resolves."""
    port, worker_port = free_port(), free_port()
    given = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = given["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{worker_port}"]}]
    given["global"]["scrape_interval"] = "1s"
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(given), encoding="utf-8")
    (tmp_path / "alerts.yml").write_bytes((ROOT / "examples" / "monitoring" / "alerts.yml").read_bytes())
    words = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb", f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    worker = module_command("headrace", "work", "--home", str(make_home()), "--metrics-address", f"127.0.0.1:{worker_port}")  # fmt: skip
    processes = {"prometheus": start([str(PROGRAMS / "prometheus"), *words], tmp_path / "prometheus.txt"),
                 "worker": start(worker, tmp_path / "worker.txt")}  # fmt: skip

    def value(query: str) -> list[str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{urlencode({'query': query})}") as answer:  # fmt: skip
                return [one["value"][1] for one in json.load(answer)["data"]["result"]]
        except OSError:
            return []

    try:
        wait_until(lambda: value('up{job="headrace"}') == ["1"], "the worker is scraped", processes)
        wait_until(lambda: value('headrace_process_info{role="worker"}') == ["1"], "its metrics are there", processes)
    finally:
        for one in processes.values():
            end(one)
