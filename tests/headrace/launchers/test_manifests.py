"""The manifests that ``headrace train --launcher gke`` writes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli.main import run
from headrace.launchers.role_commands import SERVER_PORT
from tests.support.kubernetes_schemas import check_object
from trainer.planning.plan import PartitionPlan, Slice, TablePlan
from trainer.planning.plan_document import plan_bytes

GOLDENS = Path(__file__).parents[1] / "goldens"
EXAMPLES = Path(__file__).parents[3] / "examples" / "gke"
BASE = ["train", "ctr", "--version", "3", "--launcher", "gke", "--job-name", "ctr", "--topology", "v5p:4x4x4", "--readers", "8",
        "--images", "europe-west4-docker.pkg.dev/project/headrace:1.2.3", "--home", "gs://bucket/home", "--run-dir", "gs://bucket/runs/ctr"]  # fmt: skip
#: Hosts on nodes without TPUs.
ON_NODES = ["--topology", ""]
QUEUE = ["--namespace", "team", "--queue", "tpus", "--priority", "high"]


def rendered(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert run([*BASE, *options]) == 0, capsys.readouterr().err
    return list(yaml.safe_load_all(capsys.readouterr().out))


def check_golden(name: str, text: str) -> None:
    place = GOLDENS / name
    if os.environ.get("HEADRACE_WRITE_GOLDENS"):
        place.write_text(text, encoding="utf-8")
    assert text == place.read_text(encoding="utf-8")


def jobset(documents: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in documents if one["kind"] == "JobSet" and one["metadata"]["name"] == name)


def pod(documents: list[dict[str, Any]], job: str) -> dict[str, Any]:
    found = [
        one for document in documents if document["kind"] == "JobSet" for one in document["spec"]["replicatedJobs"]
    ]
    return next(one["template"]["spec"]["template"]["spec"] for one in found if one["name"] == job)


def arguments(documents: list[dict[str, Any]], job: str) -> list[str]:
    return list(pod(documents, job)["containers"][0]["args"])


def option(found: list[str], name: str) -> str:
    return found[found.index(name) + 1]


def test_the_manifests_of_a_job_without_a_queue(tmp_path: Path) -> None:
    options = tmp_path / "options.json"
    options.write_text('{"batch_rows": 4096, "note": "two\\nlines"}')
    target = tmp_path / "job.yaml"
    assert run([*BASE, "--config", str(options), "--epoch-secs", "600", "--follow", "--output", str(target)]) == 0
    check_golden("launch_gke.yaml", target.read_text())


def test_the_manifests_of_a_queued_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run([*BASE, *QUEUE, "--spot", "--grace-secs", "25", "--notice-metadata", "http://metadata.google.internal"])
        == 0
    )
    check_golden("launch_gke_queued.yaml", capsys.readouterr().out)


@pytest.mark.parametrize(
    "options",
    [
        [],
        QUEUE,
        ["--queue", "tpus"],
        ["--spot"],
        ["--topology", "v6e:2x4"],
        [*ON_NODES, "--servers", "3"],
        [*ON_NODES, "--hosts", "2", "--device", "gpu", "--accelerator", "nvidia-l4", "--spot"],
    ],
)
def test_each_object_is_valid_by_the_schema_of_its_kind(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    documents = rendered(capsys, *options)
    assert [one["kind"] for one in documents] == [
        "ServiceAccount", "ServiceAccount", "Role", "RoleBinding", "PersistentVolumeClaim", "JobSet", "JobSet",
    ]  # fmt: skip
    for one in documents:
        check_object(one)


def test_a_controller_that_exports_has_a_disk_for_a_link(capsys: pytest.CaptureFixture[str]) -> None:
    """Links are written there before they are in the bucket; nothing else differs."""

    def split(documents: list[dict[str, Any]]) -> tuple[str, list[dict[str, Any]]]:
        (disk,) = (one for one in documents if one["kind"] == "PersistentVolumeClaim")
        return disk["spec"]["resources"]["requests"].pop("storage"), documents

    plain, exporting = (split(rendered(capsys, *one)) for one in ((), ("--export", "gs://bucket/links", "--export-quantize", "fp16")))  # fmt: skip
    found = arguments(exporting[1], "controller")
    assert (option(found, "--export"), option(found, "--export-quantize")) == ("gs://bucket/links", "fp16")
    assert (plain[0], exporting[0]) == ("1Gi", "100Gi")
    container = pod(exporting[1], "controller")["containers"][0]
    container["args"] = [
        one for one in found if one not in ("--export", "gs://bucket/links", "--export-quantize", "fp16")
    ]
    assert exporting[1] == plain[1]


def test_a_wrong_object_is_not_valid(capsys: pytest.CaptureFixture[str]) -> None:
    """The schemas refuse what a cluster would drop or refuse."""
    for change in ({"suspended": True}, {"suspend": "yes"}, {"failurePolicy": {"restarts": 3}}):
        found = jobset(rendered(capsys), "ctr-workers")
        found["spec"].update(change)
        with pytest.raises(AssertionError):
            check_object(found)


@pytest.mark.parametrize(
    ("topology", "hosts", "chips", "accelerator", "shape"),
    [
        ("v4:2x2x4", 4, "4", "tpu-v4-podslice", "2x2x4"),
        ("v5e:2x4", 1, "8", "tpu-v5-lite-podslice", "2x4"),
        ("v5e:4x4", 4, "4", "tpu-v5-lite-podslice", "4x4"),
        ("v5p:4x4x4", 16, "4", "tpu-v5p-slice", "4x4x4"),
        ("v6e:1x1", 1, "1", "tpu-v6e-slice", "1x1"),
        ("tpu7x:2x2x1", 1, "4", "tpu7x", "2x2x1"),
    ],
)
def test_the_hosts_are_the_machines_of_the_slice(
    topology: str, hosts: int, chips: str, accelerator: str, shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = rendered(capsys, "--topology", topology, "--hosts", str(hosts))
    host = jobset(documents, "ctr-workers")["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (host["parallelism"], host["completions"]) == (hosts, hosts)
    found = pod(documents, "host")
    assert found["containers"][0]["resources"]["limits"] == {"google.com/tpu": chips}
    assert found["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": accelerator, "cloud.google.com/gke-tpu-topology": shape,
    }  # fmt: skip
    assert option(arguments(documents, "controller"), "--hosts") == str(hosts)


@pytest.mark.parametrize("by_option", [False, True])
def test_the_host_of_a_job_on_tpus_connects_to_them(
    by_option: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "options.json"
    config.write_text('{"engine": "tpu"}' if by_option else "{}")
    engine = ["--config", str(config)] if by_option else ["--tpu", "local"]
    documents = rendered(capsys, "--topology", "v5p:2x2x1", *engine, "--max-ids", "1024")
    host = arguments(documents, "host")
    assert option(host, "--tpu") == "local"
    assert option(host, "--max-ids") == "1024"
    assert "--max-unique-ids" not in host
    controller = arguments(documents, "controller")
    assert option(controller, "--hosts") == "1"
    assert option(controller, "--config" if by_option else "--tpu")
    assert "--tpu" not in arguments(rendered(capsys), "host"), "the cpu engine trains without the option"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--topology", "v5p:4x4x4", "--hosts", "16"], "the number of hosts must be that of the TPU slice"),
        (["--topology", "v5e:2x4"], "the tpu engine must have SparseCores"),
        (["--tpu", "my-slice", "--topology", "v5p:2x2x1"], "the TPUs of each host"),
        (["--topology", "v5p:2x2x1", "--config", "options.json"], "batch_rows must be a multiple of the SparseCores"),
        (["--topology", "v5p:2x2x1", "--hosts", "2"], "the number of hosts must be that of the TPU slice"),
    ],
)
def test_a_slice_on_which_the_tpu_engine_cannot_train_is_refused(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "options.json").write_text('{"batch_rows": 100}')
    assert run([*BASE, "--tpu", "local", *arguments]) == 2
    assert text in " ".join(capsys.readouterr().err.split())


def test_the_manifests_of_a_job_on_cpus_with_servers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BASE, *ON_NODES, "--hosts", "3", "--servers", "2"]) == 0
    text = capsys.readouterr().out
    assert "tpu" not in text.lower(), "nothing reserves a TPU"
    check_golden("launch_gke_cpu.yaml", text)


def test_the_manifests_of_a_job_on_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BASE, *ON_NODES, "--servers", "2", "--device", "gpu", "--accelerator", "nvidia-l4", "--spot"]) == 0
    text = capsys.readouterr().out
    assert "tpu" not in text.lower()
    check_golden("launch_gke_gpu.yaml", text)


def test_hosts_alone_have_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    documents = rendered(capsys, *ON_NODES, "--hosts", "2", "--servers", "2", "--device", "gpu")
    host = pod(documents, "host")
    assert host["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert "nodeSelector" not in host, "any GPU"
    assert option(arguments(documents, "host"), "--device") == "gpu"
    for role in ("server", "reader", "controller"):
        assert "limits" not in pod(documents, role)["containers"][0]["resources"]
        assert "--device" not in arguments(documents, role)
    assert option(arguments(documents, "controller"), "--hosts") == "2"


@pytest.mark.parametrize("topology", ["v5p:2x2x1", "v5e:2x2"])
def test_a_slice_beside_servers_has_the_dense_part_alone(topology: str, capsys: pytest.CaptureFixture[str]) -> None:
    """So it may be a generation without SparseCores; servers are no TPU machines."""
    documents = rendered(capsys, "--topology", topology, "--tpu", "local", "--servers", "2")
    assert option(arguments(documents, "host"), "--tpu") == "local"
    assert pod(documents, "host")["containers"][0]["resources"]["limits"] == {"google.com/tpu": "4"}
    for role in ("server", "reader"):
        assert "limits" not in pod(documents, role)["containers"][0]["resources"]
        assert "nodeSelector" not in pod(documents, role)
    assert "--servers" in arguments(documents, "controller")


def test_roles_find_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """The controller's name is that of its pod in the service of its JobSet; each role serves at its pod's address."""
    documents = rendered(capsys)
    controller = jobset(documents, "ctr")["spec"]
    assert controller["network"]["enableDNSHostnames"] is True
    assert "subdomain" not in controller["network"], "the JobSet's name is the service's"
    for role in ("host", "reader"):
        found = arguments(documents, role)
        assert option(found, "--controller") == "ctr-controller-0-0.ctr:7410"
        assert option(found, "--address").startswith("$(POD_IP):")
        names = [one["name"] for one in pod(documents, role)["containers"][0]["env"]]
        assert {"POD_IP", "POD_INDEX"} <= set(names)
        assert option(found, "--name") == f"{role[0]}$(POD_INDEX)"
    found = arguments(documents, "controller")
    assert option(found, "--listen") == "$(POD_IP):7410"
    assert option(found, "--jobset") == "default/ctr-workers"


def test_hosts_beside_servers_have_a_slice_each(capsys: pytest.CaptureFixture[str]) -> None:
    """Slices of one machine: as many nodes of a pool, of which each is a slice."""
    documents = rendered(capsys, "--topology", "v6e:2x4", "--tpu", "local", "--servers", "2", "--hosts", "3")
    host = jobset(documents, "ctr-workers")["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (host["parallelism"], host["completions"]) == (3, 3)
    found = pod(documents, "host")
    assert found["containers"][0]["resources"]["limits"] == {"google.com/tpu": "8"}
    assert found["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "2x4"
    assert option(arguments(documents, "host"), "--tpu") == "local"
    assert option(arguments(documents, "controller"), "--hosts") == "3"


@pytest.mark.parametrize("hosts", [0, 3])
def test_a_host_drives_a_slice_of_several_machines_from_elsewhere(
    hosts: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """With tables in the slice there is one; beside servers each host has a slice of its own, on nodes of one pool."""
    beside = ["--servers", "2", "--hosts", str(hosts)] if hosts else []
    limits = [] if hosts else ["--max-ids", "512"]
    documents = rendered(capsys, "--topology", "v5p:2x2x2", "--tpu", "local", "--spot", *beside, *limits)
    jobs = {one["name"]: one for one in jobset(documents, "ctr-workers")["spec"]["replicatedJobs"]}
    assert jobs["slice"]["replicas"] == max(hosts, 1)
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    assert jobs["slice"]["template"]["metadata"]["annotations"] == exclusive
    assert "metadata" not in jobs["host"]["template"]
    machines, host = jobs["slice"]["template"]["spec"], pod(documents, "host")
    assert (machines["parallelism"], machines["completions"]) == (2, 2)
    found = pod(documents, "slice")
    assert found["containers"][0]["resources"]["limits"] == {"google.com/tpu": "4"}
    assert found["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "2x2x2"
    assert found["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert "limits" not in host["containers"][0]["resources"], "hosts are on nodes without TPUs"
    assert host["nodeSelector"] == {"cloud.google.com/gke-spot": "true"}
    driven = option(arguments(documents, "host"), "--tpu")
    assert driven == ",".join(f"ctr-workers-slice-$(POD_INDEX)-{k}.ctr-workers:7416" for k in range(2))
    assert arguments(documents, "host").count("--tpu") == 1
    serves = arguments(documents, "slice")
    assert serves[:6] == ["role", "tpu-server", "--port", "7416", "--host", "h$(JOB_INDEX)"]
    assert option(serves, "--controller") == "ctr-controller-0-0.ctr:7410"
    (variable,) = found["containers"][0]["env"]
    assert variable == {
        "name": "JOB_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/job-index']"}},
    }
    assert option(arguments(documents, "controller"), "--hosts") == str(max(hosts, 1))
    if limits:
        assert option(arguments(documents, "host"), "--max-ids") == "512"
    for document in documents:
        check_object(document)


def test_spare_servers_are_pods_beside_those_with_tables(capsys: pytest.CaptureFixture[str]) -> None:
    documents = rendered(capsys, *ON_NODES, "--hosts", "2", "--servers", "2", "--spare-servers", "1")
    (server,) = (one for one in jobset(documents, "ctr-workers")["spec"]["replicatedJobs"] if one["name"] == "server")
    assert server["template"]["spec"]["completions"] == 3
    controller = arguments(documents, "controller")
    assert option(controller, "--servers").count(",") == 2, "the last address is that of the spare"
    assert option(controller, "--spare-servers") == "1"


def test_a_range_of_readers_is_a_stateful_set_that_the_controller_scales(capsys: pytest.CaptureFixture[str]) -> None:
    """The controller may set its number, and change nothing else of it; a fixed number stays in the JobSet."""
    assert run([*BASE, *ON_NODES, "--hosts", "2", "--readers", "2..8"]) == 0
    text = capsys.readouterr().out
    check_golden("launch_gke_readers.yaml", text)
    documents = list(yaml.safe_load_all(text))
    for one in documents:
        check_object(one)
    role = next(one for one in documents if one["kind"] == "Role")
    assert role["rules"][1:] == [
        {"apiGroups": ["apps"], "resources": ["statefulsets/scale"], "resourceNames": ["ctr-readers"], "verbs": ["get", "patch"]}
    ]  # fmt: skip
    assert [one["name"] for one in jobset(documents, "ctr-workers")["spec"]["replicatedJobs"]] == ["host"]
    (found,) = (one for one in documents if one["kind"] == "StatefulSet")
    assert found["spec"]["replicas"] == 0, "none until the controller wants some"
    labels, selector = found["spec"]["template"]["metadata"]["labels"], found["spec"]["selector"]["matchLabels"]
    assert selector.items() <= labels.items()
    (container,) = found["spec"]["template"]["spec"]["containers"]
    (fixed,) = pod(rendered(capsys, *ON_NODES, "--hosts", "2"), "reader")["containers"]
    index = {
        "name": "POD_INDEX",
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']"}},
    }
    assert container == {**fixed, "env": [fixed["env"][0], index, *fixed["env"][2:]]}
    controller = arguments(documents, "controller")
    assert option(controller, "--readers") == "2..8"
    assert option(controller, "--reader-set") == "default/ctr-readers"
    alike = rendered(capsys, *ON_NODES, "--hosts", "2", "--readers", "8..8")
    assert alike == rendered(capsys, *ON_NODES, "--hosts", "2", "--readers", "8"), (
        "a range of one number is that number"
    )
    assert "--reader-set" not in arguments(alike, "controller")
    assert {one["kind"] for one in alike}.isdisjoint({"StatefulSet"})


def test_a_range_of_servers_is_a_stateful_set_with_names_that_stay(capsys: pytest.CaptureFixture[str]) -> None:
    """The controller may set their number; it and embedding workers know the names of all that may run."""
    given = (*ON_NODES, "--hosts", "2", "--embedding-workers", "1")
    assert run([*BASE, *given, "--servers", "2..4"]) == 0
    text = capsys.readouterr().out
    check_golden("launch_gke_server_range.yaml", text)
    documents = list(yaml.safe_load_all(text))
    for one in documents:
        check_object(one)
    role = next(one for one in documents if one["kind"] == "Role")
    assert role["rules"][1]["resourceNames"] == ["ctr-servers"]
    names = [one["name"] for one in jobset(documents, "ctr-workers")["spec"]["replicatedJobs"]]
    assert names == ["host", "reader", "worker"]
    service, found = (next(one for one in documents if one["kind"] == kind) for kind in ("Service", "StatefulSet"))
    labels = found["spec"]["template"]["metadata"]["labels"]
    assert service["metadata"]["name"] == found["spec"]["serviceName"] == "ctr-servers"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == found["spec"]["selector"]["matchLabels"] == labels
    assert found["spec"]["replicas"] == 0
    assert found["spec"]["template"]["spec"] == {
        key: value
        for key, value in pod(rendered(capsys, *given, "--servers", "4"), "server").items()
        if key != "restartPolicy"
    }
    addresses = ",".join(f"ctr-servers-{k}.ctr-servers:{SERVER_PORT}" for k in range(4))
    controller = arguments(documents, "controller")
    assert option(controller, "--servers") == addresses
    assert option(controller, "--scale-servers-from") == "2"
    assert option(controller, "--server-set") == "default/ctr-servers"
    assert option(arguments(documents, "worker"), "--servers") == addresses
    alike = rendered(capsys, *given, "--servers", "4..4")
    assert alike == rendered(capsys, *given, "--servers", "4"), "a range of one number is that number"


def test_servers_are_pods_that_the_controller_names(capsys: pytest.CaptureFixture[str]) -> None:
    documents = rendered(capsys, *ON_NODES, "--hosts", "16", "--servers", "2", "--wire-ids", "unique")
    jobs = jobset(documents, "ctr-workers")["spec"]["replicatedJobs"]
    assert [(one["name"], one["template"]["spec"]["completions"]) for one in jobs] == [
        ("host", 16),
        ("reader", 8),
        ("server", 2),
    ]
    assert jobset(documents, "ctr-workers")["spec"]["successPolicy"]["targetReplicatedJobs"] == ["host"], (
        "servers end with hosts"
    )
    found = arguments(documents, "server")
    assert found == [
        "ps", "serve", "--address", "$(POD_IP):7413", "--memory", "/dev/shm/rows", "--token-file", "/etc/headrace/job/token",
        "--threads", "4", "--runs", "gs://bucket/runs/ctr", "--terminated-status", "143", "--drain-secs", "30",
    ]  # fmt: skip
    ignored = jobs[2]["template"]["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"]
    assert 143 in ignored, "its pod is replaced"
    server = pod(documents, "server")
    assert server["terminationGracePeriodSeconds"] == 45, "the job commits before its rows are lost"
    assert server["volumes"][1] == {"name": "memory", "emptyDir": {"medium": "Memory"}}
    assert server["containers"][0]["volumeMounts"][1] == {"name": "memory", "mountPath": "/dev/shm"}
    controller = arguments(documents, "controller")
    addresses = ",".join(f"ctr-workers-server-0-{k}.ctr-workers:7413" for k in (0, 1))
    assert [one for one in controller if one.startswith("ctr-workers-server")] == [addresses]
    assert option(controller, "--servers") == addresses
    assert option(controller, "--wire-ids") == "unique"
    assert "--servers" not in arguments(rendered(capsys), "controller")
    controller = arguments(rendered(capsys, *ON_NODES, "--servers", "2", "--least-servers", "1"), "controller")
    assert option(controller, "--least-servers") == "1"


def test_the_threads_of_a_server_have_processors(capsys: pytest.CaptureFixture[str]) -> None:
    """As many as it is given, and never fewer than a pod has without the option; the controller only knows the addresses."""
    for given, threads, processors in (((), "4", "4"), (("2",), "2", "4"), (("16",), "16", "16")):
        own = ("--server-threads", *given) if given else ()
        documents = rendered(capsys, *ON_NODES, "--servers", "2", *own)
        assert option(arguments(documents, "server"), "--threads") == threads
        assert pod(documents, "server")["containers"][0]["resources"]["requests"]["cpu"] == processors
        assert "--server-threads" not in arguments(documents, "controller")


def test_embedding_workers_are_pods_between_hosts_and_servers(capsys: pytest.CaptureFixture[str]) -> None:
    documents = rendered(capsys, *ON_NODES, "--hosts", "4", "--servers", "2", "--embedding-workers", "3")
    for one in documents:
        check_object(one)
    jobs = jobset(documents, "ctr-workers")["spec"]["replicatedJobs"]
    assert [(one["name"], one["template"]["spec"]["completions"]) for one in jobs[2:]] == [("server", 2), ("worker", 3)]
    servers = ",".join(f"ctr-workers-server-0-{k}.ctr-workers:7413" for k in (0, 1))
    assert arguments(documents, "worker") == [
        "ps", "worker", "--servers", servers, "--address", "$(POD_IP):7415", "--token-file", "/etc/headrace/job/token",
        "--terminated-status", "143", "--drain-secs", "30",
    ]  # fmt: skip
    worker = pod(documents, "worker")
    assert worker["containers"][0]["image"] == pod(documents, "server")["containers"][0]["image"]
    assert worker["terminationGracePeriodSeconds"] == 45
    controller = arguments(documents, "controller")
    assert option(controller, "--servers") == servers
    workers = ",".join(f"ctr-workers-worker-0-{k}.ctr-workers:7415" for k in (0, 1, 2))
    assert option(controller, "--embedding-workers") == workers
    assert controller.count("--embedding-workers") == 1
    assert "--embedding-workers" not in arguments(rendered(capsys, *ON_NODES, "--servers", "2"), "controller")


def test_the_controller_alone_may_change_its_workers(capsys: pytest.CaptureFixture[str]) -> None:
    documents = rendered(capsys, *QUEUE)
    role = next(one for one in documents if one["kind"] == "Role")
    assert role["rules"] == [
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "resourceNames": ["ctr-workers"], "verbs": ["get", "patch"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list", "patch"]},
    ]  # fmt: skip
    binding = next(one for one in documents if one["kind"] == "RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "ctr-controller", "namespace": "team"}]
    assert pod(documents, "controller")["serviceAccountName"] == "ctr-controller"
    for one in ("host", "reader"):
        assert pod(documents, one)["automountServiceAccountToken"] is False
        assert pod(documents, one)["serviceAccountName"] == "ctr-workers"


def test_workers_are_suspended_until_the_controller_or_the_queue_resumes_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain, queued = (jobset(rendered(capsys, *options), "ctr-workers") for options in ([], QUEUE))
    assert plain["spec"]["suspend"] is True
    assert "suspend" not in queued["spec"], "Kueue suspends what has its label"
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "tpus"
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "headrace-high"
    labels = jobset(rendered(capsys, *QUEUE), "ctr")["metadata"]["labels"]
    assert not any("kueue" in one for one in labels), "the controller waits in no queue"


def test_hosts_may_commit_after_a_notice(capsys: pytest.CaptureFixture[str]) -> None:
    documents = rendered(capsys, "--grace-secs", "120.5")
    assert pod(documents, "host")["terminationGracePeriodSeconds"] == 136
    assert option(arguments(documents, "host"), "--grace-secs") == "120.5"
    rules = jobset(documents, "ctr-workers")["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"][
        "rules"
    ]
    assert [one["action"] for one in rules] == ["Ignore", "Ignore"]
    assert rules[1]["onExitCodes"]["values"] == [75, 143]


def test_the_controller_gets_the_arguments_of_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--start", "2026-01-01", "--end", "2026-02-01", "--test-end", "2026-02-03", "--baseline", "price", "--baseline", "age",
             "--train-changed-labels", "--epoch-events", "1000", "--least-hosts", "8", "--shuffle-events", "4096"]  # fmt: skip
    found = arguments(rendered(capsys, *given), "controller")
    assert found[: found.index("--home")] == [
        "train", "ctr", "--version", "3", "--start", "2026-01-01", "--end", "2026-02-01", "--test-end", "2026-02-03",
        "--baseline", "price", "--baseline", "age", "--train-changed-labels", "--epoch-events", "1000", "--least-hosts", "8",
        "--shuffle-events", "4096",
    ]  # fmt: skip
    assert "--config" not in found


def test_kubernetes_replaces_no_variable_in_a_given_text(capsys: pytest.CaptureFixture[str]) -> None:
    found = arguments(rendered(capsys, "--run-dir", "gs://bucket/$(POD_IP)/x"), "controller")
    assert option(found, "--run-dir") == "gs://bucket/$$(POD_IP)/x"


def test_training_options_are_a_config_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"batch_rows": 4096, "name": "ünï: 'x' - # $(POD_IP)", "lines": "a\nb"}
    path = tmp_path / "options.json"
    path.write_text(json.dumps(given))
    documents = rendered(capsys, "--config", str(path))
    (found,) = (one for one in documents if one["kind"] == "ConfigMap")
    assert json.loads(found["data"]["options.json"]) == given
    assert option(arguments(documents, "controller"), "--config") == "/etc/headrace/options/options.json"


def test_no_secret_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    documents = rendered(capsys)
    assert not any(one["kind"] == "Secret" for one in documents)
    assert pod(documents, "reader")["volumes"][0]["secret"]["secretName"] == "ctr"


PHASES = """
model = "ctr"
version = 3
launcher = "gke"
job-name = "ctr"
images = "europe-west4-docker.pkg.dev/project/headrace:1.2.3"
home = "gs://bucket/home"
run-dir = "gs://bucket/runs/ctr"
follow = true
epoch-secs = 600
catch-up-secs = 900
[options]
batch_rows = 8192
[initial]
topology = "v5p:2x2x1"
tpu = "local"
readers = 32
queue = "tpus"
[caught_up]
hosts = 2
readers = 4
servers = 2
device = "gpu"
[caught_up.options]
batch_rows = 1024
staleness = 2
"""


def phased(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str, text: str = PHASES) -> str:
    file = tmp_path / "train.toml"
    file.write_text(text)
    capsys.readouterr()
    assert run(["train", "--from", str(file), *options]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_the_manifests_of_a_run_with_phases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One controller trains both; each phase has machines, options and a port of its own."""
    text = phased(tmp_path, capsys)
    check_golden("launch_gke_phases.yaml", text)
    documents = list(yaml.safe_load_all(text))
    for one in documents:
        check_object(one)
    role = next(one for one in documents if one["kind"] == "Role")
    assert role["rules"][0]["resourceNames"] == ["ctr-initial", "ctr-caught-up"]
    assert role["rules"][1]["resources"] == ["workloads"], "one of the phases waits in a queue"
    (options,) = (one for one in documents if one["kind"] == "ConfigMap")
    assert json.loads(options["data"]["initial_options.json"]) == {"batch_rows": 8192}
    assert json.loads(options["data"]["caught_up_options.json"]) == {"batch_rows": 1024, "staleness": 2}
    found = arguments(documents, "controller")
    at = found.index("--", 3)
    initial, caught_up = found[3:at], found[at + 1 :]
    assert (initial[0], caught_up[0]) == ("train", "train")
    for given, jobset_name, port in ((initial, "ctr-initial", 7410), (caught_up, "ctr-caught-up", 7414)):
        assert option(given, "--jobset") == f"default/{jobset_name}"
        assert option(given, "--listen") == f"$(POD_IP):{port}"
        for one in jobset(documents, jobset_name)["spec"]["replicatedJobs"][:2]:
            (container,) = one["template"]["spec"]["template"]["spec"]["containers"]
            assert option(container["args"], "--controller") == f"ctr-controller-0-0.ctr:{port}"
            assert ("--over-status" in container["args"]) == (jobset_name == "ctr-initial")
    assert ("--keep-jobset" in initial, "--keep-jobset" in caught_up) == (True, False)
    assert ("--follow" in initial, "--follow" in caught_up) == (False, True)
    assert option(caught_up, "--servers").startswith("ctr-caught-up-server-0-0.ctr-caught-up:7413,")
    assert jobset(documents, "ctr-caught-up")["spec"]["suspend"] is True


def test_a_phase_has_a_range_of_readers_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PHASES.replace("readers = 4", 'readers = "1..4"')
    documents = list(yaml.safe_load_all(phased(tmp_path, capsys, text=text)))
    (found,) = (one for one in documents if one["kind"] == "StatefulSet")
    check_object(found)
    assert found["metadata"]["name"] == "ctr-caught-up-readers"
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert option(container["args"], "--controller") == "ctr-controller-0-0.ctr:7414"
    assert option(arguments(documents, "controller"), "--reader-set") == "default/ctr-caught-up-readers"
    names = {one["name"] for one in jobset(documents, "ctr-initial")["spec"]["replicatedJobs"]}
    assert names == {"host", "reader"}
    (tmp_path / "train.toml").write_text(text.replace('job-name = "ctr"', f'job-name = "{"c" * 35}"'))
    assert run(["train", "--from", str(tmp_path / "train.toml")]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "up to 34" in said, "Kubernetes appends a hash to the name of a StatefulSet in a label"


def test_plans_and_towers_are_in_the_manifests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A phase has the plan of its table in the run file, and no file of this machine."""
    plan = plan_bytes(PartitionPlan(2, (TablePlan("user", 8, 4, (Slice(0, 4, (0, 1)),)),)))
    (tmp_path / "plan.json").write_bytes(plan)
    text = PHASES.replace(
        '[initial]\ntopology = "v5p:2x2x1"\ntpu = "local"', '[initial]\nhosts = 2\nplan = "plan.json"'
    )
    documents = list(yaml.safe_load_all(phased(tmp_path, capsys, text=text)))
    (files,) = (one for one in documents if one["kind"] == "ConfigMap")
    assert files["data"]["initial_plan.json"].encode() == plan
    found = arguments(documents, "controller")
    assert option(found, "--plan") == "/etc/headrace/options/initial_plan.json"
    assert found.count("--plan") == 1, "the plan is of one phase"
    alone = list(yaml.safe_load_all(phased(tmp_path, capsys, "--phase", "initial", text=text)))
    assert option(arguments(alone, "controller"), "--plan") == "/etc/headrace/options/plan.json"
    many = range(1200)
    large = PartitionPlan(2, tuple(TablePlan(f"t{k}" * 200, 8, 4, (Slice(0, 4, (0, 1)),)) for k in many))
    (tmp_path / "plan.json").write_bytes(plan_bytes(large))
    assert run(["train", "--from", str(tmp_path / "train.toml")]) == 2
    assert "must fit a ConfigMap" in " ".join(capsys.readouterr().err.split())


def test_one_phase_of_a_run_has_manifests_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = list(yaml.safe_load_all(phased(tmp_path, capsys, "--phase", "caught_up")))
    assert jobset(documents, "ctr-workers")
    assert "--phase" not in arguments(documents, "controller"), "a controller reads no run file"


def test_the_name_of_a_run_with_phases_is_shorter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kubernetes allows 63 characters in ``NAME-caught-up-reader-0-9999``."""
    phased(tmp_path, capsys, "--job-name", "c" * 38)
    assert run(["train", "--from", str(tmp_path / "train.toml"), "--job-name", "c" * 39]) == 2
    assert "up to 38" in " ".join(capsys.readouterr().err.split())


WRONG = [
    (["--launcher", "moon"], "a launcher must be a known one", "local, gke, tpu-vm, remote"),
    (["--topology", "v5p:4x4"], "exist in its TPU generation", "2x2x1"),
    (["--topology", "v9:4x4"], "a TPU generation and the shape", "v4, v5e, v5p, v6e, tpu7x"),
    (["--topology", "", "--launcher", "tpu-vm", "--zone", "us-east5-a"], "a TPU generation and the shape", "v5p:4x4x4"),
    (["--topology", "", "--tpu", "local"], "--tpu needs a slice", "--topology"),
    (["--servers", "2"], "a slice must have TPUs that train", "give --tpu local too"),
    (["--device", "gpu"], "a slice must have TPUs that train", "v5p:4x4x4"),
    (
        ["--device", "gpu", "--tpu", "local", "--topology", "v5p:2x2x1"],
        "must be on one kind of device",
        "--tpu, --device",
    ),
    (["--device", "tpu"], "--device must be a known one", "cpu, gpu"),
    (["--topology", "", "--accelerator", "nvidia-l4"], "--accelerator must go with --device gpu", "nvidia-l4"),
    (["--topology", "", "--device", "gpu", "--accelerator", "L4 x"], "DNS-1123 label", "--accelerator"),
    (["--hosts", "15"], "must be that of the TPU slice", "16, of v5p:4x4x4"),
    (["--run-dir", "runs/ctr"], "must be in a bucket", "--run-dir"),
    (["--run-dir", ""], "must be in a bucket", "--run-dir"),
    (["--home", "folder"], "must be in a bucket", "--home"),
    (["--home", "gs://bucket/a\nb"], "must be in a bucket", "--home"),
    (["--run-dir", "gs:///path"], "must", "gs://"),
    (["--job-name", "Ctr"], "DNS-1123 label", "a-z, 0-9 and -"),
    (["--job-name", "1ctr"], "begins with a letter", "ctr-daily"),
    (["--job-name", "c" * 41], "DNS-1123 label", "up to 40"),
    (["--namespace", "a_b"], "DNS-1123 label", "--namespace"),
    (["--queue", "a b"], "DNS-1123 label", "--queue"),
    (["--queue", "tpus", "--priority", "urgent"], "a priority must be a known one", "low, normal, high"),
    (["--priority", "high"], "--priority must go with --queue", "LocalQueue"),
    (["--readers", "0"], "readers must be a number, or a range", "such as 2..8"),
    (["--readers", ""], "a number of readers, or a range", "2..8 with --launcher gke"),
    (["--readers", "2..1001"], "a number of readers, or a range", "1 to 1,000"),
    (["--readers", "1..4", "--job-name", "c" * 41], "DNS-1123 label", "up to 40"),
    (["--reader-set", "a/b"], "this option needs another launcher", "with --launcher remote"),
    (["--images", "https://example.com/x"], "images must be named", "--images"),
    (["--images", ""], "images must be named", "--images"),
    (["--version", "0"], "must name the version of its model", "headrace model ls"),
    (["--zone", "us-east5-a"], "this option needs another launcher", "with --launcher tpu-vm"),
    (["--listen", "0.0.0.0:1"], "this option needs another launcher", "with --launcher remote"),
    (["--job-dir", "folder"], "needs a job on one machine", "--job-dir"),
    (["--notice-file", "file"], "needs a job on one machine", "--notice-file"),
    (
        ["--export", "links"],
        "the links of a job on other machines must be in a bucket",
        "give --export gs://bucket/path",
    ),
    (["--export", "s3://bucket/links"], "or in a folder of a bucket", "--export"),
    (["--follow", "--caught-up-hosts", "2"], "needs a fixed number of processes", "--caught-up-hosts"),
    (["--epoch-secs", "-1"], "must have at least one host", "--epoch-secs"),
    (["--grace-secs", "nan"], "a grace period must be a number of seconds", "--grace-secs"),
    (["--least-hosts", "17"], "at most that of the job", "up to 16"),
    (
        ["--topology", "", "--servers", "2", "--embedding-workers", "65"],
        "--embedding-workers must be a number of processes",
        "1 to 64",
    ),
    (
        ["--topology", "", "--servers", "2", "--embedding-workers", "ew-0:7000"],
        "must go with --servers at addresses",
        "--embedding-workers",
    ),
    (["--embedding-workers", "2"], "--embedding-workers must go with --servers", "give --servers too"),
    (["--servers", "65"], "--servers must be a number of processes", "1 to 64"),
    (["--servers", "2", "--server-threads", "257"], "must be a number of threads", "1 to 256"),
    (["--servers", "ps-0:7000"], "needs a number: the cluster starts that many servers", "1 to 64"),
    (["--topology", "", "--servers", "2", "--server-ca", "ca.pem"], "use the token of the job", "--server-ca"),
    (["--output", "missing/job.yaml"], "the output file cannot be written", "--output"),
    (["--config", "missing.json"], "the training options cannot be read", "missing.json"),
]


@pytest.mark.parametrize(("options", "rule", "more"), WRONG, ids=[" ".join(one[0])[:30] for one in WRONG])
def test_a_wrong_option_is_one_error(
    options: list[str], rule: str, more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run([*BASE, *options]) in (2, 6)
    captured = capsys.readouterr()
    said = " ".join(captured.err.split())
    assert captured.out == ""
    assert said.count("error:") == 1
    assert rule in said
    assert more in said
    assert list(tmp_path.iterdir()) == []


REMOTE = ["train", "ctr", "--launcher", "remote", "--hosts", "1", "--readers", "1", "--run-dir", "gs://b/r", "--job-dir", "job",
          "--listen", "127.0.0.1:7410", "--token-file", "token", "--home", "home"]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--listen", ""], "must have the address of its controller"),
        (["--listen", "127.0.0.1:0"], "must be fixed"),
        (["--token-file", ""], "must have a token"),
        (["--run-dir", "folder"], "--job-dir must go with a run directory in a bucket"),
        (["--readers", ""], "numbers of hosts and readers"),
        (["--readers", "8..2"], "readers must be a number, or a range"),
        (["--reader-set", "team/ctr-readers"], "must have a range"),
        (["--reader-set", "team/ctr-readers", "--readers", "1..2"], "must be those of a JobSet of hosts"),
        (["--jobset", "ctr"], "must be named by its namespace and its name"),
        (["--jobset", "team/ctr"], "needs a process in a pod"),
    ],
)
def test_a_wrong_option_of_a_controller_is_one_error(
    options: list[str], rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOST", "PORT"):
        monkeypatch.delenv(f"KUBERNETES_SERVICE_{name}", raising=False)
    Path("token").write_text("0123456789abcdef\n")
    assert run([*REMOTE, *options]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("error:") == 1
    assert rule in said
    assert not Path("home").exists()


def test_the_queue_of_the_example_is_valid_and_has_the_priorities() -> None:
    from headrace.launchers.cluster_job import PRIORITIES

    documents = list(yaml.safe_load_all((EXAMPLES / "queue.yaml").read_text()))
    for one in documents:
        check_object(one)
    names = {one["metadata"]["name"] for one in documents if one["kind"] == "WorkloadPriorityClass"}
    assert names == {f"headrace-{one}" for one in PRIORITIES}


def test_the_pages_name_every_object(capsys: pytest.CaptureFixture[str]) -> None:
    page = (EXAMPLES.parents[1] / "docs" / "tpu.md").read_text()
    for one in rendered(capsys):
        assert one["kind"] in page
    assert re.search(r"parameter servers", page)


def test_every_option_of_a_launcher_is_one_of_the_command() -> None:
    import inspect

    from headrace.cli.launching import _NOT_PASSED, _OF_ONE_MACHINE
    from headrace.cli.options.launchers import OF_LAUNCHERS
    from headrace.cli.train import train

    assert {*OF_LAUNCHERS, *_NOT_PASSED, *_OF_ONE_MACHINE} <= set(inspect.signature(train).parameters)


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        (["jobs", "submit", "--home", "home", "--"], "a job of a fleet must run on this machine"),
        (["chaos", "--"], "chaos cannot run a training with this option"),
    ],
)
def test_a_launcher_is_for_the_command_itself(
    command: list[str], rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*command, *BASE]) == 2
    assert rule in " ".join(capsys.readouterr().err.split())


def test_a_plan_that_follows_the_data_is_an_option_of_the_controller(capsys: pytest.CaptureFixture[str]) -> None:
    documents = rendered(capsys, *ON_NODES, "--hosts", "2", "--plan", "auto")
    found = [one for one in _lists(documents) if "--plan" in one]
    assert [option(one, "--plan") for one in found] == ["auto"]


def _lists(value: Any) -> list[list[str]]:
    """All lists of texts in some documents."""
    if isinstance(value, dict):
        return [found for one in value.values() for found in _lists(one)]
    if isinstance(value, list):
        return (
            [value] if all(isinstance(one, str) for one in value) else [found for one in value for found in _lists(one)]
        )
    return []


def test_each_process_serves_metrics_at_a_port_that_its_pod_declares(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = ["--metrics-address", "0.0.0.0:9464", "--anonymous-metrics"]
    options = [
        *ON_NODES,
        "--hosts",
        "2",
        "--readers",
        "2..4",
        "--servers",
        "1..2",
        "--embedding-workers",
        "1",
        *metrics,
    ]
    documents = rendered(capsys, *options)
    for one in documents:
        check_object(one)
    jobs = [
        one["template"]["spec"]["template"]
        for document in documents
        if document["kind"] == "JobSet"
        for one in document["spec"]["replicatedJobs"]
    ]
    sets = [document["spec"]["template"] for document in documents if document["kind"] == "StatefulSet"]
    found = {template["spec"]["containers"][0]["name"]: template for template in (*jobs, *sets)}
    assert found.keys() == {"controller", "host", "reader", "server", "worker"}
    for template in found.values():
        (container,) = template["spec"]["containers"]
        assert option(container["args"], "--metrics-address") == "0.0.0.0:9464"
        assert "--anonymous-metrics" in container["args"]
        assert container["ports"] == [{"name": "metrics", "containerPort": 9464}]
        annotations = template["metadata"]["annotations"]
        assert annotations == {"prometheus.io/scrape": "true", "prometheus.io/port": "9464", "prometheus.io/path": "/metrics"}  # fmt: skip


def test_the_servers_of_a_slice_serve_metrics_too(capsys: pytest.CaptureFixture[str]) -> None:
    documents = rendered(capsys, "--topology", "v5p:2x2x2", "--tpu", "local", "--metrics-address", "0.0.0.0:9464")
    (container,) = pod(documents, "slice")["containers"]
    assert option(container["args"], "--metrics-address") == "0.0.0.0:9464"
    assert container["ports"] == [{"name": "metrics", "containerPort": 9464}]
    (found,) = (one for one in jobset(documents, "ctr-workers")["spec"]["replicatedJobs"] if one["name"] == "slice")
    assert found["template"]["spec"]["template"]["metadata"]["annotations"]["prometheus.io/port"] == "9464"


@pytest.mark.parametrize("address", ["9464", "127.0.0.1:9464", "0.0.0.0:0"])
def test_a_port_that_no_scraper_reaches_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BASE, "--metrics-address", address]) == 2
    assert "a scraper" in capsys.readouterr().err
