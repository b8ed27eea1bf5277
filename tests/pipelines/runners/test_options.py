from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from pipelines.errors import RunnerFailed
from pipelines.runners.job_server import fetch_server_options
from pipelines.runners.options import RUNNERS, parse_options
from pipelines.runners.remote import require_reach, require_runnable
from pipelines.runners.runner import RunnerOptions, pipeline_options, run_pipeline
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.pipelines.scenes import fill, memos, open_home, write_log
from transforms.errors import InputError

BUCKET = "gs://bucket/home"
PROCESS = ("--environment_type=PROCESS", "--environment_options=process_command=/bin/boot")


def refusal(runner: str = "FlinkRunner", *flags: str) -> InputError:
    with pytest.raises(InputError) as caught:
        RunnerOptions(runner, flags=flags)
    return caught.value


@pytest.mark.parametrize("runner", RUNNERS)
def test_the_runners_of_the_manual_are_taken(runner: str) -> None:
    assert RunnerOptions(runner).runner == runner


def test_an_unknown_runner_is_one_error_with_the_nearest_names() -> None:
    error = refusal("FlinkRuner")
    assert (error.value, error.where) == ("FlinkRuner", "--runner")
    assert "FlinkRunner" in error.next_step.split(":")[1].split(",")[0]
    assert RunnerOptions("my.module.OwnRunner").runner == "my.module.OwnRunner"


def test_options_are_taken_as_a_command_line_has_them() -> None:
    flags = ("--flink_master=host:8081", "--parallelism", "4", "--flink_submit_uber_jar", "--experiments=a",
             "--experiments", "b", "--number_of_execution_retries", "3", "--object_reuse")  # fmt: skip
    given = parse_options("FlinkRunner", flags)
    assert (given["flink_master"], given["parallelism"], given["flink_submit_uber_jar"]) == ("host:8081", 4, True)
    assert given["experiments"] == ["a", "b"]
    built = pipeline_options(RunnerOptions("FlinkRunner", flags=flags)).get_all_options(retain_unknown_options=True)
    assert (built["runner"], built["flink_master"], built["parallelism"]) == ("FlinkRunner", "host:8081", 4)
    assert (built["number_of_execution_retries"], built["object_reuse"]) == ("3", True)


def test_an_unknown_option_is_one_error_with_the_nearest_names() -> None:
    error = refusal("FlinkRunner", "--parallelism=2", "--flink_mater", "host:8081")
    assert error.value == "--flink_mater"
    assert error.allowed.split(", ")[0] == "--flink_master"
    assert refusal("SparkRunner", "--object_reuse").value == "--object_reuse"  # it is Flink's
    assert refusal("SparkRunner", "--event_log_enabled").value == "--event_log_enabled"  # Beam dropped it in 2.29


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        (("flink_master=host:8081",), "flink_master=host:8081"),
        (("--parallelism=2", "stray"), "stray"),
        (("--parallelism=two",), "argument --parallelism: invalid int value: 'two'"),
        (("--flink_submit_uber_jar=yes",), "argument --flink_submit_uber_jar: ignored explicit argument 'yes'"),
        (("--parallelism",), "argument --parallelism: expected one argument"),
        (("--runner=SparkRunner",), "--runner=SparkRunner"),
    ],
)
def test_options_that_beam_drops_or_crashes_on_are_one_error(flags: tuple[str, ...], value: str) -> None:
    assert refusal("FlinkRunner", *flags).value == value


def test_nothing_is_leased_for_a_runner_that_cannot_run(tmp_path: Path) -> None:
    with open_home(tmp_path / "home") as warehouse:
        fill(warehouse, write_log(tmp_path / "log", hours=1))
        with pytest.raises(InputError, match="no such pipeline option"):
            WorkerConfig("tester", "FlinkRunner", runner_flags=("--flink_mater=x",))
        with pytest.raises(InputError, match="Dataflow's workers cannot reach"):
            run_worker(warehouse, WorkerConfig("tester", "DataflowRunner"), until_idle=True)
        assert {row["state"] for row in memos(warehouse).values()} == {"PENDING"}


@pytest.mark.parametrize(
    ("runner", "flags", "reached"),
    [
        ("DirectRunner", (), True),
        ("DataflowRunner", (), False),
        ("apache_beam.runners.dataflow.dataflow_runner.DataflowRunner", (), False),
        ("FlinkRunner", (), True),  # Beam starts Flink in this machine's memory
        ("FlinkRunner", ("--flink_master=host:8081",), False),
        ("FlinkRunner", ("--flink_master=host:8081", *PROCESS), True),
        ("FlinkRunner", ("--environment_type=DOCKER",), False),
        ("SparkRunner", (), True),
        ("SparkRunner", ("--spark_master_url=spark://host:7077",), False),
        ("PortableRunner", ("--job_endpoint=host:8099",), False),
        ("PortableRunner", ("--job_endpoint=host:8099", "--environment_type=EXTERNAL"), True),
    ],
)
def test_a_folder_is_refused_where_workers_cannot_see_it(runner: str, flags: tuple[str, ...], reached: bool) -> None:
    options = RunnerOptions(runner, flags=flags)
    require_reach(options, BUCKET)
    if reached:
        require_reach(options, BUCKET, "/a/folder")
    else:
        with pytest.raises(InputError, match="cannot reach a folder") as caught:
            require_reach(options, BUCKET, "/a/folder")
        assert caught.value.value == "/a/folder"


def test_dataflow_is_not_asked_before_it_has_what_it_needs() -> None:
    with pytest.raises(InputError, match="required options of Dataflow are missing") as caught:
        require_runnable(RunnerOptions("DataflowRunner"), BUCKET)
    assert caught.value.value == "--project, --region, --temp_location"


def test_beam_checks_its_options_before_tasks_are_leased() -> None:
    with pytest.raises(InputError, match="Beam rejects") as caught:
        require_runnable(RunnerOptions("FlinkRunner", flags=("--environment_type=PROCESS",)), BUCKET)
    assert "process_command" in str(caught.value.value)
    with pytest.raises(InputError, match="cannot load"):
        require_runnable(RunnerOptions("no.such.Runner"), BUCKET)
    with pytest.raises(InputError, match="PortableRunner must have a job server"):
        require_runnable(RunnerOptions("PortableRunner"), BUCKET)


class _JobServer(beam_job_api_pb2_grpc.JobServiceServicer):
    def DescribePipelineOptions(self, request: Any, context: Any) -> Any:
        option = beam_job_api_pb2.PipelineOptionDescriptor(name="own_option")
        return beam_job_api_pb2.DescribePipelineOptionsResponse(options=[option])


@pytest.fixture
def job_server() -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(_JobServer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(0)


def test_a_running_server_declares_options_of_its_own(job_server: str) -> None:
    endpoint = ("--job_endpoint", job_server, "--environment_type=LOOPBACK")
    require_runnable(RunnerOptions("PortableRunner", flags=(*endpoint, "--own_option=1")), BUCKET)
    unknown = RunnerOptions("PortableRunner", flags=(*endpoint, "--own_optoin=1"))
    with pytest.raises(InputError, match="no such pipeline option") as caught:
        require_runnable(unknown, BUCKET)
    assert caught.value.allowed.split(", ")[0] == "--own_option"


@pytest.mark.medium
def test_a_job_that_the_runner_gives_up_is_one_error(job_server: str) -> None:
    options = RunnerOptions("PortableRunner", flags=("--job_endpoint", job_server, "--environment_type=LOOPBACK"))
    with pytest.raises(RunnerFailed, match="failed to finish") as caught:
        run_pipeline(lambda pipeline: None, options)
    assert "UNIMPLEMENTED" in str(caught.value.value)


def test_a_server_that_does_not_answer_is_one_error() -> None:
    with socket.socket() as silent:  # bound, so that nobody answers on it
        silent.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(InputError, match="no Beam job server answers") as caught:
            fetch_server_options(endpoint, timeout_secs=0.5)
    assert caught.value.value == endpoint
