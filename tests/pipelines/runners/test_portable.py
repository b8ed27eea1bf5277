"""A job on a portable job server of another process, with workers in a third."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
from google.protobuf import json_format

from pipelines.runners.process_worker import parse_arguments, provision_info, worker_environment
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.pipelines.scenes import REPOSITORY, fill, memo_files, open_home, write_log


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def process(log: Path, *words: str) -> Iterator[None]:
    """A Python module in a process of its own; it, and what it started, is gone at the end."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    with log.open("wb") as file:
        started = subprocess.Popen([sys.executable, "-m", *words], stdout=file, stderr=file, env=environment,
                                   start_new_session=True)  # fmt: skip
    try:
        yield
    finally:
        os.killpg(started.pid, 9)
        started.wait()


@pytest.mark.slow
def test_a_job_server_and_a_worker_pool_give_what_this_process_gives(tmp_path: Path) -> None:
    boot = tmp_path / "boot"
    words = shlex.join([sys.executable, "-m", "pipelines.runners.process_worker"])
    boot.write_text(f'#!/bin/sh\necho started >> {shlex.quote(str(tmp_path / "starts"))}\nexec {words} "$@"\n')
    boot.chmod(0o755)
    port, pool = free_port(), free_port()
    flags = (
        f"--job_endpoint=127.0.0.1:{port}",
        "--environment_type",
        "EXTERNAL",
        f"--environment_config=127.0.0.1:{pool}",
    )
    remote = WorkerConfig("tester", "PortableRunner", runner_flags=flags)
    with (
        process(tmp_path / "server.log", "apache_beam.runners.portability.local_job_service_main", f"--port={port}"),
        process(tmp_path / "pool.log", "apache_beam.runners.worker.worker_pool_main", f"--service_port={pool}",
                f"--container_executable={boot}"),
    ):  # fmt: skip
        for name, config in (("direct", WorkerConfig("tester", runner_workers=1)), ("remote", remote)):
            with open_home(tmp_path / name) as warehouse:
                queued = fill(warehouse, write_log(tmp_path / "log"))
                assert run_worker(warehouse, config, until_idle=True).memos == queued
    assert (tmp_path / "starts").read_text().startswith("started")
    assert memo_files(tmp_path / "remote") == memo_files(tmp_path / "direct")


class _Provision(beam_provision_api_pb2_grpc.ProvisionServiceServicer):
    def GetProvisionInfo(self, request: Any, context: Any) -> Any:
        assert dict(context.invocation_metadata())["worker_id"] == "1-1"
        info = beam_provision_api_pb2.ProvisionInfo(runner_capabilities=["beam:a", "beam:b"])
        info.control_endpoint.url, info.logging_endpoint.url = "control:1", "logging:1"
        json_format.ParseDict({"beam:option:experiments:v1": ["a"]}, info.pipeline_options)
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=info)


def test_a_worker_asks_the_runner_what_it_is() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(_Provision(), server)
    endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        told = parse_arguments(["--id=1-1", f"--provision_endpoint={endpoint}", "--artifact_endpoint=x:1"])
        provided = provision_info(told.provision_endpoint, told.id)
    finally:
        server.stop(0)
    found = worker_environment(told, provided)
    assert found["WORKER_ID"] == "1-1"
    assert '"control:1"' in found["CONTROL_API_SERVICE_DESCRIPTOR"]
    assert '"logging:1"' in found["LOGGING_API_SERVICE_DESCRIPTOR"]
    assert "STATUS_API_SERVICE_DESCRIPTOR" not in found
    assert '"beam:option:experiments:v1"' in found["PIPELINE_OPTIONS"]
    assert found["RUNNER_CAPABILITIES"] == "beam:a beam:b"
    own = parse_arguments(["--id=1-1", "--provision_endpoint=x:1", "--control_endpoint=other:1"])
    assert '"other:1"' in worker_environment(own, provided)["CONTROL_API_SERVICE_DESCRIPTOR"]


def test_a_worker_without_a_runner_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments([])
    assert "--id, --provision_endpoint" in capsys.readouterr().err
