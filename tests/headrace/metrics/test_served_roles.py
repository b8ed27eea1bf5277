"""Processes of a real job serve their metrics, and a real Prometheus reads them."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.metrics.catalogue import all_metrics
from tests.conftest import ROOT
from tests.headrace.conftest import UNTRIED, Answer
from tests.support.processes import PATIENCE_SECS, end, free_port, start, wait_until
from tests.support.scraped import Figures, plain, scrape, target
from transforms.child_process import module_command

EXAMPLES = ROOT / "examples" / "monitoring"
Processes = dict[str, subprocess.Popen[bytes]]


@contextmanager
def running(folder: Path, processes: Processes, name: str, *arguments: object) -> Iterator[None]:
    """A command in a process of its own within the block."""
    process = start(module_command("headrace", *map(str, arguments)), folder / f"{name}.log")
    processes[name] = process
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE_SECS)
        finally:
            del processes[name]
            end(process)


def found_roles(folder: Path) -> set[str]:
    files = folder.glob("*.json")
    return {str(json.loads(one.read_text())[0]["labels"]["role"]) for one in files}


def scraped(folder: Path, role: str) -> Figures:
    """The figures of the first process of a role."""
    name = role.replace("_", "-")
    return scrape(target(min(folder.glob(f"{name}-*.json"))))


@pytest.mark.slow
def test_every_role_of_a_job_and_a_real_prometheus(submitted: Callable[..., Answer], tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    submitted("work", "--until-idle")
    settings, targets, home = tmp_path / "training.json", tmp_path / "targets", tmp_path / "home"
    settings.write_text(json.dumps({"batch_rows": 64, **UNTRIED}), encoding="utf-8")
    measured = ("--metrics-address", "127.0.0.1:0", "--metrics-targets", targets, "--home", home)
    job = ("--hosts", 1, "--readers", 1, "--servers", 1, "--embedding-workers", 1)
    training = ("train", "first", "--follow", "--config", settings, *job, *measured)
    roles = {"worker", "controller", "reader", "host", "server", "embedding_worker"}
    alive: Processes = {}
    with (
        running(tmp_path, alive, "worker", "work", *measured, "--anonymous-metrics"),
        running(tmp_path, alive, "train", *training),
    ):
        wait_until(lambda: found_roles(targets) == roles, "all roles serve metrics", alive)
        wait_until(lambda: plain(scraped(targets, "controller"))["headrace_controller_committed_epochs"] > 0, "a commit", alive)  # fmt: skip
        host, server = plain(scraped(targets, "host")), scraped(targets, "server")
        assert host["headrace_host_events_total"] > 0
        assert host["headrace_host_step_seconds_count"] >= host["headrace_host_run_steps"] > 0
        assert host["headrace_host_commit_seconds_count"] >= 1
        assert plain(scraped(targets, "reader"))["headrace_reader_rows_total"] > 0
        assert plain(server)["headrace_server_updates_total"] > 0
        assert server["headrace_server_message_seconds_count", (("kind", "fetch"),)] > 0
        worker = scraped(targets, "embedding_worker")
        assert worker["headrace_embedding_worker_message_seconds_count", (("kind", "update"),)] > 0
        states = {dict(labels)["state"]: value for (name, labels), value in scraped(targets, "controller").items() if name == "headrace_controller_job_state"}  # fmt: skip
        assert sum(states.values()) == 1
        for role in roles:
            known = {one.name for one in (*all_metrics()[role], *all_metrics()["process"], *all_metrics()["queue"])}
            names = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name, _ in scraped(targets, role)}
            assert {name for name in names if name.startswith("headrace_")} <= known
        if shutil.which("prometheus") is not None:
            check_with_prometheus(tmp_path, targets, alive)
    assert list(targets.iterdir()) == []


@pytest.mark.slow
def test_a_server_of_a_slice_says_when_its_machine_leaves(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    port, targets, process = free_port(), tmp_path / "targets", None
    words = ("role", "tpu-server", "--port", port, "--cpus", 1, "--metrics-address", "127.0.0.1:0", "--metrics-targets", targets)  # fmt: skip
    try:
        process = start(module_command("headrace", *map(str, words)), tmp_path / "server.log")
        alive = {"server": process}
        figures: Callable[[], dict[str, float]] = lambda: plain(scraped(targets, "tpu_server"))  # noqa: E731
        wait_until(lambda: found_roles(targets) == {"tpu_server"} and figures()["headrace_tpu_server_serving"] == 1, "it serves", alive)  # fmt: skip
        assert figures()["headrace_tpu_server_leaving"] == 0
        assert {one.name for one in all_metrics()["tpu_server"]} <= figures().keys()
        with socket.create_connection(("127.0.0.1", port)):
            wait_until(lambda: figures()["headrace_tpu_server_clients"] >= 1, "a client is counted", alive)
    finally:
        end(process)


def check_with_prometheus(folder: Path, targets: Path, alive: Processes) -> None:
    """Prometheus finds all processes by their files, and evaluates each rule and each panel."""
    given = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text(encoding="utf-8"))
    given["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    given["rule_files"] = [str(EXAMPLES / "alerts.yml")]
    given["scrape_configs"] = [one for one in given["scrape_configs"] if "file_sd_configs" in one]
    given["scrape_configs"][0]["file_sd_configs"][0]["files"] = [f"{targets}/*.json"]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(given), encoding="utf-8")
    port = free_port()
    server = start(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address=127.0.0.1:{port}"],
        folder / "prometheus.log",
    )  # fmt: skip
    alive["prometheus"] = server

    def ask(path: str, **query: str) -> Any:
        text = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(text, timeout=PATIENCE_SECS) as answer:
            return json.load(answer)["data"]

    def result(query: str) -> list[Any]:
        try:
            return list(ask("query", query=query)["result"])
        except OSError:  # it does not listen yet
            return []

    try:
        wait_until(
            lambda: len(result("up == 1")) == len(list(targets.glob("*.json"))), "all targets are scraped", alive
        )
        assert result("sum(headrace_host_events_total) > 0")
        assert result('headrace_process_info{role="host"} == 1')
        wait_until(lambda: bool(result("rate(headrace_controller_step_seconds_count[30s]) > 0")), "steps are counted", alive)  # fmt: skip
        wait_until(lambda: {one["health"] for one in rules(ask)} == {"ok"}, "all rules are evaluated", alive)
        dashboard = json.loads((EXAMPLES / "dashboard.json").read_text(encoding="utf-8"))
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
        assert len(expressions) > 30
        for one in expressions:
            ask("query", query=one.replace("$run", ".*"))  # raises for an expression that is not valid
    finally:
        end(server)
        del alive["prometheus"]


def rules(ask: Callable[..., Any]) -> list[Any]:
    return [rule for group in ask("rules")["groups"] for rule in group["rules"]]
