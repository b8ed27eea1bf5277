"""A job template of Dataflow's real client, read as Google's service reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.internal import pickler
from apache_beam.portability.api import beam_runner_api_pb2

import headrace as hr
from pipelines.joins.pipeline import STEPS as JOIN_STEPS
from pipelines.memoize.pipeline import STEPS, MemoizeFragments
from pipelines.staging.own_wheel import own_metadata, source_folder, write_wheel
from pipelines.worker.template import TemplateReport, write_template
from pipelines.worker.worker import WorkerConfig, run_worker
from tests.pipelines.runners.dataflow_scenes import Cloud, logged_in
from tests.pipelines.scenes import fill, open_home, write_log
from tests.support.gcs_server import GcsServer
from tests.warehouse.joins.scenes import write_tables
from tests.warehouse.joins.test_refresh import CLICKS, refresh
from tests.warehouse.joins.test_refresh import model as joining_model
from transforms.errors import DataError, InputError, StorageError
from warehouse import Warehouse, register_table, submit_model
from warehouse.joins.refresh import next_computation
from warehouse.queue.depths import queue_depths

ASKED = (
    "--machine_type=n2-standard-4",
    "--autoscaling_algorithm=THROUGHPUT_BASED",
    "--max_num_workers=40",
    "--num_workers=2",
    "--service_account_email=features@my-project.iam.gserviceaccount.com",
    "--no_use_public_ips",
    "--subnetwork=regions/europe-west4/subnetworks/workers",
    "--requirements_cache=skip",
    "--disk_size_gb=50",
    "--experiments=min_ram=8GB",
    "--dataflow_service_options=enable_prime",
    "--labels=team=search",
    "--number_of_worker_harness_threads=3",
)


def queued(warehouse: Warehouse) -> list[tuple[int, int]]:
    return [(depth.queued, depth.leased) for depth in queue_depths(warehouse)]


@pytest.fixture
def location(cloud: Cloud) -> str:
    return f"--template_location=gs://{cloud.bucket}/job.json"


@pytest.fixture(scope="module")
def asked(gcs_server: GcsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """Where a job with every option that was asked for is written as a template."""
    with logged_in(gcs_server, tmp_path_factory.mktemp("asked")) as cloud, cloud.open() as warehouse:
        tasks = cloud.fill(warehouse)
        report = write_template(warehouse, cloud.worker(f"--template_location=gs://{cloud.bucket}/job.json", *ASKED))
        assert report == TemplateReport(f"gs://{cloud.bucket}/job.json", tasks, 3)
        assert queued(warehouse) == [(tasks, 0)], "what is in a template stays queued"
        assert cloud.service.jobs == {}, "nothing was submitted"
        yield cloud


@pytest.fixture(scope="module")
def job(asked: Cloud) -> dict[str, Any]:
    return asked.template()


@pytest.mark.medium
def test_the_job_asks_for_what_was_asked(asked: Cloud, job: dict[str, Any]) -> None:
    environment = job["environment"]
    (pool,) = environment["workerPools"]
    assert pool["machineType"] == "n2-standard-4"
    assert pool["autoscalingSettings"] == {"algorithm": "AUTOSCALING_ALGORITHM_BASIC", "maxNumWorkers": 40}
    assert (pool["numWorkers"], pool["diskSizeGb"], pool["numThreadsPerWorker"]) == (2, 50, 3)
    assert pool["ipConfiguration"] == "WORKER_IP_PRIVATE"
    assert pool["subnetwork"] == "regions/europe-west4/subnetworks/workers"
    assert environment["serviceAccountEmail"] == "features@my-project.iam.gserviceaccount.com"
    assert {"min_ram=8GB", "use_runner_v2", "enable_prime"} <= set(environment["experiments"])
    assert environment["serviceOptions"] == ["enable_prime"]
    assert environment["tempStoragePrefix"].startswith(f"storage.googleapis.com/{asked.bucket}/tmp/headrace-worker-")
    assert job["type"] == "JOB_TYPE_BATCH"
    assert job["name"].startswith("headrace-worker-")
    labels = job["labels"]
    assert (labels["team"], labels["headrace_worker"]) == ("search", "worker")
    assert job["name"].endswith(labels["headrace_job"][:12])
    options = environment["sdkPipelineOptions"]["options"]
    assert options["save_main_session"] is False
    assert (options["project"], options["region"]) == ("my-project", "europe-west4")


def test_workers_start_from_beams_image_of_this_python(job: dict[str, Any]) -> None:
    (pool,) = job["environment"]["workerPools"]
    (image,) = pool["sdkHarnessContainerImages"]
    assert "/beam_python3." in image["containerImage"]
    assert pool["workerHarnessContainerImage"] == image["containerImage"]


def test_the_steps_are_ours_and_every_coder_is_known(asked: Cloud, job: dict[str, Any]) -> None:
    pipeline = asked.pipeline(job)
    (root,) = pipeline.root_transform_ids
    transforms = pipeline.components.transforms
    assert tuple(transforms[step].unique_name for step in transforms[root].subtransforms) == STEPS
    coders = {coder.spec.urn for coder in pipeline.components.coders.values()}
    plain = ("string_utf8", "bytes", "kv", "iterable", "global_window")
    assert coders == {f"beam:coder:{name}:v1" for name in plain}, "nothing is pickled between steps"
    (work,) = (step for step in transforms.values() if step.unique_name == "MemoizeFragments")
    pardo = beam_runner_api_pb2.ParDoPayload.FromString(work.spec.payload)
    step = pickler.loads(pardo.do_fn.payload)[0]
    assert isinstance(step, MemoizeFragments)
    assert vars(step)["_home"] == asked.home, "everything that opens the bucket travels with the step"


@pytest.mark.medium
def test_the_staged_files_are_this_headrace_and_its_pins(asked: Cloud, job: dict[str, Any], tmp_path: Path) -> None:
    packages = {one["name"]: one["location"] for one in job["environment"]["workerPools"][0]["packages"]}
    metadata = own_metadata(source_folder())
    wheel = write_wheel(tmp_path, source_folder(), metadata)
    assert packages.keys() == {wheel.name, "requirements.txt", "extra_packages.txt",
                               "submission_environment_dependencies.txt"}  # fmt: skip

    def staged(name: str) -> bytes:
        return asked.read(packages[name].replace("storage.googleapis.com/", "gs://"))

    assert staged(wheel.name) == wheel.read_bytes()
    assert staged("extra_packages.txt").decode().split() == [wheel.name]
    assert "numba==" in staged("requirements.txt").decode()
    (environment,) = asked.pipeline(job).components.environments.values()
    assert len(environment.dependencies) == len(packages)
    assert not [name for name in asked.names("tmp") if "session" in name]


@pytest.mark.slow
def test_files_are_sent_once_for_all_jobs(cloud: Cloud) -> None:
    with cloud.open() as warehouse:
        cloud.fill(warehouse)
        for name in ("one.json", "two.json"):
            write_template(warehouse, cloud.worker(f"--template_location=gs://{cloud.bucket}/{name}"))
    assert cloud.template("one.json")["name"] != cloud.template("two.json")["name"]
    assert sum(name.endswith(".whl") for name in cloud.names("tmp")) == 2
    assert len([name for name in cloud.names("tmp") if name.startswith("artifact_cache/")]) == 4


@pytest.mark.medium
def test_an_image_has_everything_and_nothing_is_packed(cloud: Cloud, location: str) -> None:
    image = "europe-west4-docker.pkg.dev/my-project/headrace/worker:0.1.0"
    with cloud.open() as warehouse:
        cloud.fill(warehouse)
        write_template(warehouse, cloud.worker(location, f"--sdk_container_image={image}"))
    (pool,) = cloud.template()["environment"]["workerPools"]
    assert [one["containerImage"] for one in pool["sdkHarnessContainerImages"]] == [image]
    assert [one["name"] for one in pool["packages"]] == ["submission_environment_dependencies.txt"]


@pytest.mark.slow
def test_a_requirements_file_of_the_users_is_kept(cloud: Cloud, location: str, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("numba==0.61.0\n")
    with cloud.open() as warehouse:
        cloud.fill(warehouse)
        write_template(warehouse, cloud.worker(location, f"--requirements_file={tmp_path}/mine.txt"))
    (place,) = (name for name in cloud.names("tmp") if name.endswith("/requirements.txt"))
    assert cloud.read(f"gs://{cloud.bucket}/tmp/{place}") == b"numba==0.61.0\n"
    assert any(name.endswith(".whl") for name in cloud.names("tmp"))


@pytest.mark.slow
def test_a_template_may_be_a_file_of_this_machine(cloud: Cloud, tmp_path: Path) -> None:
    with cloud.open() as warehouse:
        cloud.fill(warehouse)
        write_template(warehouse, cloud.worker(f"--template_location={tmp_path}/job.json"))
    assert json.loads((tmp_path / "job.json").read_text())["name"].startswith("headrace-worker-")


@pytest.mark.medium
def test_outdated_joined_columns_come_before_memos(cloud: Cloud, location: str, tmp_path: Path) -> None:
    folders = write_tables(tmp_path)
    with cloud.open() as warehouse:
        for name, folder, time in (("log", folders.log, "at"), ("clicks", folders.clicks, "time")):
            for path in folder.rglob("*.parquet"):
                place = f"gs://{cloud.bucket}/{name}/{path.relative_to(folder)}"
                warehouse.storage.write_atomic(place, path.read_bytes())
            register_table(warehouse, name, f"gs://{cloud.bucket}/{name}", time_column=time)
        submit_model(
            warehouse,
            joining_model(CLICKS.count(window="50m").log1p(), CLICKS.latest(hr.text("country")).hash_buckets(7)),
        )
        assert write_template(warehouse, cloud.worker(location)) == TemplateReport(
            f"gs://{cloud.bucket}/job.json", 0, 3, 2
        )
        pipeline = cloud.pipeline(cloud.template())
        (root,) = pipeline.root_transform_ids
        transforms = pipeline.components.transforms
        assert tuple(transforms[step].unique_name for step in transforms[root].subtransforms) == JOIN_STEPS
        coders = {coder.spec.urn for coder in pipeline.components.coders.values()}
        assert coders == {
            f"beam:coder:{name}:v1" for name in ("string_utf8", "bytes", "kv", "iterable", "global_window")
        }
        assert next_computation(warehouse) is not None, "they are outdated as before"
        assert [name for name in cloud.names("home") if name.startswith(("jobs/", "overlays/"))] == []
        refresh(warehouse)
        assert write_template(warehouse, cloud.worker(location)) == TemplateReport(
            f"gs://{cloud.bucket}/job.json", 6, 3
        )


@pytest.mark.medium
def test_an_empty_queue_gives_no_template(cloud: Cloud, location: str) -> None:
    with cloud.open() as warehouse:
        assert write_template(warehouse, cloud.worker(location)).tasks == 0
    assert cloud.names("") == []


def test_a_worker_does_not_take_a_template_for_work(cloud: Cloud, location: str) -> None:
    with cloud.open() as warehouse:
        tasks = cloud.fill(warehouse)
        with pytest.raises(InputError, match="--template_location must not be given"):
            run_worker(warehouse, cloud.worker(location), until_idle=True)
        with pytest.raises(InputError, match="a job template must be for DataflowRunner"):
            write_template(warehouse, WorkerConfig("worker"))
        assert queued(warehouse) == [(tasks, 0)]


class NoLease:
    """Fails the test that leases."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def lease(*_: object, **__: object) -> None:
            raise AssertionError("leased before the options were checked")

        for module in ("pipelines.worker.worker", "pipelines.worker.template"):
            monkeypatch.setattr(f"{module}.lease_tasks", lease)


@pytest.mark.parametrize("run", [
    lambda warehouse, config: run_worker(warehouse, config, until_idle=True), write_template,
], ids=["work", "template"])  # fmt: skip
def test_what_cannot_work_is_refused_before_anything_is_leased(
    cloud: Cloud, location: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = () if run is not write_template else (location,)
    NoLease(monkeypatch)
    with cloud.open() as warehouse:
        tasks = cloud.fill(warehouse)

        def refused(*flags: str) -> Any:
            config = WorkerConfig("worker", "DataflowRunner", runner_flags=(*flags, *more))
            with pytest.raises((InputError, StorageError)) as caught:
                run(warehouse, config)
            error = caught.value
            assert all((error.what, error.where, error.value, error.allowed, error.next_step)), error
            return error

        assert refused("--project=my-project").value == "--region, --temp_location"
        error = refused(*cloud.flags(f"--staging_location=gs://no-{cloud.bucket}/staging"))
        assert (error.what, error.where) == ("there is no such bucket", "--staging_location")
        assert error.value == f"gs://no-{cloud.bucket}/staging"
        error = refused("--project=12345", *cloud.flags()[1:])
        assert "not project number" in error.value
        error = refused(*cloud.flags("--num_workers=9", "--max_num_workers=3"))
        assert "cannot exceed" in error.value
        error = refused(*cloud.flags("--job_name=Not A Name"))
        assert "job_name" in error.value
        assert queued(warehouse) == [(tasks, 0)]
    assert cloud.names("tmp") == [], "nothing was sent"


def test_a_home_on_this_machine_is_refused_before_anything_is_leased(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    NoLease(monkeypatch)
    with open_home(tmp_path / "home") as warehouse:
        fill(warehouse, write_log(tmp_path / "log"))
        with pytest.raises(InputError, match="cannot reach a folder of this machine") as caught:
            run_worker(warehouse, cloud.worker(), until_idle=True)
    assert caught.value.value == str(tmp_path / "home")


@pytest.mark.slow
def test_raw_data_on_this_machine_gives_its_tasks_back(cloud: Cloud, location: str, tmp_path: Path) -> None:
    with cloud.open() as warehouse:
        tasks = fill(warehouse, write_log(tmp_path / "log"))
        with pytest.raises(InputError, match="cannot reach a folder of this machine"):
            write_template(warehouse, cloud.worker(location))
        with pytest.raises(InputError, match="cannot reach a folder of this machine"):
            run_worker(warehouse, cloud.worker(), until_idle=True)
        assert queued(warehouse) == [(tasks, 0)]


@pytest.mark.medium
def test_a_home_in_a_bucket_that_is_not_there_is_one_clear_error(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cloud.open() as warehouse:
        cloud.fill(warehouse)
    elsewhere = Cloud(cloud.gcs, cloud.service, f"no-{cloud.bucket}", tmp_path)
    NoLease(monkeypatch)
    config = WorkerConfig("worker", "DataflowRunner", runner_flags=cloud.flags())
    with elsewhere.open() as warehouse, pytest.raises((StorageError, DataError), match="no such bucket"):
        run_worker(warehouse, config, until_idle=True)
