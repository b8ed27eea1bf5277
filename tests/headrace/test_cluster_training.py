"""Training jobs of the pods that rendered manifests describe: real processes that share a bucket and a secret, and no folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tests.headrace.test_exporting_training import check_served
from tests.support.gcs_server import GcsServer
from tests.support.kubernetes_server import Request, kubernetes_server
from tests.support.pods import Pods
from tests.support.processes import PATIENCE_SECS
from tests.trainer.job.launch.jobs import newest
from tests.trainer.job.launch.test_training_job import same
from tests.warehouse.scenes import FREE_READS, events, model, work, write_log, write_partition
from trainer.checkpoints.checkpoint import epochs_committed
from trainer.job.control.controller_client import ControllerClient
from trainer.job.control.job_files import JobFiles
from trainer.job.control.messages import JobStatus
from trainer.job.launch.job_spec import JobSpec
from trainer.job.launch.phase_log import PhaseLog
from trainer.run.weights.saved_run import saved_run
from trainer.scheduling.transitions import JobState
from trainer.serving.deltas.chain_files import link_places, open_chain, read_chain
from transforms.errors import HeadraceError
from warehouse import Storage, Warehouse, register_table, submit_model
from warehouse.config import WarehouseConfig

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.slow
OPTIONS = {"batch_rows": 64, "dim": 4, "bottom_mlp": [8], "top_mlp": [8], "deep": True, "linear": False, "passes": 2,
           "embedding_learning_rate": 0.05, "dense_learning_rate": 0.003, "partitions_per_epoch": 4,
           "deterministic": True}  # fmt: skip
TOKEN = "0123456789abcdef0123456789abcdef"


class Site:
    """A warehouse in a bucket, and the commands on it."""

    def __init__(self, folder: Path, server: GcsServer, *, hours: int = 16, rows: int = 100) -> None:
        self.folder, self._server, self.bucket = folder, server, server.bucket()
        self.home, self.run = self.place("home"), self.place("runs/ctr-v1")
        self.catalog = f"sqlite:///{folder}/catalog.db"
        log = write_log(folder / "log", hours=hours, rows=rows)
        storage = Storage(self.home)
        for path in log.rglob("*.parquet"):
            storage.write_atomic(f"gs://{self.bucket}/log/{path.relative_to(log)}", path.read_bytes())
        with self.open() as warehouse:
            register_table(warehouse, "log", f"gs://{self.bucket}/log")
            submit_model(warehouse, model(inputs=5))

    def place(self, path: str) -> str:
        return self._server.home(self.bucket, path)

    def open(self) -> Warehouse:
        return Warehouse.open(WarehouseConfig(home=self.home, catalog_url=self.catalog, rates=FREE_READS))

    def memoize(self) -> None:
        with self.open() as warehouse:
            work(warehouse)

    def train(self, *arguments: str, options: dict[str, Any] = OPTIONS) -> str:
        """The output of ``headrace train``."""
        config = self.folder / "options.json"
        config.write_text(json.dumps(options))
        return self.command("train", "ctr", "--home", self.home, "--config", str(config), *arguments)

    def land(self, hour: int, rows: int = 100) -> None:
        """Another hour of the log, with its memos."""
        path = write_partition(self.folder / "log", hour, events(rows, seed=hour))
        place = f"gs://{self.bucket}/log/{path.relative_to(self.folder / 'log')}"
        Storage(self.home).write_atomic(place, path.read_bytes())
        with self.open() as warehouse:
            register_table(warehouse, "log", f"gs://{self.bucket}/log")
            work(warehouse)

    def phased_manifests(self, phases: str) -> list[dict[str, Any]]:
        """Those of a run file with these phases."""
        file = self.folder / "train.toml"
        options = "".join(f"{name} = {json.dumps(value)}\n" for name, value in {**OPTIONS, "passes": 1}.items())
        file.write_text(
            f'model = "ctr"\nversion = 1\nhome = "{self.home}"\nrun-dir = "{self.run}"\nlauncher = "gke"\njob-name = "ctr"\n'
            f'images = "example.com/headrace"\n{phases.format(options=options)}'
        )
        return list(yaml.safe_load_all(self.command("train", "--from", str(file))))

    def command(self, *arguments: str) -> str:
        """The output of a command of ``headrace``."""
        done = subprocess.run([sys.executable, "-m", "headrace", *arguments], capture_output=True, text=True, timeout=PATIENCE_SECS,
                              env={**os.environ, "HEADRACE_CATALOG_URL": self.catalog})  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def manifests(self, *arguments: str, **given: Any) -> list[dict[str, Any]]:
        """Those of a job of two hosts and a reader."""
        text = self.train("--version", "1", "--run-dir", self.run, "--launcher", "gke", "--job-name", "ctr", "--topology", "v5p:2x2x2",
                          "--images", "example.com/headrace", "--readers", "1", *arguments, **given)  # fmt: skip
        return list(yaml.safe_load_all(text))

    @property
    def secrets(self) -> dict[str, dict[str, str]]:
        return {"ctr": {"token": TOKEN, "catalog-url": self.catalog}}


def controller_status(pods: Pods) -> JobStatus | None:
    """The status of the job, by the files of its controller; None while it does not answer."""
    files = JobFiles(pods.path_in(pods.pod("controller"), "/var/lib/headrace/job"))
    try:
        client = ControllerClient.of_run(files, job=JobSpec.read(files).job, timeout_secs=5.0)
        try:
            return client.status()
        finally:
            client.close()
    except HeadraceError:
        return None


def in_state(pods: Pods, state: JobState) -> bool:
    found = controller_status(pods)
    return found is not None and found.state is state


def test_pods_on_machines_of_their_own_train_the_bits_of_one_machine(tmp_path: Path, gcs_server: GcsServer) -> None:
    """The workers start when the memos are there; a host, then the controller, is evicted and comes back."""
    site = Site(tmp_path, gcs_server)
    documents = site.manifests("--wait-for-memos", "--poll-secs", "0.3", "--epoch-secs", "0.01", "--grace-secs", "20")
    with (
        kubernetes_server(tmp_path / "account") as server,
        Pods(tmp_path / "pods", documents, site.secrets, server, {}) as pods,
    ):
        pods.wait_until(lambda: in_state(pods, JobState.HELD), "the job waits for its memos")
        site.memoize()
        pods.wait_until(lambda: epochs_committed(site.run) >= 2, "two epochs are committed")
        pods.signal("host", signal.SIGTERM, 1)
        pods.wait_until(lambda: pods.pod("host", 1).starts == 2, "the host is back")
        committed = epochs_committed(site.run)
        pods.wait_until(lambda: epochs_committed(site.run) > committed, "the job goes on")
        pods.signal("controller", signal.SIGTERM)
        pods.wait_until(lambda: pods.pod("controller").is_complete, "the job is done")
        pods.wait_until(lambda: all(pods.pod("host", k).is_complete for k in (0, 1)), "the hosts have ended")
        assert pods.pod("host", 1).statuses[0] == 75, pods.story()
        assert pods.pod("controller").statuses == [143, 0], pods.story()
        suspended = [one.body["spec"]["suspend"] for one in server.patches()]
        assert suspended == [False], "they start with the memos, and a controller that comes back leaves them alone"
        assert pods.pod("reader").starts == 1
    site.train("--hosts", "2", "--readers", "1", "--run-dir", str(tmp_path / "local"))
    same(site.run, tmp_path / "local")


@pytest.mark.parametrize("workers", [0, 2])
def test_pods_of_servers_hold_the_tables_of_a_job(tmp_path: Path, gcs_server: GcsServer, workers: int) -> None:
    """The pod of a server is evicted, with its rows, one of an embedding worker, then the controller; servers and workers end with the job."""
    site = Site(tmp_path, gcs_server)
    site.memoize()
    documents = site.manifests(
        "--topology", "", "--hosts", "2", "--servers", "2", "--epoch-secs", "0.01", "--grace-secs", "20",
        *(("--embedding-workers", str(workers)) if workers else ()),
    )  # fmt: skip
    with (
        kubernetes_server(tmp_path / "account") as server,
        Pods(tmp_path / "pods", documents, site.secrets, server, {}) as pods,
    ):
        pods.wait_until(lambda: epochs_committed(site.run) >= 2, "two epochs are committed")
        pods.signal("server", signal.SIGTERM, 1)
        pods.wait_until(lambda: pods.pod("server", 1).starts == 2, "the server is back")
        committed = epochs_committed(site.run)
        pods.wait_until(lambda: epochs_committed(site.run) > committed, "the job goes on without its rows")
        if workers:
            pods.signal("worker", signal.SIGTERM, 0)
            pods.wait_until(lambda: pods.pod("worker", 0).starts == 2, "the embedding worker is back")
        pods.signal("controller", signal.SIGTERM)
        pods.wait_until(lambda: pods.pod("controller").is_complete, "the job is done")
        servers = [pods.pod("server", k) for k in (0, 1)]
        pods.wait_until(lambda: all(one.process is None for one in servers), "the servers have ended")
        assert [one.statuses for one in servers] == [[143], [143, 143]], pods.story()
        of_workers = [pods.pod("worker", k) for k in range(workers)]
        pods.wait_until(lambda: all(one.process is None for one in of_workers), "the embedding workers have ended")
        assert [one.statuses for one in of_workers] == [[143, 143], [143]][:workers], pods.story()
        logs = [(pods.folder / f"{one.name}.log").read_text() for one in servers]
        assert not any("token must be" in text for text in logs), (
            "the controller watches the servers with the token of the job"
        )
        assert "have not committed in time" not in logs[1]
        assert pods.pod("controller").statuses == [143, 0], pods.story()
    site.train("--hosts", "2", "--readers", "1", "--run-dir", str(tmp_path / "local"))
    same(site.run, tmp_path / "local")


def test_the_controller_of_a_cluster_exports_each_commit_to_a_bucket(tmp_path: Path, gcs_server: GcsServer) -> None:
    """It is killed while it exports, and comes back on another machine with its disk; servers have the weights of the newest commit."""
    site = Site(tmp_path, gcs_server, hours=8)
    site.memoize()
    chain = site.place("links")
    options = {**OPTIONS, "partitions_per_epoch": 1, "keep_checkpoints": 1}
    documents = site.manifests("--topology", "", "--hosts", "2", "--epoch-secs", "0.01", "--export", chain, options=options)  # fmt: skip
    with (
        kubernetes_server(tmp_path / "account") as server,
        Pods(tmp_path / "pods", documents, site.secrets, server, {}) as pods,
    ):
        pods.wait_until(lambda: len(link_places(open_chain(chain))) >= 2, "two links are written")
        pods.signal("controller", signal.SIGKILL)
        pods.wait_until(lambda: pods.pod("controller").is_complete, "the job is done")
        assert pods.pod("controller").statuses == [-signal.SIGKILL, 0], pods.story()
        staged = [path.name for path in (pods.folder / "claims").rglob(".export/*")]
        assert staged == ["lock"], "nothing of a link is left on the disk"
    kinds = [one.manifest.kind for one in read_chain(chain)]
    assert kinds == ["full", *["delta"] * (len(kinds) - 1)]
    check_served(chain, site.run, tmp_path / "served")


def is_allowed(request: Request, rules: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the rules of a Role allow a request."""
    group, _, _, _, resource, *rest = request.path.removeprefix("/apis/").partition("?")[0].split("/")
    name, kind = (rest or [""])[0], "/".join([resource, *rest[1:]])
    verb = "patch" if request.method == "PATCH" else "get" if name else "list"
    return any(
        group in one["apiGroups"]
        and kind in one["resources"]
        and verb in one["verbs"]
        and name in one.get("resourceNames", [name])
        for one in rules
    )


def test_a_range_of_readers_is_scaled_by_the_controller(tmp_path: Path, gcs_server: GcsServer) -> None:
    """They start with the hosts, at least one, and none is left after the job; the Role allows all that is asked of the cluster."""
    site = Site(tmp_path, gcs_server, hours=8)
    site.memoize()
    documents = site.manifests("--topology", "", "--hosts", "2", "--readers", "1..2", "--epoch-secs", "0.01")
    with (
        kubernetes_server(tmp_path / "account") as server,
        Pods(tmp_path / "pods", documents, site.secrets, server, {}) as pods,
    ):
        pods.wait_until(lambda: pods.pod("controller").is_complete, "the job is done")
        assert server.spec("/apis/apps/v1/namespaces/default/statefulsets/ctr-readers")["replicas"] == 0
        numbers = [one.body["spec"]["replicas"] for one in server.patches() if one.path.endswith("/scale")]
        assert numbers[0] == 1, "the least number, while nothing is measured"
        assert set(numbers) <= {0, 1, 2}
        pods.wait_until(lambda: all(pods.pod("", k).process is None for k in range(2)), "the readers have ended")
        (role,) = (one for one in documents if one["kind"] == "Role")
        assert [one for one in server.requests if not is_allowed(one, role["rules"])] == []
    site.train("--hosts", "2", "--readers", "1", "--run-dir", str(tmp_path / "local"))
    same(site.run, tmp_path / "local")


def test_a_range_of_servers_is_scaled_by_the_controller(tmp_path: Path, gcs_server: GcsServer) -> None:
    """One begins, a person asks for two, one of which is evicted, and for one again: the tables follow, and none is left after the job."""
    site = Site(tmp_path, gcs_server, hours=8)
    site.memoize()
    options = {**OPTIONS, "passes": 8, "keep_checkpoints": 2}
    documents = site.manifests(
        "--topology", "", "--hosts", "1", "--servers", "1..2", "--grace-secs", "20", options=options
    )

    def ask(servers: int) -> None:
        files = JobFiles(pods.path_in(pods.pod("controller"), "/var/lib/headrace/job"))
        client = ControllerClient.of_run(files, job=JobSpec.read(files).job, timeout_secs=30.0)
        try:
            client.servers(servers)
        finally:
            client.close()

    def trains_on(servers: int) -> bool:
        found = controller_status(pods)
        return found is not None and found.state is JobState.TRAINING and found.used_servers == servers

    with (
        kubernetes_server(tmp_path / "account") as server,
        Pods(tmp_path / "pods", documents, site.secrets, server, {}, most_scaled=2) as pods,
    ):
        pods.wait_until(lambda: trains_on(1), "the job trains on one server")
        ask(2)
        pods.wait_until(lambda: trains_on(2), "the job trains on two servers")
        pods.signal("", signal.SIGTERM, 1)
        pods.wait_until(lambda: pods.pod("", 1).starts == 2, "the second server is back")
        pods.wait_until(lambda: trains_on(2), "the job trains on two servers again")
        ask(1)
        pods.wait_until(lambda: trains_on(1) and pods.pod("", 1).process is None, "the second server has ended")
        pods.wait_until(lambda: pods.pod("controller").is_complete, "the job is done")
        assert server.spec("/apis/apps/v1/namespaces/default/statefulsets/ctr-servers")["replicas"] == 0
        numbers = [one.body["spec"]["replicas"] for one in server.patches() if one.path.endswith("/scale")]
        assert numbers == [1, 2, 1, 0]
        assert pods.pod("controller").statuses == [0], pods.story()
        (role,) = (one for one in documents if one["kind"] == "Role")
        assert [one for one in server.requests if not is_allowed(one, role["rules"])] == []
    site.train("--hosts", "1", "--readers", "1", "--run-dir", str(tmp_path / "local"), options=options)
    same(site.run, tmp_path / "local")


PHASED = """
follow = true
readers = 1
poll-secs = 0.3
grace-secs = 20
catch-up-secs = 0.001
[options]
{options}
[initial]
hosts = 2
plan = "plan.json"
epoch-secs = 0.01
options.staleness = 2
[caught_up]
hosts = 1
servers = 1
options.batch_rows = 16
options.embedding_learning_rate = 0.01
"""


def test_a_run_goes_from_phase_to_phase_in_one_set_of_manifests(tmp_path: Path, gcs_server: GcsServer) -> None:
    """The controller is killed at the end of initial training, which begins again, and at the switch to the other workers.

    Hosts hold the tables by a plan, then a parameter server does.
    """
    site = Site(tmp_path, gcs_server, hours=6)
    site.memoize()
    made = ("--config", json.dumps(OPTIONS), "--output", str(tmp_path / "plan.json"))
    site.command("plan", "make", "ctr", "--topology", "cpu:2", "--home", site.home, *made)
    with (
        kubernetes_server(tmp_path / "account") as server,
        Pods(tmp_path / "pods", site.phased_manifests(PHASED), site.secrets, server, {}) as pods,
    ):

        def suspensions(jobset: str) -> list[bool]:
            return [one.body["spec"]["suspend"] for one in server.patches() if one.path.endswith(f"/{jobset}")]

        def options() -> dict[str, Any]:
            return dict(newest(site.run).document["identity"]["config"])

        pods.wait_until(lambda: epochs_committed(site.run) > 0, "initial training has begun")
        site.land(6)
        pods.wait_until(lambda: suspensions("ctr-initial") == [False, True], "initial training has ended")
        pods.signal("controller", signal.SIGKILL)
        pods.wait_until(lambda: PhaseLog.read(site.run).is_caught_up, "initial training has caught up")
        pods.signal("controller", signal.SIGKILL)
        history = epochs_committed(site.run)
        assert (options()["batch_rows"], options()["staleness"]) == (64, 2)
        assert saved_run(newest(site.run)).partition is not None
        site.land(7)
        pods.wait_until(lambda: suspensions("ctr-caught-up") == [False], "the workers of caught-up training begin")
        pods.wait_until(lambda: epochs_committed(site.run) > history, "what has landed is committed")
        assert (options()["batch_rows"], options()["embedding_learning_rate"]) == (16, 0.01)
        pods.signal("controller", signal.SIGINT)
        pods.wait_until(lambda: pods.pod("controller").is_complete, "the job has stopped")
        assert pods.pod("controller").statuses == [-signal.SIGKILL, -signal.SIGKILL, 0], pods.story()
        assert suspensions("ctr-initial") == [False, True, False, True], pods.story()
        initial = [one for one in pods.pods if one.jobset == "ctr-initial"]
        assert len(initial) == 3
        assert all(one.process is None and 0 not in one.statuses for one in initial), "no worker is complete"
        assert all(one.starts for one in pods.pods), pods.story()
    saved = saved_run(newest(site.run))
    assert saved.counts is not None
    assert saved.partition is None
    trained = np.concatenate([counts for _, counts in saved.counts.counts()])
    assert (len(trained), set(trained.tolist())) == (800, {1}), "each event is trained once"
    *before, last = (one.phase for one in PhaseLog.read(site.run).runs)
    assert (set(before), last) == ({"initial"}, "caught_up")


def test_a_hold_suspends_all_but_the_controller_until_it_is_released(tmp_path: Path, gcs_server: GcsServer) -> None:
    """Training diverges; released, it diverges again; Ctrl-C then stops the job."""
    site = Site(tmp_path, gcs_server, hours=2, rows=700)
    site.memoize()
    documents = site.manifests(options={**OPTIONS, "embedding_learning_rate": 1e30, "dense_learning_rate": 1e30})
    with (
        kubernetes_server(tmp_path / "account") as server,
        Pods(tmp_path / "pods", documents, site.secrets, server, {}) as pods,
    ):

        def suspensions() -> list[bool]:
            return [one.body["spec"]["suspend"] for one in server.patches()]

        def are_gone() -> bool:
            return all(one.process is None for one in pods.pods if one.jobset == "ctr-workers")

        pods.wait_until(lambda: suspensions() == [False, True], "the hold suspends the workers")
        pods.wait_until(are_gone, "the workers have ended")
        assert in_state(pods, JobState.HELD)
        folder = str(pods.path_in(pods.pod("controller"), "/var/lib/headrace/job"))
        command = [sys.executable, "-m", "headrace", "holds", "release", folder]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_SECS)
        pods.wait_until(lambda: suspensions() == [False, True, False, True], "it is held again")
        pods.signal("controller", signal.SIGINT)
        pods.wait_until(lambda: pods.pod("controller").is_complete, "the job has stopped")
        assert pods.pod("controller").starts == 1
        assert "headrace holds release" in (pods.folder / "ctr-controller-0-0.log").read_text()
        assert all(0 not in one.statuses for one in pods.pods if one.jobset == "ctr-workers"), "no worker is complete"
