"""A home in a bucket with Dataflow's real client, and the files that the client uploads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apache_beam.internal.gcp.auth import _Credentials
from apache_beam.portability.api import beam_runner_api_pb2

from pipelines.worker.worker import WorkerConfig
from tests.pipelines.scenes import FREE_READS, fill, write_log
from tests.support import dataflow_service
from tests.support.dataflow_service import DataflowService
from tests.support.gcs_server import GcsServer
from warehouse import Storage, WarehouseConfig
from warehouse.warehouse import Warehouse


@dataclass(frozen=True)
class Cloud:
    """A bucket, a service that takes jobs, and a folder of this machine for the catalog."""

    gcs: GcsServer
    service: DataflowService
    bucket: str
    folder: Path

    @property
    def home(self) -> str:
        return self.gcs.home(self.bucket)

    @property
    def catalog_url(self) -> str:
        return f"sqlite:///{self.folder}/catalog.db"

    @property
    def environment(self) -> dict[str, str]:
        """What a process of somebody who uses this cloud has in its environment."""
        return {"STORAGE_EMULATOR_HOST": f"http://{self.gcs.address}", "GOOGLE_CLOUD_PROJECT": "my-project",
                "GOOGLE_APPLICATION_CREDENTIALS": str(self.folder / "login.json"),
                "HEADRACE_HOME": f"gs://{self.bucket}/home", "HEADRACE_CATALOG_URL": self.catalog_url}  # fmt: skip

    def open(self, lease_secs: float = 60.0) -> Warehouse:
        config = WarehouseConfig(self.home, catalog_url=self.catalog_url, lease_secs=lease_secs, rates=FREE_READS)
        return Warehouse.open(config)

    def flags(self, *more: str) -> tuple[str, ...]:
        """The least that Dataflow asks for."""
        return ("--project=my-project", "--region=europe-west4", f"--temp_location=gs://{self.bucket}/tmp", *more)

    @property
    def here(self) -> str:
        """The option that has jobs taken by the service of this test."""
        return f"--dataflow_endpoint={self.service.endpoint}"

    def worker(self, *more: str, **options: Any) -> WorkerConfig:
        return WorkerConfig("worker", "DataflowRunner", runner_flags=self.flags(*more), **options)

    def fill(self, warehouse: Warehouse, hours: int = 3) -> int:
        """Upload a log, register it and submit a model; the number of tasks queued."""
        log = write_log(self.folder / "log", hours)
        for path in sorted(log.rglob("*.parquet")):
            warehouse.storage.write_atomic(f"gs://{self.bucket}/log/{path.relative_to(log)}", path.read_bytes())
        return fill(warehouse, f"gs://{self.bucket}/log")

    def read(self, location: str) -> bytes:
        return Storage(self.home).read_bytes(location)

    def names(self, folder: str) -> list[str]:
        """What lies below a folder of the bucket."""
        place = f"gs://{self.bucket}/{folder}"
        return sorted(file.path.removeprefix(f"{place}/") for file in Storage(self.home).list(place))

    def template(self, name: str = "job.json") -> dict[str, Any]:
        return dict(json.loads(self.read(f"gs://{self.bucket}/{name}")))

    def pipeline(self, job: dict[str, Any]) -> beam_runner_api_pb2.Pipeline:
        """The pipeline that a job's client staged."""
        url = job["environment"]["sdkPipelineOptions"]["options"]["pipelineUrl"]
        return beam_runner_api_pb2.Pipeline.FromString(self.read(url))


@contextmanager
def logged_in(gcs_server: GcsServer, folder: Path) -> Iterator[Cloud]:
    """A cloud of one's own, and this process's environment such that Google's clients find nothing but it."""
    with dataflow_service.running() as service, pytest.MonkeyPatch.context() as patch:
        service.write_login(folder / "login.json")
        cloud = Cloud(gcs_server, service, gcs_server.bucket(), folder)
        for name, value in cloud.environment.items():
            patch.setenv(name, value)
        # Beam finds credentials once in a process and keeps them.
        patch.setattr(_Credentials, "_credentials_init", False)
        patch.setattr(_Credentials, "_credentials", None)
        yield cloud
