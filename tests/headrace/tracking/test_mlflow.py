"""Runs in MLflow: options and each point once, by a server of the tests and by a real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from headrace.tracking import mlflow_run
from headrace.tracking.mlflow_run import MlflowRun
from headrace.tracking.mlflow_server import MlflowServer
from headrace.tracking.points import new_points
from tests.support.mlflow_server import mlflow_server
from tests.trainer.run.history.histories import history_of, train
from trainer.model.heads import BINARY
from transforms.errors import InputError, StorageError


class Memory:
    """The state of a small tracking server, which fails the next calls of some names."""

    def __init__(self) -> None:
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, dict] = {}
        self.fails: list[str] = []
        self.answer: bytes | None = None

    def call(self, name: str, given: dict) -> tuple[int, dict]:
        if self.fails and self.fails[0] == name:
            self.fails.pop(0)
            return 500, {"error_code": "INTERNAL_ERROR", "message": "the disk is full"}
        if name == "experiments/create":
            if given["name"] in self.experiments:
                return 400, {"error_code": "RESOURCE_ALREADY_EXISTS", "message": "it exists"}
            self.experiments[given["name"]] = str(len(self.experiments) + 1)
            return 200, {"experiment_id": self.experiments[given["name"]]}
        if name == "experiments/get-by-name":
            return 200, {"experiment": {"experiment_id": self.experiments[given["experiment_name"]]}}
        if name == "runs/create":
            run = f"run{len(self.runs)}"
            self.runs[run] = {"given": given, "metrics": [], "params": {}, "status": "RUNNING"}
            return 200, {"run": {"info": {"run_id": run}}}
        if given["run_id"] not in self.runs:
            return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such run"}
        run = self.runs[given["run_id"]]
        if name == "runs/get":
            newest = {one["key"]: one for one in run["metrics"]}
            return 200, {"run": {"info": {"lifecycle_stage": "active"}, "data": {"metrics": list(newest.values())}}}
        if name == "runs/log-batch":
            assert len(given.get("metrics", [])) <= 1000
            run["metrics"] += given.get("metrics", [])
            run["params"] |= {one["key"]: one["value"] for one in given.get("params", [])}
        if name == "runs/update":
            run["status"] = given["status"]
        return 200, {}


@contextmanager
def served(memory: Memory) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self, given: dict) -> None:
            status, body = memory.call(urlsplit(self.path).path.removeprefix("/api/2.0/mlflow/"), given)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode() if memory.answer is None else memory.answer)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_GET(self) -> None:
            self._answer({key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()})

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(autouse=True)
def described(monkeypatch) -> None:
    """A run with a table, a label and two options, without a checkpoint."""

    run = SimpleNamespace(
        options={"dim": 8, "top_mlp": [64, 32], "chosen": {"dim": "a reason"}, "long": "x" * 9000},
        identity=SimpleNamespace(table="log", label="clicked"),
    )
    monkeypatch.setattr(mlflow_run, "read_run", lambda folder: run)


def opened(uri: str, folder: Path) -> MlflowRun:
    return MlflowRun(MlflowServer(uri), str(folder), folder, "ctr", "ctr-v1", lambda: 1.9e9)


def logged(run: dict) -> list[tuple[str, int]]:
    return [(one["key"], one["step"]) for one in run["metrics"]]


def wanted(history) -> list[tuple[str, int]]:
    return [(name, point.step) for point in new_points(history, {}) for name in point.values]


def test_each_point_is_logged_once_over_several_processes(tmp_path):
    memory, history = Memory(), history_of(BINARY, [20])
    with served(memory) as uri:
        for steps in (50, 400, 3):
            history = train(history, BINARY, [steps])
            to = opened(uri, tmp_path)
            assert to.add(history) > 0
            assert to.add(history) == 0
            to.close()
    ((run, found),) = memory.runs.items()
    assert logged(found) == wanted(history)
    assert found["params"] == {"dim": "8", "top_mlp": "[64, 32]", "long": "x" * 500}
    assert found["status"] == "FINISHED"
    assert json.loads((tmp_path / "mlflow.json").read_text())["run_id"] == run
    assert {one["key"]: one["value"] for one in found["given"]["tags"]}["headrace.table"] == "log"
    assert memory.experiments == {"ctr": "1"}


@pytest.mark.parametrize("call", ["experiments/create", "runs/create", "runs/log-batch", "runs/get", "runs/update"])
def test_a_call_that_fails_is_made_up_for(tmp_path, call):
    memory, history = Memory(), history_of(BINARY, [20, 30])
    with served(memory) as uri:
        opened(uri, tmp_path).add(history)
        history = train(history, BINARY, [300])
        memory.fails = [call]
        to = opened(uri, tmp_path)
        is_called = call not in ("experiments/create", "runs/create")
        with pytest.raises(StorageError, match="the disk is full") if is_called else nullcontext():
            to.add(history)
        to.add(history)
    assert memory.fails == ([] if is_called else [call])
    (found,) = memory.runs.values()
    assert logged(found) == wanted(history)


def test_an_older_commit_is_another_run(tmp_path):
    memory = Memory()
    with served(memory) as uri:
        opened(uri, tmp_path).add(history_of(BINARY, [20, 50]))
        older = history_of(BINARY, [20])
        opened(uri, tmp_path).add(older)
    assert logged(list(memory.runs.values())[1]) == wanted(older)
    assert len(memory.runs) == 2


def test_a_run_that_was_deleted_is_made_again(tmp_path):
    memory, history = Memory(), history_of(BINARY, [40])
    with served(memory) as uri:
        opened(uri, tmp_path).add(history)
        memory.runs.clear()
        opened(uri, tmp_path).add(history)
        assert opened(uri, tmp_path / "other").add(history) > 0
    assert len(memory.runs) == 2


@pytest.mark.parametrize("answer", [b"", b"[]", b"<html>", b'{"experiment_id": 7}', b"\xff\xfe"])
def test_other_answers_are_refused(tmp_path, answer):
    memory = Memory()
    memory.answer = answer
    with served(memory) as uri, pytest.raises(StorageError, match="MLflow"):
        opened(uri, tmp_path).add(history_of(BINARY, [40]))


def test_a_server_that_is_not_there_is_a_storage_error(tmp_path):
    with pytest.raises(StorageError, match="must answer"):
        opened("http://127.0.0.1:9", tmp_path).add(history_of(BINARY, [40]))


@pytest.mark.parametrize("uri", ["", "localhost:5000", "file:///etc/passwd", "http://", "http://a:b@host", "http://host/?x=1"])  # fmt: skip
def test_addresses_are_checked(uri):
    with pytest.raises(InputError, match="address"):
        MlflowServer(uri)


@pytest.mark.parametrize("text", [b"{", b"\xff", b""])
def test_a_damaged_file_of_the_run_is_an_error(tmp_path, text):
    (tmp_path / "mlflow.json").write_bytes(text)
    with pytest.raises(StorageError, match="JSON object"):
        opened("http://127.0.0.1:9", tmp_path).add(history_of(BINARY, [40]))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_real_server_has_each_point_once(tmp_path):
    history = history_of(BINARY, [20])
    with mlflow_server(tmp_path) as uri:
        for steps in (50, 400, 3):
            history = train(history, BINARY, [steps])
            opened(uri, tmp_path).add(history)
        opened(uri, tmp_path).close()
        server = MlflowServer(uri)
        run = json.loads((tmp_path / "mlflow.json").read_text())["run_id"]
        for name in ("windows/log_loss", "commits/auc"):
            found = server._get("metrics/get-history", {"run_id": run, "metric_key": name, "max_results": "5000"})
            expected = {point.step: point.values[name] for point in new_points(history, {}) if name in point.values}
            points = sorted((one["step"], one["value"]) for one in found["metrics"])
            assert [step for step, _ in points] == list(expected)
            assert [value for _, value in points] == pytest.approx(list(expected.values()))
        data = server._get("runs/get", {"run_id": run})["run"]["data"]
        assert {one["key"]: one["value"] for one in data["params"]} == {"dim": "8", "top_mlp": "[64, 32]", "long": "x" * 500}  # fmt: skip
