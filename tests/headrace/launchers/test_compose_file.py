"""The compose file: by the schema of the Compose Specification, by what its containers may do, and each command run beside a real PostgreSQL."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.headrace.launchers.test_container_files import FILES, ROOT
from tests.support.compose_file import FOLDER, command_of, document, interpolated
from tests.support.postgresql import PostgresServer
from tests.support.processes import PATIENCE_SECS, end, free_port, start, wait_until
from tests.warehouse.scenes import write_log

SCHEMA = ROOT / "tests" / "data" / "compose" / "compose-spec.json"
SERVICES: dict[str, Any] = document()["services"]
OURS = ("init", "worker", "page", "command", "train")
RUNNING = ("postgres", "worker", "page", "prometheus", "grafana")
PASSWORD = "0123456789abcdef"

MODEL = """
import headrace as hr

model = hr.Model("short", client="search", label="clicked", table="log")
model.input("price", hr.float32("price").fill_null(0.0).log1p())
"""


def test_it_follows_the_specification() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    check = jsonschema.validators.validator_for(schema)(schema)
    assert [f"{'/'.join(map(str, one.path))}: {one.message}" for one in check.iter_errors(document())] == []
    wrong = document()
    wrong["services"]["worker"]["comand"] = []
    assert not check.is_valid(wrong)


def test_services_name_what_is_there() -> None:
    found = document()
    for name, service in SERVICES.items():
        assert set(service.get("secrets", ())) <= set(found["secrets"]), name
        assert set(service["networks"]) <= set(found["networks"]), name
        for other, condition in service.get("depends_on", {}).items():
            needed = {"service_healthy": "healthcheck", "service_completed_successfully": "command"}
            assert needed[condition["condition"]] in SERVICES[other], (name, other)
        for one in service.get("volumes", ()):
            source = interpolated(one["source"] if isinstance(one, dict) else one.partition(":")[0])
            if source.startswith("."):
                assert (FOLDER / source).exists() or source == "./data", (name, source)
            else:
                assert source in found["volumes"], (name, source)
        build = service.get("build")
        assert build is None or (FOLDER / build["context"] / build["dockerfile"]).resolve() in FILES.values()
    assert {name for name in SERVICES if "profiles" not in SERVICES[name]} == {*RUNNING, "init"}


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_is_pinned(name: str) -> None:
    image, _, tag = interpolated(SERVICES[name]["image"]).rpartition(":")
    if name in OURS:
        assert image.removeprefix("headrace-") in FILES
    else:
        assert sum(part.isdigit() for part in tag.removeprefix("v").partition("-")[0].split(".")) >= 2


def test_services_are_reached_from_this_machine_alone() -> None:
    for name, service in SERVICES.items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
    assert "ports" not in SERVICES["postgres"]
    assert {name for name, one in document()["networks"].items() if one.get("internal")} == {"warehouse", "metrics"}


def test_a_password_is_in_no_variable() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            is_secret = any(word in variable for word in ("PASSWORD", "TOKEN", "SECRET"))
            assert not is_secret or value.startswith("/run/secrets/"), (name, variable)
    for one in document()["secrets"].values():
        assert (FOLDER / one["file"]).parent == FOLDER / "secrets"
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"deploy/compose/secrets/", "deploy/compose/data/"} <= set(ignored)


def test_containers_have_the_rights_that_they_need() -> None:
    for name in RUNNING:
        assert {"test", "interval", "timeout", "retries", "start_period"} <= set(SERVICES[name]["healthcheck"]), name
        assert SERVICES[name]["restart"] == "unless-stopped"
    for name in OURS:
        service = SERVICES[name]
        rights = (service["read_only"], service["cap_drop"], service["security_opt"])
        assert rights == (True, ["ALL"], ["no-new-privileges:true"])
        mounted = {one["target"] if isinstance(one, dict) else one.split(":")[1] for one in service["volumes"]}
        assert mounted == {"/var/lib/headrace", "/var/cache/headrace", "/data"}
        assert service["environment"]["HEADRACE_HOME"].startswith("/var/lib/headrace/")
        text = (
            ROOT / "docker" / f"{interpolated(service['image']).split('-')[1].split(':')[0]}.Dockerfile"
        ).read_text()
        assert all(folder in text for folder in mounted - {"/data"})


def test_prometheus_scrapes_what_the_services_serve() -> None:
    given = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    mounts = dict(one.split(":")[:2] for one in SERVICES["prometheus"]["volumes"])
    assert mounts["./prometheus.yml"] == "/etc/prometheus/prometheus.yml"
    assert [f"/etc/prometheus/{one}" for one in given["rule_files"]] == [mounts["../../examples/monitoring/alerts.yml"]]
    (job,) = (one for given_job in given["scrape_configs"] for one in given_job["dns_sd_configs"])
    for name in job["names"]:
        assert f"0.0.0.0:{job['port']}" in " ".join(command_of(SERVICES[name]))
        assert {"metrics"} <= set(SERVICES[name]["networks"]) & set(SERVICES["prometheus"]["networks"])


def test_grafana_is_provisioned_with_the_dashboard() -> None:
    service = SERVICES["grafana"]
    mounts = dict(one.split(":")[:2] for one in service["volumes"])
    (source,) = yaml.safe_load((FOLDER / "grafana" / "datasource.yml").read_text(encoding="utf-8"))["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    (provider,) = yaml.safe_load((FOLDER / "grafana" / "dashboards.yml").read_text(encoding="utf-8"))["providers"]
    dashboard = mounts["../../examples/monitoring/dashboard.json"]
    assert str(Path(dashboard).parent) == provider["options"]["path"]
    assert service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard
    variables = json.loads((ROOT / "examples" / "monitoring" / "dashboard.json").read_text())["templating"]["list"]
    assert source["type"] in {one["query"] for one in variables if one["type"] == "datasource"}


def test_secrets_are_made_once(tmp_path: Path) -> None:
    """The folder belongs to the user alone; a secret that exists stays; what a killed run left is no secret."""
    script = shutil.copy(FOLDER / "secrets.sh", tmp_path)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "page-token").write_text("a token of mine")
    (tmp_path / "secrets" / "catalog-password.new").write_text("0")
    said = [subprocess.run([script], capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert said == ["made secrets/catalog-password\nmade secrets/grafana-password\n", ""]
    made = {one.name: one for one in (tmp_path / "secrets").iterdir()}
    assert set(made) == set(document()["secrets"])
    assert made["page-token"].read_text() == "a token of mine"
    for name in ("catalog-password", "grafana-password"):
        assert (len(made[name].read_text()), set(made[name].read_text()) <= set("0123456789abcdef")) == (48, True)
        assert stat.S_IMODE(made[name].stat().st_mode) == 0o444
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    program = shutil.which("shellcheck") or str(Path(sys.executable).with_name("shellcheck"))
    if Path(program).exists():
        assert subprocess.run([program, script], capture_output=True, text=True).stdout == ""


class Containers:
    """The services of the file as processes of this machine: their commands and variables, with other folders, ports and secrets."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        for name, text in (("catalog-password", PASSWORD), ("page-token", "a token of the page")):
            (self.secrets / name).write_text(text)
        self.port = {9464: free_port(), 8321: free_port()}

    def _here(self, word: str) -> str:
        word = word.replace("/run/secrets", str(self.secrets)).replace("0.0.0.0", "127.0.0.1")
        for port, free in self.port.items():
            word = word.replace(str(port), str(free))
        return word

    def words(self, name: str, *words: str) -> list[str]:
        """The command of a service."""
        return [self._here(word) for word in command_of(SERVICES[name], *words)]

    def environment(self, name: str) -> dict[str, str]:
        """Its variables: the database and the folders of this test in place of those of the containers."""
        given = dict(SERVICES[name]["environment"])
        home = given.pop("HEADRACE_HOME").replace("/var/lib/headrace", str(self.folder))
        assert given.pop("HEADRACE_CATALOG_URL") == "postgresql://headrace@postgres:5432/headrace"
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {key: os.environ[key] for key in ("HOME", "NUMBA_CACHE_DIR", "TMPDIR") if key in os.environ}
        return {**kept, **given, "HEADRACE_HOME": home, "HEADRACE_CATALOG_URL": self.url, "PATH": programs,
                "PYTHONPATH": str(ROOT)}  # fmt: skip

    def run(self, name: str, *words: str) -> str:
        """The output of a service that ends."""
        done = subprocess.run(self.words(name, *words), env=self.environment(name), cwd=self.folder, capture_output=True,
                              text=True, timeout=PATIENCE_SECS)  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def metrics(self) -> str:
        """What Prometheus reads of the worker."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port[9464]}/metrics") as answer:
            return str(answer.read(), "utf-8")

    def is_healthy(self, name: str) -> bool:
        """Whether the check of a service finds it healthy."""
        kind, *words = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD"
        return subprocess.run([self._here(word) for word in words], env=self.environment(name), capture_output=True).returncode == 0  # fmt: skip


@pytest.mark.slow
def test_the_commands_run(postgres: PostgresServer, tmp_path: Path, new_database: Callable[..., str]) -> None:
    """The catalog wants the password of the secret; the worker computes, stores what it has at SIGTERM; the page wants its token."""
    url = new_database(migrated=False)
    database = url.partition("?")[0].rpartition("/")[2]
    postgres.execute(f"DO $$ BEGIN CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}'; EXCEPTION WHEN duplicate_object THEN END $$")  # fmt: skip
    postgres.execute(f"ALTER DATABASE {database} OWNER TO guarded")
    postgres.execute("ALTER SCHEMA public OWNER TO guarded", database)
    containers = Containers(tmp_path, postgres.url(database, "guarded"))
    containers.run("init")
    containers.run("init")
    write_log(tmp_path / "home" / "log")
    (tmp_path / "model.py").write_text(MODEL)
    containers.run("command", "table", "add", "log", str(tmp_path / "home" / "log"))
    containers.run("command", "model", "submit", str(tmp_path / "model.py"))
    processes = {}
    try:
        for name in ("worker", "page"):
            processes[name] = start(containers.words(name), tmp_path / f"{name}.txt", containers.environment(name))
        wait_until(
            lambda: containers.is_healthy("page") and containers.is_healthy("worker"), "all are healthy", processes
        )
        wait_until(
            lambda: "headrace_worker_committed_memos_total 3.0" in containers.metrics(), "all is computed", processes
        )
        with pytest.raises(urllib.error.HTTPError, match=r"40[13]"):
            urllib.request.urlopen(f"http://127.0.0.1:{containers.port[8321]}/graphs")
        for name, status in (("worker", 143), ("page", -signal.SIGTERM)):
            processes[name].send_signal(signal.SIGTERM)
            assert processes[name].wait(PATIENCE_SECS) == status, (tmp_path / f"{name}.txt").read_text()
        assert not containers.is_healthy("worker")
        assert not containers.is_healthy("page")
    finally:
        for one in processes.values():
            end(one)
    assert "--end TIME" in containers.run("train", "--help")
    (containers.secrets / "catalog-password").write_text("another")
    with pytest.raises(AssertionError, match="password authentication failed"):
        containers.run("command", "status")
