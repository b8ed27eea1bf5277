"""Suspending and resuming a JobSet, at a real HTTPS server that has the objects of a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes_server import KubernetesServer, completed, kubernetes_server, make_service_account
from tests.trainer.job.control.serving import serving
from trainer.errors import ClusterError, ConfigError
from trainer.job.launch.cluster import cluster_workers
from trainer.job.launch.cluster.cluster_workers import ClusterWorkers, suspended_afterwards
from trainer.job.launch.cluster.kubernetes_api import KubernetesApi
from trainer.job.launch.cluster.object_names import JobSetName
from trainer.job.launch.cluster.suspension import Suspension
from trainer.scheduling.transitions import JobState
from trainer.wire.flight.addresses import Address
from transforms.errors import InputError

PLACE = JobSetName("team", "ctr-workers")
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/namespaces/team/workloads"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KubernetesServer]:
    with kubernetes_server(tmp_path / "account") as found:
        yield found


def api_of(server: KubernetesServer) -> KubernetesApi:
    return KubernetesApi.of_service_account(server.address, server.folder, timeout_secs=10.0)


def jobset(queue: str = "", **spec: Any) -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    metadata = {"name": PLACE.name, "namespace": PLACE.namespace, "uid": "uid-1", "labels": labels}
    pod = {"containers": [{"name": "host", "image": "image"}], "restartPolicy": "Never"}
    job = {"name": "host", "template": {"spec": {"template": {"spec": pod}}}}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata,
            "spec": {"replicatedJobs": [job], **spec}}  # fmt: skip


def workload(name: str, uid: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": PLACE.namespace, "labels": {"kueue.x-k8s.io/job-uid": uid}}
    pod = {"containers": [{"name": "host", "image": "image"}]}
    podset = {"name": "host", "count": 1, "template": {"spec": pod}}
    return {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": metadata,
            "spec": {"podSets": [podset], **spec}}  # fmt: skip


@pytest.mark.slow
def test_a_jobset_is_suspended_and_resumed_by_its_own_field(server: KubernetesServer) -> None:
    suspension = Suspension(api_of(server), PLACE)
    server.put(PLACE.path, jobset())
    assert suspension.set(True)
    assert server.spec(PLACE.path)["suspend"] is True
    (sent,) = server.patches()
    assert (sent.path, sent.content_type) == (PLACE.path, "application/merge-patch+json")
    assert sent.body == {"spec": {"suspend": True}}
    assert suspension.set(True)
    assert len(server.patches()) == 1, "it is suspended already"
    assert suspension.set(False)
    assert server.spec(PLACE.path)["suspend"] is False
    assert server.spec(PLACE.path)["replicatedJobs"] == jobset()["spec"]["replicatedJobs"]


def test_a_queued_jobset_is_suspended_by_its_workload(server: KubernetesServer) -> None:
    """Kueue itself would resume the JobSet of an admitted Workload."""
    suspension = Suspension(api_of(server), PLACE)
    server.put(PLACE.path, jobset(queue="tpus"))
    assert not suspension.set(True), "Kueue has not made the Workload yet"
    server.put(f"{WORKLOADS}/jobset-ctr-1a2b3", workload("jobset-ctr-1a2b3", "uid-1"))
    server.put(f"{WORKLOADS}/jobset-other", workload("jobset-other", "uid-2"))
    assert suspension.set(True)
    assert server.spec(f"{WORKLOADS}/jobset-ctr-1a2b3")["active"] is False
    assert suspension.set(False)
    assert server.spec(f"{WORKLOADS}/jobset-ctr-1a2b3")["active"] is True
    assert "active" not in server.spec(f"{WORKLOADS}/jobset-other")
    assert "suspend" not in server.spec(PLACE.path)
    lists = {one.path for one in server.requests if "labelSelector" in one.path}
    assert lists == {f"{WORKLOADS}?labelSelector=kueue.x-k8s.io/job-uid=uid-1"}


def test_a_missing_jobset_is_no_error(server: KubernetesServer) -> None:
    assert not Suspension(api_of(server), PLACE).set(True)


def test_refusals_say_what_was_asked_and_answered(server: KubernetesServer) -> None:
    suspension = Suspension(api_of(server), PLACE)
    server.fail_with = 403
    with pytest.raises(ClusterError, match="must allow a request") as caught:
        suspension.set(True)
    assert caught.value.where == f"GET {PLACE.path}"
    assert caught.value.value == "403: refused by the test"
    server.fail_with = 0
    (server.folder / "token").write_text("another\n")
    server.put(PLACE.path, jobset())
    assert suspension.set(True), "the token is read for each request"


def test_a_server_that_is_away_and_one_of_another_authority_are_errors(
    server: KubernetesServer, tmp_path: Path
) -> None:
    server.put(PLACE.path, jobset())
    make_service_account(tmp_path / "other")
    other = KubernetesApi.of_service_account(server.address, tmp_path / "other")
    with pytest.raises(ClusterError, match="did not answer") as caught:
        other.get(PLACE.path)
    assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value.value)
    away = KubernetesApi.of_service_account(Address("127.0.0.1", 1), server.folder)
    with pytest.raises(ClusterError, match="did not answer"):
        away.patch(PLACE.path, {})
    assert server.requests == []


def test_an_account_without_its_files_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the files of its service account"):
        KubernetesApi.of_service_account(Address("127.0.0.1", 1), tmp_path)


@pytest.mark.parametrize("text", ["", "ctr", "/ctr", "team/", "team/Ctr", "team/ctr/x", "te am/ctr", "team/ctr?x=1"])
def test_a_jobset_must_be_named_by_namespace_and_name(text: str) -> None:
    with pytest.raises(ConfigError, match="must be named"):
        JobSetName.parse(text)
    assert JobSetName.parse("team/ctr-workers") == PLACE


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_workers_follow_what_the_controller_wants(server: KubernetesServer, tmp_path: Path) -> None:
    """A person may suspend what runs; what is to be suspended stays so; failures are said once and repeated."""
    said: list[str] = []
    clock = Clock()
    workers = ClusterWorkers(Suspension(api_of(server), PLACE), said.append, clock)
    with serving(tmp_path / "run") as found:
        wanted = found.client.status()
    assert wanted.wanted_hosts
    held = dataclasses.replace(wanted, wanted_hosts=0, wanted_readers=0)
    assert workers.are_gone(wanted)
    assert workers.wait_while_held
    workers.follow(wanted, is_leaving=False)
    workers.follow(wanted, is_leaving=False)
    assert said == ["JobSet team/ctr-workers is not there yet, or not queued"]
    server.put(PLACE.path, jobset(suspend=True))
    workers.follow(wanted, is_leaving=False)
    assert server.spec(PLACE.path)["suspend"] is True, "it looks again after some seconds"
    clock.now += 5
    workers.follow(wanted, is_leaving=False)
    assert server.spec(PLACE.path)["suspend"] is False
    server.put(PLACE.path, jobset(suspend=True))
    clock.now += 100
    workers.follow(wanted, is_leaving=False)
    assert server.spec(PLACE.path)["suspend"] is True, "a person has suspended it"
    server.put(PLACE.path, jobset())
    server.fail_with = 500
    workers.follow(held, is_leaving=False)
    assert said[1] == ("JobSet team/ctr-workers: the API of the cluster must allow a request: 500: refused by the test")
    server.fail_with = 0
    clock.now += 5
    workers.follow(held, is_leaving=False)
    assert server.spec(PLACE.path)["suspend"] is True
    server.put(PLACE.path, jobset())
    clock.now += 30
    workers.follow(held, is_leaving=False)
    assert server.spec(PLACE.path)["suspend"] is True
    workers.follow(wanted, is_leaving=False)
    assert server.spec(PLACE.path)["suspend"] is False
    workers.follow(wanted, is_leaving=True)
    assert server.spec(PLACE.path)["suspend"] is True
    assert len(said) == 2


def test_a_jobset_whose_job_is_done_completes_by_itself(server: KubernetesServer, tmp_path: Path) -> None:
    workers = ClusterWorkers(Suspension(api_of(server), PLACE))
    with serving(tmp_path / "run") as found:
        status = found.client.status()
    server.put(PLACE.path, jobset())
    workers.follow(dataclasses.replace(status, state=JobState.DONE, wanted_hosts=0, wanted_readers=0), is_leaving=False)
    assert server.requests == []
    server.put(PLACE.path, {**jobset(), "status": completed()})
    workers.end()
    assert server.patches() == []


def test_a_jobset_that_does_not_finish_is_suspended(server: KubernetesServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_workers, "_LOOK_SECS", 0.0)
    clock = Clock()
    said: list[str] = []

    def tick() -> float:
        clock.now += 10.0
        return clock.now

    server.put(PLACE.path, {**jobset(), "status": completed("False")})
    ClusterWorkers(Suspension(api_of(server), PLACE), said.append, tick).end()
    assert server.spec(PLACE.path)["suspend"] is True
    assert said == []


def test_a_jobset_for_another_job_is_suspended_at_once(server: KubernetesServer) -> None:
    """It is not looked at for a while whether it completes."""
    server.put(PLACE.path, jobset())
    ClusterWorkers(Suspension(api_of(server), PLACE), is_kept=True).end()
    assert server.spec(PLACE.path)["suspend"] is True
    assert [one.method for one in server.requests] == ["GET", "PATCH"]


def test_idle_workers_stay_suspended(server: KubernetesServer) -> None:
    """Also if a killed process resumes them late, or the API does not answer at first."""
    said: list[str] = []
    clock = Clock()
    workers = ClusterWorkers(Suspension(api_of(server), PLACE), said.append, clock)
    server.put(PLACE.path, jobset())
    server.fail_with = 500
    workers.keep_suspended()
    server.fail_with = 0
    clock.now += 5
    workers.keep_suspended()
    assert server.spec(PLACE.path)["suspend"] is True
    assert len(said) == 1
    server.put(PLACE.path, jobset())
    workers.keep_suspended()
    assert server.spec(PLACE.path).get("suspend", False) is False, "it looks again after half a minute"
    clock.now += 30
    workers.keep_suspended()
    assert server.spec(PLACE.path)["suspend"] is True


@pytest.mark.parametrize(("error", "suspended"), [(None, True), (ClusterError("x"), True), (SystemExit(143), False)])
def test_workers_are_suspended_after_the_job_but_not_when_its_process_is_terminated(
    server: KubernetesServer, error: BaseException | None, suspended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_workers, "_FINISH_SECS", 0.0)
    server.put(PLACE.path, jobset())
    workers = ClusterWorkers(Suspension(api_of(server), PLACE))

    def end() -> None:
        with suspended_afterwards(workers):
            if error is not None:
                raise error

    if error is None:
        end()
    else:
        with pytest.raises(type(error)):
            end()
    assert server.spec(PLACE.path).get("suspend", False) is suspended
