"""Runs the pods of rendered manifests as processes of this machine, each in a folder of its own, with an address of its own.

A JobSet is followed as a cluster follows it: while it is suspended its pods are terminated, else each index of its Jobs has a process
until one ends with status 0. When it is complete, the pods that are left are terminated. A StatefulSet has a process for each index below its
number, whatever the status of the one before. A pod's paths are in its folder, and its volumes hold only what the manifest puts there.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.kubernetes_server import KubernetesServer, completed
from tests.support.processes import PATIENCE_SECS

Document = Mapping[str, Any]

#: Between two looks at a process.
_LOOK_SECS = 0.05


@dataclass
class Pod:
    """A place for a pod, its process, and the statuses of those before it. ``jobset``: its JobSet, or the StatefulSet of a pod without a job."""

    jobset: str
    job: str
    index: int
    ip: str
    template: Document
    process: subprocess.Popen[bytes] | None = None
    statuses: list[int] = field(default_factory=list)
    starts: int = 0

    @property
    def name(self) -> str:
        return f"{self.jobset}-{self.job}-0-{self.index}" if self.job else f"{self.jobset}-{self.index}"

    @property
    def is_complete(self) -> bool:
        return self.process is None and self.statuses[-1:] == [0]


class Pods:
    """The pods of some JobSets; a context manager.

    Args:
        folder: of the pods' folders.
        documents: the rendered manifests.
        secrets: the values of each secret.
        server: the API server, which holds the JobSets.
        environment: of all processes, beside what the manifests say.
        most_scaled: the most pods of a StatefulSet; one more is an error.
    """

    def __init__(
        self,
        folder: Path,
        documents: Sequence[Document],
        secrets: Mapping[str, Mapping[str, str]],
        server: KubernetesServer,
        environment: Mapping[str, str],
        most_scaled: int = 4,
    ) -> None:
        self.folder, self._secrets, self._server = folder, secrets, server
        self._environment = dict(environment)
        self._objects = {(one["kind"], one["metadata"]["name"]): one for one in documents}
        self._completed: set[str] = set()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        net = f"127.{random.randint(2, 250)}.{random.randint(1, 250)}"
        self.pods: list[Pod] = []
        for (kind, name), one in self._objects.items():
            if kind == "StatefulSet":
                server.put(stateful_set_path(one), one)
                for index in range(most_scaled):
                    ip = f"{net}.{len(self.pods) + 1}"
                    self.pods.append(Pod(name, "", index, ip, one["spec"]["template"]["spec"]))
            if kind != "JobSet":
                continue
            server.put(jobset_path(one), {**one, "metadata": {**one["metadata"], "uid": f"uid-{name}"}})
            for job in one["spec"]["replicatedJobs"]:
                spec = job["template"]["spec"]
                for index in range(spec["completions"]):
                    ip = f"{net}.{len(self.pods) + 1}"
                    self.pods.append(Pod(name, job["name"], index, ip, spec["template"]["spec"]))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Pods:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_SECS)
        for pod in self.pods:
            if pod.process is not None:
                pod.process.kill()
                pod.process.wait()

    def pod(self, job: str, index: int = 0, jobset: str = "") -> Pod:
        return next(one for one in self.pods if (one.job, one.index) == (job, index) and jobset in ("", one.jobset))

    def signal(self, job: str, number: int, index: int = 0) -> None:
        """Send a signal to the process of a pod, such as SIGTERM when its machine is drained."""
        with self._lock:
            process = self.pod(job, index).process
            assert process is not None
            process.send_signal(number)

    def wait_until(self, happened: Any, what: str) -> None:
        end = time.monotonic() + PATIENCE_SECS
        while not happened():
            if self._error is not None:
                raise self._error
            assert time.monotonic() < end, f"waited until {what}\n{self.story()}"
            time.sleep(0.02)

    def story(self) -> str:
        """What the pods did, and the ends of their logs."""
        facts = [f"{pod.name}: started {pod.starts} times, ended with {pod.statuses}" for pod in self.pods]
        patches = [f"{one.path}: {one.body}" for one in self._server.patches()]
        return "\n".join([*facts, *patches, self.logs()])

    def logs(self) -> str:
        return "\n".join(f"== {path.stem}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))

    def path_in(self, pod: Pod, path: str) -> Path:
        """A path of a pod's container on this machine: in a volume, or in the pod's own folder."""
        container = pod.template["containers"][0]
        for mount in container["volumeMounts"]:
            if path == mount["mountPath"] or path.startswith(f"{mount['mountPath']}/"):
                rest = path.removeprefix(mount["mountPath"]).lstrip("/")
                return self._volume(pod, mount["name"]) / rest
        return self.folder / pod.name / path.lstrip("/")

    def _run(self) -> None:
        try:
            while not self._ended.wait(_LOOK_SECS):
                for (kind, _), one in self._objects.items():
                    if kind == "JobSet":
                        self._follow(one)
                    elif kind == "StatefulSet":
                        self._follow_number(one)
        except BaseException as error:
            self._error = error

    def _follow(self, jobset: Document) -> None:
        path = jobset_path(jobset)
        is_suspended = self._server.spec(path).get("suspend", False)
        mine = [pod for pod in self.pods if pod.jobset == jobset["metadata"]["name"]]
        for pod in mine:
            with self._lock:
                self._reap(pod)
                if (is_suspended or path in self._completed) and pod.process is not None:
                    self._terminate(pod)
                elif not is_suspended and path not in self._completed and pod.process is None and not pod.is_complete:
                    self._start(pod)
        targets = jobset["spec"].get("successPolicy", {}).get("targetReplicatedJobs")
        if all(pod.is_complete for pod in mine if not targets or pod.job in targets):
            self._completed.add(path)
            with self._server.lock:
                self._server.objects[path]["status"] = completed()

    def _follow_number(self, stateful_set: Document) -> None:
        replicas = self._server.spec(stateful_set_path(stateful_set))["replicas"]
        mine = [pod for pod in self.pods if pod.jobset == stateful_set["metadata"]["name"]]
        assert replicas <= len(mine), f"{replicas} pods of {stateful_set['metadata']['name']}"
        for pod in mine:
            with self._lock:
                self._reap(pod)
                if pod.index >= replicas and pod.process is not None:
                    self._terminate(pod)
                elif pod.index < replicas and pod.process is None:
                    self._start(pod)

    def _reap(self, pod: Pod) -> None:
        if pod.process is not None and pod.process.poll() is not None:
            pod.statuses.append(pod.process.returncode)
            pod.process = None

    def _terminate(self, pod: Pod) -> None:
        process = pod.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(pod.template["terminationGracePeriodSeconds"])
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        pod.statuses.append(process.returncode)
        pod.process = None

    def _start(self, pod: Pod) -> None:
        root = self.folder / pod.name
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        container = pod.template["containers"][0]
        variables = {one["name"]: self._value(pod, one) for one in container["env"]}
        found = {key: value for key, value in variables.items() if value is not None}
        words = [self._expanded(pod, one, found) for one in [*container["command"], *container["args"]]]
        assert words[0] == "headrace"
        address = self._server.address
        environment = {**os.environ, **self._environment, **found,
                       "KUBERNETES_SERVICE_HOST": address.host, "KUBERNETES_SERVICE_PORT": str(address.port)}  # fmt: skip
        if pod.template.get("automountServiceAccountToken", True):
            account = root / "var/run/secrets/kubernetes.io/serviceaccount"
            shutil.copytree(self._server.folder, account)
        with open(self.folder / f"{pod.name}.log", "ab") as log:
            pod.process = subprocess.Popen([sys.executable, "-m", "headrace", *words[1:]], stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=log, env=environment)  # fmt: skip
        pod.starts += 1

    def _value(self, pod: Pod, variable: Document) -> str | None:
        source = variable["valueFrom"]
        if "fieldRef" in source:
            field_path = source["fieldRef"]["fieldPath"]
            return pod.ip if field_path == "status.podIP" else str(pod.index)
        reference = source["secretKeyRef"]
        value = self._secrets.get(reference["name"], {}).get(reference["key"])
        assert value is not None or reference["optional"]
        return value

    def _expanded(self, pod: Pod, text: str, variables: Mapping[str, str]) -> str:
        """An argument as the container gets it, with paths and addresses of this machine."""
        for name, value in variables.items():
            text = text.replace(f"$({name})", value)
        assert "$(" not in text.replace("$$(", ""), text
        text = text.replace("$$(", "$(")
        for other in self.pods:
            text = text.replace(f"{other.name}.{other.jobset}:", f"{other.ip}:")
        return str(self.path_in(pod, text)) if text.startswith("/") else text

    def _volume(self, pod: Pod, name: str) -> Path:
        (volume,) = (one for one in pod.template["volumes"] if one["name"] == name)
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            assert ("PersistentVolumeClaim", claim) in self._objects
            place = self.folder / "claims" / claim
            place.mkdir(parents=True, exist_ok=True)
            return place
        place = self.folder / pod.name / "volumes" / name
        if place.exists():
            return place
        place.mkdir(parents=True)
        if "secret" in volume:
            values = self._secrets[volume["secret"]["secretName"]]
            for item in volume["secret"]["items"]:
                (place / item["path"]).write_text(values[item["key"]])
        elif "configMap" in volume:
            for key, value in self._objects["ConfigMap", volume["configMap"]["name"]]["data"].items():
                (place / key).write_text(value)
        else:
            assert "emptyDir" in volume
        return place


def jobset_path(document: Document) -> str:
    """The path of a JobSet in the API."""
    metadata = document["metadata"]
    return f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{metadata['namespace']}/jobsets/{metadata['name']}"


def stateful_set_path(document: Document) -> str:
    """The path of a StatefulSet in the API."""
    metadata = document["metadata"]
    return f"/apis/apps/v1/namespaces/{metadata['namespace']}/statefulsets/{metadata['name']}"
