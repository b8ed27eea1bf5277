"""``headrace train --launcher gke|tpu-vm``: write what starts a training job on other machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from headrace.cli.options.exports import chain_place
from headrace.cli.options.files import read_file
from headrace.cli.options.launchers import GKE, OF_LAUNCHERS, TPU_VM, ClusterOptions, option_name
from headrace.cli.options.option_groups import command_line, values_of_group
from headrace.cli.options.servers import check_server_plan
from headrace.cli.options.session import home_text
from headrace.cli.options.tpus import TpuOptions, check_slice_of
from headrace.cli.options.training import read_options
from headrace.cli.train_options.hosts import HostOptions
from headrace.cli.train_options.training import TrainOptions
from headrace.terminal.output import write_output
from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.launchers.cluster_job import ClusterJob
    from headrace.launchers.manifests import Cluster
    from trainer.options.topology import Topology

#: Parameters that the launcher gives to the roles in another way, or that end with it.
_NOT_PASSED = frozenset(
    {
        "home",
        "run_dir",
        "config",
        "from_file",
        "save_as",
        "phase",
        "hosts",
        "readers",
        "servers",
        "scale_servers_from",
        "server_threads",
        "embedding_workers",
        "launcher",
        "device",
        "notice_metadata",
        "supervisor",
        "plan",
        "towers",
        "metrics_address",
        "metrics_targets",
        "anonymous_metrics",
        "metrics_name",
        "metrics_run",
        *OF_LAUNCHERS,
    }
)
#: The metadata server of a virtual machine. A pod gets SIGTERM in any case.
_METADATA = "http://metadata.google.internal"
#: Parameters that name a place of one machine.
_OF_ONE_MACHINE = ("job_dir", "notice_file", "notice_http")
#: Parameters that name a file, which the manifests of a cluster hold.
_FILES = ("plan", "towers")


def write_launch(options: TrainOptions, training: Mapping[str, Any], tpus: TpuOptions | None) -> None:
    """Write the manifests or the script of a job.

    Args:
        options: of ``headrace train``.
        training: the training options.
        tpus: of its hosts; None: they train with the cpu engine.

    Raises :class:`InputError`.
    """
    from headrace.launchers.manifests import gke_manifests, to_yaml
    from headrace.launchers.tpu_vm import TpuVm, tpu_vm_script

    job, cluster = _cluster_job(options, training, tpus), options.cluster
    if cluster.launcher == GKE:
        _write(to_yaml(gke_manifests((job, _cluster(cluster)))), cluster.output)
    else:
        _write(tpu_vm_script(job, TpuVm(cluster.zone, cluster.project)), cluster.output)


def write_phases(phases: Mapping[str, TrainOptions]) -> None:
    """Write the manifests of a run with phases. Raises :class:`InputError`."""
    from headrace.launchers.manifests import gke_manifests, to_yaml

    placed = []
    for phase, options in phases.items():
        training = read_options(options.run.config)
        job = replace(_cluster_job(options, training, options.tpus_of(training)), phase=phase)
        placed.append((job, _cluster(options.cluster)))
    _write(to_yaml(gke_manifests(*placed)), options.cluster.output)


def _cluster(options: ClusterOptions) -> Cluster:
    from headrace.launchers.manifests import Cluster

    return Cluster(options.namespace or "default", options.queue, options.priority)


def _write(text: str, output: str) -> None:
    if output in ("", "-"):
        sys.stdout.write(text)
    else:
        write_output(output, text, option="--output")


def _slice_of(options: TrainOptions, training: Mapping[str, Any], tpus: TpuOptions | None) -> Topology | None:
    """The TPU slice of a job; None for hosts on nodes with CPUs, or GPUs. Raises :class:`InputError` for a slice that nothing would use."""
    from trainer.options.topology import Topology

    cluster, is_served = options.cluster, bool(options.servers.servers)
    if cluster.launcher == GKE and not cluster.topology:
        if tpus is not None:
            raise InputError("--tpu needs a slice", where="--tpu, --topology", value=cluster.topology or None, allowed="such as v5p:2x2x1",
                             next_step="give --topology too, or leave --tpu out")  # fmt: skip
        return None
    topology = Topology.parse(cluster.topology)
    if tpus is None and (is_served or options.device.has_gpu):
        raise InputError("a slice must have TPUs that train", where="--topology", value=str(topology),
                         next_step="give --tpu local too, or leave --topology out: then hosts are on nodes with CPUs, or GPUs with --device gpu")  # fmt: skip
    check_slice_of(tpus, topology, training, is_served=is_served)
    return topology


def _cluster_job(options: TrainOptions, training: Mapping[str, Any], tpus: TpuOptions | None) -> ClusterJob:
    from headrace.launchers.cluster_job import SERVER_PROCESSORS, ClusterJob, Images, check_hosts

    values, cluster, hosts = values_of_group(options), options.cluster, options.hosts
    for name in (*_OF_ONE_MACHINE, *(_FILES if cluster.launcher == TPU_VM else ())):
        if values[name]:
            raise InputError("this option needs a job on one machine", where=option_name(name), value=values[name],
                             next_step="leave it out: SIGTERM, and headrace preempt in the controller's container, give notices")  # fmt: skip
    export = options.serving.export
    if export and not isinstance(chain_place(export, "--export"), str):
        raise InputError("the links of a job on other machines must be in a bucket", where="--export", value=export,
                         allowed="gs://bucket/path", next_step="give --export gs://bucket/path: servers read links from it, too")  # fmt: skip
    if not options.data.version:
        raise InputError("a job on other machines must name the version of its model", where="--version",
                         next_step="headrace model ls lists versions: a process that is started again must train the same one")  # fmt: skip
    readers = hosts.reader_range
    if readers is None:
        raise InputError("a job on other machines must have a number of readers, or a range", where="--readers",
                         allowed="such as 4, or 2..8 with --launcher gke", next_step="give this option too")  # fmt: skip
    topology = _slice_of(options, training, tpus)
    has_own_slices = cluster.launcher == GKE and tpus is not None and bool(options.servers.servers)
    machines = topology.hosts if topology is not None and tpus is not None and topology.hosts > 1 else 0
    of_slice = 1 if topology is None or machines else topology.hosts
    if topology is not None and not has_own_slices:
        check_hosts(hosts.hosts, of_slice, topology)
    count = hosts.hosts or of_slice
    files = _placement_files(options, hosts.as_job(count), tpus)
    return ClusterJob(
        name=cluster.job_name or "headrace",
        topology=topology,
        hosts=count,
        readers=readers,
        images=Images.parse(cluster.images, tag=version("headrace")),
        run_dir=options.run.run_dir,
        home=home_text(options.run.home),
        arguments=(*command_line(options, _NOT_PASSED), *(("--plan", hosts.plan) if hosts.plan_follows_data else ())),
        options=json.dumps(training, indent=2, sort_keys=True) + "\n" if training else "",
        grace_secs=hosts.grace_secs,
        notice_metadata=hosts.notice_metadata or (_METADATA if cluster.launcher == TPU_VM else ""),
        spot=cluster.spot,
        device_arguments=tuple(options.device.arguments() if tpus is None else _device_arguments(tpus, machines)),
        slice_machines=machines,
        gpu=options.device.has_gpu,
        accelerator=cluster.accelerator,
        servers=options.servers.count,
        servers_from=0 if options.servers.scaled is None else options.servers.scaled.least,
        server_threads=options.servers.server_threads or SERVER_PROCESSORS,
        embedding_workers=options.servers.worker_count,
        files=files,
        has_export=bool(export),
        metrics_address=str(options.metrics.address or ""),
        anonymous_metrics=options.metrics.anonymous_metrics,
    )


def _device_arguments(tpus: TpuOptions, machines: int) -> list[str]:
    """The options of a host for TPUs; without the addresses of the ``machines`` that it drives, which the launcher knows."""
    return (replace(tpus, tpu="") if machines else tpus).arguments()


def _placement_files(options: TrainOptions, job: HostOptions | None, tpus: TpuOptions | None) -> dict[str, str]:
    """The texts of the files that say where tables are, by option, checked as far as they can be without the model."""
    from headrace.cli.planned_training import plan_of_training, towers_of_training

    given = {"plan": "" if options.hosts.plan_follows_data else options.hosts.plan, "towers": options.hosts.towers}
    servers = options.servers.used if options.servers.servers else 0
    plan = plan_of_training(given["plan"], None if servers else job, tpus)
    if plan is not None and servers:
        check_server_plan(plan, servers)
    towers_of_training(given["towers"], job)
    return {name: read_file(file, f"--{name}").decode() for name, file in given.items() if file}
