"""The Kubernetes objects of a job: the controller's JobSet, and that of its readers and hosts, which the controller suspends.

A range of readers is a StatefulSet of its own, whose ``scale`` the controller sets: a JobSet's jobs cannot change once they run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import yaml

from headrace.launchers.cluster_job import SERVER_PROCESSORS, ClusterJob, check_label, check_priority
from headrace.launchers.role_commands import (
    END_SECS,
    HOST_PORT,
    JOB_FOLDER,
    MEMORY_MOUNT,
    OPTIONS_FOLDER,
    READER_PORT,
    ROLE_FOLDER,
    SERVER_PORT,
    SERVICE_ACCOUNT_FOLDER,
    SLICE_PORT,
    TOKEN_FILE,
    WORKER_PORT,
    controller_command,
    controller_port,
    file_name,
    host_command,
    phases_command,
    reader_command,
    server_command,
    slice_command,
    worker_command,
)
from trainer.job.launch.cluster.suspension import QUEUE_LABEL
from trainer.job.launch.role_signals import LEFT_STATUS
from trainer.options.topology import Topology
from transforms.errors import InputError

Object = dict[str, Any]

#: The number of a pod in its Job, and in its StatefulSet.
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_SET_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"
_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
_SLICE = "slice"
#: The user of the images of controller and reader.
_USER = 1000
#: Statuses of roles that are started again without counting as failures: they left, or were terminated.
_PASSING_STATUSES = [LEFT_STATUS, 128 + 15]
#: Statuses of a controller that would fail alike again: wrong input, damaged data, an unknown name.
_LASTING_STATUSES = [2, 3, 4]
#: Failures of processes before a Job fails, and of a Job before its JobSet does. The controller has limits of its own, and holds.
_MOST_FAILURES, _MOST_RESTARTS = 100, 10
#: The disk of a controller that exports: a full snapshot and the ids and digests of its rows, exact weights of 640 million rows of 32 columns.
_EXPORT_DISK = "100Gi"
#: Of a ConfigMap, which takes 1 MiB with its names.
_MOST_FILES_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a job runs in a cluster.

    Attributes:
        namespace: of its objects.
        queue: the LocalQueue of Kueue; empty: no queue.
        priority: in that queue; empty: the queue's own.
    """

    namespace: str = "default"
    queue: str = ""
    priority: str = ""

    def __post_init__(self) -> None:
        check_label("--namespace", self.namespace)
        check_priority(self.priority)
        if self.queue:
            check_label("--queue", self.queue)
        elif self.priority:
            raise InputError("--priority must go with --queue", where="--priority", value=self.priority,
                             next_step="give the name of a LocalQueue with --queue")  # fmt: skip


#: The processes of a job, or of one of its phases, and where they run.
Placed = tuple[ClusterJob, Cluster]


def gke_manifests(*phases: Placed) -> tuple[Object, ...]:
    """The objects of a job, or of a run of several phases, in the order in which they are created.

    Phases have one controller, and a JobSet of all other processes each, of which one at most is not suspended.
    """
    placed = [(_literal(job), cluster) for job, cluster in phases]
    job, cluster = placed[0]
    files = _files(placed)
    return (
        _object("v1", "ServiceAccount", job, cluster, "controller"),
        _object("v1", "ServiceAccount", job, cluster, "workers"),
        _role(placed),
        _role_binding(job, cluster),
        *((_config_map(placed, files),) if files else ()),
        _controller_disk(job, cluster, has_export=any(one.has_export for one, _ in placed)),
        _controller_jobset(placed, has_files=bool(files)),
        *(_workers_jobset(*one) for one in placed),
        *(_reader_set(*one) for one in placed if one[0].is_scaled),
        *(found for one in placed if one[0].servers_from for found in _server_set(*one)),
    )


def to_yaml(documents: Sequence[Mapping[str, Any]]) -> str:
    """The documents as one YAML text, with texts of several lines as blocks."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, explicit_start=True)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Write equal values in full."""
        return True


def _write_text(dumper: _Dumper, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _write_text)


def _object(version: str, kind: str, job: ClusterJob, cluster: Cluster, suffix: str = "", **members: Any) -> Object:
    name = f"{job.name}-{suffix}" if suffix else job.name
    metadata = {"name": name, "namespace": cluster.namespace, "labels": _labels(job)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **members}


def _labels(job: ClusterJob) -> Object:
    return {"app.kubernetes.io/name": "headrace", "app.kubernetes.io/instance": job.name}


def _role(phases: Sequence[Placed]) -> Object:
    """What the controller may do: suspend its workers and set the number of its readers and servers, and no more."""
    job, cluster = phases[0]
    rules: list[Object] = [
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "resourceNames": [one.workers for one, _ in phases],
         "verbs": ["get", "patch"]},
    ]  # fmt: skip
    if any(one.queue for _, one in phases):
        rules.append({"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list", "patch"]})
    readers = [one.reader_set for one, _ in phases if one.is_scaled]
    if sets := [*readers, *(one.server_set for one, _ in phases if one.servers_from)]:
        rules.append({"apiGroups": ["apps"], "resources": ["statefulsets/scale"], "resourceNames": sets, "verbs": ["get", "patch"]})  # fmt: skip
    return _object("rbac.authorization.k8s.io/v1", "Role", job, cluster, "controller", rules=rules)


def _role_binding(job: ClusterJob, cluster: Cluster) -> Object:
    name, group = f"{job.name}-controller", "rbac.authorization.k8s.io"
    return _object(
        f"{group}/v1", "RoleBinding", job, cluster, "controller",
        roleRef={"apiGroup": group, "kind": "Role", "name": name},
        subjects=[{"kind": "ServiceAccount", "name": name, "namespace": cluster.namespace}],
    )  # fmt: skip


def _files(phases: Sequence[Placed]) -> dict[str, str]:
    """The files of the controller by name. Raises :class:`InputError` for more than a ConfigMap takes."""
    texts = [(job, {**({"options": job.options} if job.options else {}), **job.files}) for job, _ in phases]
    found = {file_name(job, name): text for job, files in texts for name, text in files.items()}
    if (size := sum(len(one.encode()) for one in found.values())) > _MOST_FILES_BYTES:
        raise InputError("the options, plans and towers of a job must fit a ConfigMap", where="--config, --plan, --towers",
                         value=f"{size:,} bytes", allowed=f"{_MOST_FILES_BYTES:,} bytes")  # fmt: skip
    return found


def _config_map(phases: Sequence[Placed], files: Mapping[str, str]) -> Object:
    return _object("v1", "ConfigMap", *phases[0], "options", data=dict(files), immutable=True)


def _controller_disk(job: ClusterJob, cluster: Cluster, *, has_export: bool) -> Object:
    """The disk of the job folder: the log, and with it a hold, outlives the controller's machine. A link is on it before it is in the bucket."""
    resources = {"requests": {"storage": _EXPORT_DISK if has_export else "1Gi"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
    return _object("v1", "PersistentVolumeClaim", job, cluster, "controller", spec=spec)


def _training(job: ClusterJob, cluster: Cluster) -> list[str]:
    """The command of the controller of a job, or of its phase."""
    workers = [_address(job, "worker", k, WORKER_PORT) for k in range(job.embedding_workers)]
    return [
        *controller_command(job, f"{_IP}:{controller_port(job)}", _server_addresses(job), workers),
        *("--jobset", f"{cluster.namespace}/{job.workers}", "--service-account", SERVICE_ACCOUNT_FOLDER),
        *(["--keep-jobset"] if job.is_repeated else []),
        *(["--reader-set", f"{cluster.namespace}/{job.reader_set}"] if job.is_scaled else []),
        *(["--server-set", f"{cluster.namespace}/{job.server_set}"] if job.servers_from else []),
    ]


def _controller_jobset(phases: Sequence[Placed], *, has_files: bool) -> Object:
    job, cluster = phases[0]
    trainings = [_training(*one) for one in phases]
    command = phases_command(trainings) if len(phases) > 1 else trainings[0]
    volumes: list[Object] = [
        _token_volume(job),
        {"name": "job", "persistentVolumeClaim": {"claimName": f"{job.name}-controller"}},
    ]
    mounts: list[Object] = [_TOKEN_MOUNT, {"name": "job", "mountPath": str(PurePosixPath(JOB_FOLDER).parent)}]
    if has_files:
        volumes.append({"name": "options", "configMap": {"name": f"{job.name}-options"}})
        mounts.append({"name": "options", "mountPath": OPTIONS_FOLDER, "readOnly": True})
    container = _container(
        job, "controller", command, mounts, {"cpu": "2", "memory": "8Gi"}, [_IP_VARIABLE, _catalog(job, optional=False)]
    )
    pod = {
        "serviceAccountName": f"{job.name}-controller",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER},
        "containers": [container],
        "volumes": volumes,
    }
    lasting = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": _LASTING_STATUSES}}
    replicated = _replicated_job(job, "controller", 1, pod, [lasting])
    rule = {"name": "wrongInput", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    spec = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "failurePolicy": {"maxRestarts": _MOST_RESTARTS, "rules": [rule]},
        "replicatedJobs": [replicated],
    }
    return _object("jobset.x-k8s.io/v1alpha2", "JobSet", job, cluster, spec=spec)


def _workers_jobset(job: ClusterJob, cluster: Cluster) -> Object:
    found = _object("jobset.x-k8s.io/v1alpha2", "JobSet", job, cluster, job.workers.removeprefix(f"{job.name}-"))
    spec: Object = {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "successPolicy": {"operator": "All", "targetReplicatedJobs": ["host"]},
        "failurePolicy": {"maxRestarts": _MOST_RESTARTS},
        "replicatedJobs": [
            _hosts(job),
            *([_slices(job)] if job.slice_machines else []),
            *(
                []
                if job.is_scaled
                else [_replicated_job(job, "reader", job.readers.most, _reader_pod(job, _INDEX_VARIABLE))]
            ),
            *([_servers(job)] if job.servers and not job.servers_from else []),
            *([_embedding_workers(job)] if job.embedding_workers else []),
        ],
    }
    if cluster.queue:
        found["metadata"]["labels"][QUEUE_LABEL] = cluster.queue
        if cluster.priority:
            found["metadata"]["labels"][_PRIORITY_LABEL] = f"headrace-{cluster.priority}"
    else:
        spec = {"suspend": True, **spec}  # until the controller wants them
    return {**found, "spec": spec}


def _hosts(job: ClusterJob) -> Object:
    selector, resources = _nodes_of_hosts(job)
    command = host_command(job, _NAME_OF_HOST, f"{_IP}:{HOST_PORT}", _controller_address(job), _machines_of_host(job))
    container = _container(job, "host", command, [_TOKEN_MOUNT, _ROLE_MOUNT], {}, [_IP_VARIABLE, _INDEX_VARIABLE])
    container["resources"] = resources
    pod = _worker_pod(job, container, math.ceil(job.grace_secs) + END_SECS)
    if selector:
        pod = {**pod, "nodeSelector": selector}
    found = _replicated_job(job, "host", job.hosts, pod)
    return found if job.topology is None or job.slice_machines else _on_one_slice(found)


def _on_one_slice(job: Object) -> Object:
    """A Job whose pods are all on nodes of one slice, which no other Job has."""
    slice_of_one_pool = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    return {**job, "template": {"metadata": {"annotations": slice_of_one_pool}, **job["template"]}}


def _slices(job: ClusterJob) -> Object:
    """A slice for each host, which drives the TensorFlow servers of its machines. They end when the JobSet is complete."""
    assert job.topology is not None
    selector, resources = _nodes_of_slice(job, job.topology)
    command = slice_command(job, f"h{_JOB_INDEX}", _controller_address(job))
    container = _container(job, "host", command, [_TOKEN_MOUNT], {}, [_JOB_INDEX_VARIABLE])
    container |= {"name": _SLICE, "resources": resources}
    pod = _worker_pod(job, container, math.ceil(job.grace_secs) + END_SECS)
    pod |= {"nodeSelector": selector, "volumes": [_token_volume(job)]}
    return _on_one_slice(_replicated_job(job, _SLICE, job.slice_machines, pod, replicas=job.hosts))


def _machines_of_host(job: ClusterJob) -> str:
    """The addresses of the TensorFlow servers that a host drives; empty where its devices are on its own machine."""
    names = (f"{job.workers}-slice-{_POD_INDEX}-{machine}.{job.workers}" for machine in range(job.slice_machines))
    return ",".join(f"{name}:{SLICE_PORT}" for name in names)


def _nodes_of_hosts(job: ClusterJob) -> tuple[Object, Object]:
    """The labels of the nodes of hosts, and the resources that a host takes of its node."""
    if job.topology is not None and not job.slice_machines:
        return _nodes_of_slice(job, job.topology)
    spot, own = _spot(job), {"cpu": "8", "memory": "32Gi"}
    if not job.gpu:
        return spot, {"requests": own}
    kind = {"cloud.google.com/gke-accelerator": job.accelerator} if job.accelerator else {}
    gpu = {"nvidia.com/gpu": "1"}  # GKE lets pods that ask for it on nodes with GPUs
    return {**kind, **spot}, {"requests": {**own, **gpu}, "limits": gpu}


def _nodes_of_slice(job: ClusterJob, topology: Topology) -> tuple[Object, Object]:
    """The labels of the nodes of a slice, and the resources that a process takes of its node: all chips."""
    of_slice = {
        "cloud.google.com/gke-tpu-accelerator": topology.generation.gke_accelerator,
        "cloud.google.com/gke-tpu-topology": topology.shape_text,
    }
    chips = {"google.com/tpu": str(topology.chips_per_host)}
    return {**of_slice, **_spot(job)}, {"requests": chips, "limits": chips}


def _spot(job: ClusterJob) -> Object:
    return {"cloud.google.com/gke-spot": "true"} if job.spot else {}


def _reader_set(job: ClusterJob, cluster: Cluster) -> Object:
    """A range of readers, none at first. The highest numbers end first; a reader that leaves is started again in its pod."""
    found = _object("apps/v1", "StatefulSet", job, cluster, job.reader_set.removeprefix(f"{job.name}-"))
    labels = {**_labels(job), "app.kubernetes.io/component": job.reader_set}
    spec: Object = {
        "replicas": 0,  # until the controller wants them
        "serviceName": job.workers,  # no name is asked for: readers tell the controller the addresses of their pods
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": _pod_metadata(job, labels),
            "spec": _reader_pod(job, _variable_of(_SET_INDEX)),
        },
    }
    return {**found, "spec": spec}


def _reader_pod(job: ClusterJob, index: Object) -> Object:
    command = reader_command(job, _NAME_OF_READER, f"{_IP}:{READER_PORT}", _controller_address(job))
    variables = [_IP_VARIABLE, index, _catalog(job, optional=True)]
    container = _container(
        job, "reader", command, [_TOKEN_MOUNT, _ROLE_MOUNT], {"cpu": "4", "memory": "8Gi"}, variables
    )
    pod = _worker_pod(job, container, 30)
    pod["securityContext"] = {"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}
    return pod


def _servers(job: ClusterJob) -> Object:
    """Parameter servers of a fixed number. They end when the JobSet is complete."""
    return _replicated_job(job, "server", job.servers, _server_pod(job))


def _server_set(job: ClusterJob, cluster: Cluster) -> tuple[Object, Object]:
    """A range of parameter servers, none at first, and the service in which each pod has a name that stays."""
    suffix = job.server_set.removeprefix(f"{job.name}-")
    labels = {**_labels(job), "app.kubernetes.io/component": job.server_set}
    service: Object = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": labels,
        "ports": [{"name": "rows", "port": SERVER_PORT}],
    }
    spec: Object = {
        "replicas": 0,  # until the controller wants them
        "serviceName": job.server_set,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {"metadata": _pod_metadata(job, labels), "spec": _server_pod(job)},
    }
    return (
        {**_object("v1", "Service", job, cluster, suffix), "spec": service},
        {**_object("apps/v1", "StatefulSet", job, cluster, suffix), "spec": spec},
    )


def _server_pod(job: ClusterJob) -> Object:
    """The pod of a parameter server: its rows are lost with it, after a commit."""
    command = server_command(job, f"{_IP}:{SERVER_PORT}")
    requests = {"cpu": str(max(SERVER_PROCESSORS, job.server_threads)), "memory": "16Gi"}
    container = _container(job, "server", command, [_TOKEN_MOUNT, _MEMORY_MOUNT], requests, [_IP_VARIABLE])
    container["image"] = job.images.of("reader")  # which has all that a server needs
    pod = _worker_pod(job, container, math.ceil(job.grace_secs) + END_SECS)
    pod["securityContext"] = {"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}
    pod["volumes"] = [_token_volume(job), {"name": "memory", "emptyDir": {"medium": "Memory"}}]
    return pod


def _embedding_workers(job: ClusterJob) -> Object:
    """Embedding workers, which hold nothing that is lost with their pods. They end when the JobSet is complete."""
    command = worker_command(job, f"{_IP}:{WORKER_PORT}", _server_addresses(job))
    container = _container(job, "worker", command, [_TOKEN_MOUNT], {"cpu": "4", "memory": "8Gi"}, [_IP_VARIABLE])
    container["image"] = job.images.of("reader")  # which has all that a worker needs
    pod = _worker_pod(job, container, math.ceil(job.grace_secs) + END_SECS)
    pod["securityContext"] = {"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}
    pod["volumes"] = [_token_volume(job)]
    return _replicated_job(job, "worker", job.embedding_workers, pod)


def _server_addresses(job: ClusterJob) -> list[str]:
    if job.servers_from:
        return [f"{job.server_set}-{k}.{job.server_set}:{SERVER_PORT}" for k in range(job.servers)]
    return [_address(job, "server", k, SERVER_PORT) for k in range(job.servers)]


def _address(job: ClusterJob, role: str, index: int, port: int) -> str:
    """A pod in the headless service of its JobSet."""
    return f"{job.workers}-{role}-0-{index}.{job.workers}:{port}"


def _worker_pod(job: ClusterJob, container: Object, termination_secs: int) -> Object:
    return {
        "serviceAccountName": f"{job.name}-workers",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": termination_secs,
        "containers": [container],
        "volumes": [_token_volume(job), {"name": "role", "emptyDir": {}}],
    }


def _replicated_job(
    job: ClusterJob, name: str, pods: int, pod: Object, rules: Sequence[Object] = (), *, replicas: int = 1
) -> Object:
    """One Job of the JobSet, or ``replicas`` equal ones. A pod that left or was disrupted is replaced, and is no failure."""
    evicted = [{"type": "DisruptionTarget", "status": "True"}]
    passing = [
        {"action": "Ignore", "onPodConditions": evicted},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": _PASSING_STATUSES}},
    ]
    spec = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": "Indexed",
        "backoffLimit": _MOST_FAILURES,
        "podFailurePolicy": {"rules": [*passing, *rules]},
        "template": {
            "metadata": _pod_metadata(job, {**_labels(job), "app.kubernetes.io/component": name}),
            "spec": {"restartPolicy": "Never", **pod},
        },
    }
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def _pod_metadata(job: ClusterJob, labels: Object) -> Object:
    """The labels of a pod, and the annotations by which a scraper finds its metrics, if it serves any."""
    if not job.metrics_port:
        return {"labels": labels}
    scraped = {"scrape": "true", "port": str(job.metrics_port), "path": "/metrics"}
    return {"labels": labels, "annotations": {f"prometheus.io/{key}": value for key, value in scraped.items()}}


def _container(
    job: ClusterJob,
    role: str,
    command: Sequence[str],
    mounts: Sequence[Object],
    requests: Mapping[str, str],
    variables: Sequence[Object],
) -> Object:
    return {
        "name": role,
        "image": job.images.of(role),
        "command": [command[0]],
        "args": list(command[1:]),
        "env": list(variables),
        **({"ports": [{"name": "metrics", "containerPort": job.metrics_port}]} if job.metrics_port else {}),
        "resources": {"requests": dict(requests)},
        "volumeMounts": list(mounts),
    }


def _controller_address(job: ClusterJob) -> str:
    """The controller's pod in the headless service of its JobSet."""
    return f"{job.name}-controller-0-0.{job.name}:{controller_port(job)}"


def _literal(job: ClusterJob) -> ClusterJob:
    """The job with texts in which Kubernetes replaces no variable: ``$$(`` is a literal ``$(``."""

    def escaped(text: str) -> str:
        return text.replace("$(", "$$(")

    return replace(
        job,
        run_dir=escaped(job.run_dir),
        home=escaped(job.home),
        arguments=tuple(map(escaped, job.arguments)),
        notice_metadata=escaped(job.notice_metadata),
    )


_IP, _POD_INDEX, _JOB_INDEX = "$(POD_IP)", "$(POD_INDEX)", "$(JOB_INDEX)"
_NAME_OF_HOST, _NAME_OF_READER = f"h{_POD_INDEX}", f"r{_POD_INDEX}"
_IP_VARIABLE = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def _variable_of(index: str) -> Object:
    """The variable with the number of a pod, which is at ``index`` of it."""
    return {"name": "POD_INDEX", "valueFrom": {"fieldRef": {"fieldPath": index}}}


_INDEX_VARIABLE = _variable_of(_INDEX)
#: The number of a Job among the equal ones of a JobSet.
_JOB_INDEX_VARIABLE = {**_variable_of("metadata.labels['jobset.sigs.k8s.io/job-index']"), "name": "JOB_INDEX"}


def _catalog(job: ClusterJob, *, optional: bool) -> Object:
    reference = {"name": job.name, "key": "catalog-url", "optional": optional}
    return {"name": "HEADRACE_CATALOG_URL", "valueFrom": {"secretKeyRef": reference}}


def _token_volume(job: ClusterJob) -> Object:
    name = PurePosixPath(TOKEN_FILE).name
    secret = {"secretName": job.name, "items": [{"key": "token", "path": name}], "defaultMode": 0o440}
    return {"name": "token", "secret": secret}


def _folder(path: str) -> str:
    return str(PurePosixPath(path).parent)


_TOKEN_MOUNT = {"name": "token", "mountPath": _folder(TOKEN_FILE), "readOnly": True}
_ROLE_MOUNT = {"name": "role", "mountPath": ROLE_FOLDER}
_MEMORY_MOUNT = {"name": "memory", "mountPath": MEMORY_MOUNT}
