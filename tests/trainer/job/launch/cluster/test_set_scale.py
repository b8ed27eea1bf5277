"""Readers of a range, at a real HTTPS server that has the objects of a cluster, and as processes that follow its number."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from headrace.cli.main import run
from tests.support.kubernetes_server import KubernetesServer, completed, kubernetes_server
from tests.support.pods import Pods
from tests.trainer.job.control.controller_process import JOB, job_settings
from tests.trainer.job.control.serving import Serving, serving
from tests.trainer.job.launch.cluster.test_suspension import PLACE, Clock, api_of, jobset
from tests.trainer.synthetic import config
from tests.warehouse.scenes import FREE_READS, events, model, work
from trainer.errors import ConfigError
from trainer.job.control.job_files import JobFiles
from trainer.job.control.membership import Membership
from trainer.job.control.messages import JobStatus, RoleReport
from trainer.job.launch.chaos.slow_disk import SlowDisk
from trainer.job.launch.cluster.cluster_workers import ClusterWorkers
from trainer.job.launch.cluster.object_names import StatefulSetName
from trainer.job.launch.cluster.set_scale import SetScale
from trainer.job.launch.cluster.suspension import Suspension
from trainer.job.launch.job_spec import FORMAT, JobSpec
from trainer.job.launch.training_job import put_solution
from trainer.model.inputs import TypedInput, lay_out
from trainer.run.reading.packed_units import UnitDecoder
from trainer.run.reading.unit_buffer import UnitBuffer
from trainer.run.reading.unit_fetching import RemoteFetcher
from trainer.run.reading.unit_requests import UnitRequest
from trainer.scheduling.buffer_control import BufferSettings
from trainer.scheduling.events import DataRange, Role, RoleKind
from trainer.scheduling.job import PhaseSettings
from trainer.scheduling.transitions import JobState
from warehouse import ReadSolution, Warehouse, WarehouseConfig, read_solution, register_table, submit_model

SET = StatefulSetName("team", "ctr-readers")
SET_PATH = SET.scale_path.removesuffix("/scale")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KubernetesServer]:
    with kubernetes_server(tmp_path / "account") as found:
        yield found


def stateful_set(replicas: int = 0) -> dict[str, Any]:
    labels = {"app": "readers"}
    pod = {"containers": [{"name": "reader", "image": "image"}]}
    spec = {"replicas": replicas, "serviceName": "ctr", "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod}}  # fmt: skip
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": SET.name, "namespace": SET.namespace}, "spec": spec}  # fmt: skip


def readers_of(server: KubernetesServer) -> int:
    return int(server.spec(SET_PATH)["replicas"])


def numbers(server: KubernetesServer) -> list[int]:
    """The numbers of readers that were set, in order."""
    return [one.body["spec"]["replicas"] for one in server.patches() if one.path == SET.scale_path]


@contextmanager
def scale_of(server: KubernetesServer) -> Iterator[tuple[SetScale, Clock, list[str]]]:
    clock, said = Clock(), list[str]()
    yield SetScale(api_of(server), SET, Suspension(api_of(server), PLACE), said.append, clock), clock, said


def test_the_number_is_set_once_and_looked_at_now_and_then(server: KubernetesServer) -> None:
    server.put(PLACE.path, jobset())
    server.put(SET_PATH, stateful_set())
    with scale_of(server) as (scale, clock, said):
        for _ in range(3):
            scale.follow(2)
        assert numbers(server) == [2]
        assert len([one for one in server.requests if one.method == "GET"]) == 2, "hosts, and the number"
        scale.follow(5)
        scale.follow(1)
        assert numbers(server) == [2, 5, 1], "a change is followed at once"
        server.put(SET_PATH, stateful_set(7))
        scale.follow(1)
        assert readers_of(server) == 7
        clock.now += 30
        scale.follow(1)
        assert readers_of(server) == 1, "what another has set is set back after half a minute"
        assert said == []


def test_readers_wait_for_the_hosts_of_a_queue(server: KubernetesServer) -> None:
    """A JobSet that is not admitted, or that a person has suspended, needs none."""
    server.put(PLACE.path, jobset(queue="tpus", suspend=True))
    server.put(SET_PATH, stateful_set())
    with scale_of(server) as (scale, clock, said):
        scale.follow(2)
        scale.follow(2)
        assert numbers(server) == []
        server.put(PLACE.path, jobset(queue="tpus", suspend=False))
        scale.follow(2)
        assert numbers(server) == [], "it looks again after some seconds"
        clock.now += 5
        scale.follow(2)
        assert numbers(server) == [2]
        server.put(PLACE.path, jobset(queue="tpus", suspend=True))
        clock.now += 30
        scale.follow(2)
        assert numbers(server) == [2, 0]
        assert said == []


def test_a_failure_is_said_once_and_repeated_after_some_seconds(server: KubernetesServer) -> None:
    server.put(PLACE.path, jobset())
    with scale_of(server) as (scale, clock, said):
        scale.follow(2)
        scale.follow(3)
        assert said == ["StatefulSet team/ctr-readers is not there"]
        server.put(SET_PATH, stateful_set())
        server.fail_with = 500
        clock.now += 5
        scale.follow(3)
        requests = len(server.requests)
        scale.follow(4)
        assert len(server.requests) == requests, "also for another number"
        assert said[1:] == ["StatefulSet team/ctr-readers: the API of the cluster must allow a request: 500: refused by the test"]  # fmt: skip
        assert not scale.end(), "the end does not wait, and says that it failed"
        server.fail_with = 0
        clock.now += 5
        scale.follow(4)
        assert readers_of(server) == 4
        assert scale.end()
        assert readers_of(server) == 0


def test_a_scale_without_a_number_is_an_error(server: KubernetesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.put(PLACE.path, jobset())
    server.put(SET_PATH, {**stateful_set(), "spec": {"replicas": "2"}})
    with scale_of(server) as (scale, _, said):
        scale.follow(2)
        assert said == ["StatefulSet team/ctr-readers: a scale must have a number of pods: 2"]
    assert numbers(server) == []


@pytest.mark.parametrize("text", ["", "ctr", "team/", "team/Ctr"])
def test_a_stateful_set_must_be_named_by_namespace_and_name(text: str) -> None:
    with pytest.raises(ConfigError, match="a StatefulSet must be named") as refused:
        StatefulSetName.parse(text)
    assert refused.value.where == "--reader-set"
    assert StatefulSetName.parse("team/ctr-readers") == SET


def status_of(tmp_path: Path, **options: Any) -> JobStatus:
    """The status of a job that wants hosts and readers."""
    with serving(tmp_path / "run") as found:
        return dataclasses.replace(found.client.status(), **options)


def test_readers_are_there_while_the_controller_wants_the_job(server: KubernetesServer, tmp_path: Path) -> None:
    """None while it is held or leaves, and none after it: a StatefulSet would start its pods again for ever."""
    server.put(PLACE.path, jobset(suspend=True))
    server.put(SET_PATH, stateful_set())
    with scale_of(server) as (scale, clock, _):
        workers = ClusterWorkers(Suspension(api_of(server), PLACE), clock=clock, readers=scale)
        wanted = status_of(tmp_path, wanted_readers=3)
        held = dataclasses.replace(wanted, wanted_hosts=0, wanted_readers=0)
        workers.follow(wanted, is_leaving=False)
        workers.follow(held, is_leaving=False)
        workers.follow(wanted, is_leaving=False)
        workers.follow(wanted, is_leaving=True)
        assert numbers(server) == [3, 0, 3, 0]
        workers.follow(wanted, is_leaving=False)
        workers.follow(dataclasses.replace(wanted, state=JobState.DONE, wanted_hosts=0, wanted_readers=0), is_leaving=False)  # fmt: skip
        assert readers_of(server) == 3, "they leave by order"
        server.put(PLACE.path, {**jobset(), "status": completed()})
        workers.end()
        assert readers_of(server) == 0
        idle = ClusterWorkers(Suspension(api_of(server), PLACE), clock=clock, readers=scale)
        server.put(SET_PATH, stateful_set(2))
        clock.now += 30
        idle.keep_suspended()
        assert readers_of(server) == 0, "what a killed process of the other phase has left running"


def test_the_end_of_readers_is_asked_for_again(server: KubernetesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API is away when the job ends, and back before the JobSet is given up."""
    server.put(PLACE.path, {**jobset(), "status": completed()})
    server.put(SET_PATH, stateful_set(2))
    server.fail_with = 503

    def come_back(secs: float) -> None:
        server.fail_with = 0

    monkeypatch.setattr(time, "sleep", come_back)
    with scale_of(server) as (scale, clock, _):
        ClusterWorkers(Suspension(api_of(server), PLACE), clock=clock, readers=scale).end()
    assert readers_of(server) == 0
    assert "suspend" not in server.spec(PLACE.path), "it has completed by itself"


#: A reader is given two units at once; a smaller number must have been enough for two seconds.
LIMITS = BufferSettings(limit_bytes=64 << 10, shrink_after_secs=2.0)
#: The host trains a unit in this time; a slow disk delays the first read of a fragment by a reader.
UNIT_SECS, SLOW_SECS = 0.1, 0.6
ROWS, FRAGMENTS = 20, 48


class Host:
    """A host that only takes units, at one speed, and reports how full its buffer is."""

    def __init__(self, serving: Serving, solution: ReadSolution) -> None:
        self.fullness: list[tuple[float, int]] = []
        token = serving.files.read_token()
        layout = lay_out([TypedInput(item.name, item.type) for item in solution.inputs], config("run"))
        self.buffer = UnitBuffer(
            self._units(solution), lambda name: RemoteFetcher(name, token=token), UnitDecoder(layout), settings=LIMITS
        )
        self.member = Membership(
            serving.client, Role(RoleKind.HOST, "h0"), release="", beat_secs=0.1, report=self._report,
            on_orders=lambda orders, peers: self.buffer.set_readers(
                [one.address for one in peers if one.role.kind is RoleKind.READER]
            ),
        )  # fmt: skip
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._train, daemon=True)

    @staticmethod
    def _units(solution: ReadSolution) -> Iterator[UnitRequest]:
        """Each fragment is a unit, again and again."""
        keys = [f"{part.key}#{position}" for part in solution.partitions for position, _ in enumerate(part.fragments)]
        digest = solution.digest()
        return (UnitRequest(number, 1, digest, keys[number % len(keys)], 0, ROWS) for number in count())

    def _report(self) -> RoleReport:
        return RoleReport(buffer=self.buffer.sample())

    def _train(self) -> None:
        while not self._ended.is_set() and self.buffer.take() is not None:
            self._ended.wait(UNIT_SECS)

    def __enter__(self) -> Host:
        self.member.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.buffer.close()
        self.member.close()
        self._thread.join()


def reader_manifest(folder: Path, controller: str, slow: Path) -> dict[str, Any]:
    """The StatefulSet of one to three readers that a launcher writes, whose disk may be slow."""
    target = folder / "job.yaml"
    arguments = ["train", "ctr", "--version", "1", "--launcher", "gke", "--job-name", "ctr", "--namespace", "team", "--readers", "1..3",
                 "--images", "example.com/headrace", "--home", "gs://b/home", "--run-dir", "gs://b/run", "--output", str(target)]  # fmt: skip
    assert run(arguments) == 0
    (found,) = (one for one in yaml.safe_load_all(target.read_text()) if one["kind"] == "StatefulSet")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    container["args"][container["args"].index("--controller") + 1] = controller
    container["args"] += ["--slow-disk", os.path.relpath(slow)]
    return dict(found)


@pytest.mark.slow
def test_reader_processes_follow_the_fullness_of_the_buffer(server: KubernetesServer, tmp_path: Path) -> None:
    """Up to the most while the host is starved by slow disks, down to the least when the buffer is full; none after the job."""
    home, slow = tmp_path / "home", SlowDisk(tmp_path / "slow")
    for day, hour in (divmod(number, 24) for number in range(FRAGMENTS)):
        path = tmp_path / "log" / f"date=2026-01-{day + 1:02}" / f"hour={hour:02}" / "part.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(events(ROWS, seed=24 * day + hour), path)
    with Warehouse.open(WarehouseConfig(str(home), rates=FREE_READS)) as warehouse:
        register_table(warehouse, "log", str(tmp_path / "log"))
        submit_model(warehouse, model())
        work(warehouse)
        solution = read_solution(warehouse, "ctr")
    phase = PhaseSettings(least_readers=1, most_readers=3)
    settings, files = job_settings(initial=phase), JobFiles(tmp_path / "run")
    JobSpec(FORMAT, JOB, settings, None, home=str(home), bucket_run="gs://b/run").write(files)
    put_solution(files, solution)
    slow.set(SLOW_SECS)
    server.put(PLACE.path, jobset(suspend=True))
    data = DataRange("plan", 1 << 20, (1 << 20,))
    with serving(tmp_path / "run", settings=settings, data=data, buffer=LIMITS) as job:
        documents = [reader_manifest(tmp_path, str(job.service.address), slow.file)]
        secrets = {"ctr": {"token": files.read_token(), "catalog-url": f"sqlite:///{home}/catalog.db"}}
        api = api_of(server)
        suspension = Suspension(api, PLACE)
        workers = ClusterWorkers(suspension, readers=SetScale(api, SET, suspension))
        with Pods(tmp_path / "pods", documents, secrets, server, {}) as pods, Host(job, solution) as host:

            def live() -> list[str]:
                """The readers of the job, after its workers have followed what it wants."""
                status = job.client.status()
                workers.follow(status, is_leaving=False)
                return [one.role.name for one in status.live(RoleKind.READER)]

            pods.wait_until(lambda: live() == ["r0", "r1", "r2"], "three readers are members while the host is starved")
            assert numbers(server)[-1] == 3
            slow.set(0)
            pods.wait_until(lambda: live() == ["r0"], "one reader is left when the buffer is full")
            assert host.buffer.sample().fullness >= LIMITS.low
            assert numbers(server)[-1] == 1
            assert set(numbers(server)) <= {1, 2, 3}
            surplus = [pods.pod("", k) for k in (1, 2, 3)]
            pods.wait_until(lambda: all(one.process is None for one in surplus), "the others have ended")
            assert pods.pod("").process is not None
            assert [set(one.statuses) for one in surplus] == [{75}, {75}, set()], (
                "they have left the job, which goes on"
            )
            server.put(PLACE.path, {**jobset(), "status": completed()})
            workers.end()
            pods.wait_until(lambda: pods.pod("").process is None, "the last one has ended")
            assert pods.pod("").starts == 1, "no reader was started twice"
    assert job.error is None
