"""``headrace train --launcher gke|tpu-vm``: write what starts a training job on other machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from headrace.cli.options.launchers import GKE, OF_LAUNCHERS, TPU_VM, option_name
from headrace.cli.options.option_groups import command_line, values_of_group
from headrace.cli.options.session import home_text
from headrace.cli.options.tpus import TpuOptions, check_slice_of
from headrace.cli.train_options.training import TrainOptions
from headrace.terminal.output import write_output
from transforms.errors import InputError

if TYPE_CHECKING:
    from headrace.launchers.cluster_job import ClusterJob

#: Parameters that the launcher gives to the roles in another way, or that end with it.
_NOT_PASSED = frozenset(
    {
        "home",
        "run_dir",
        "config",
        "from_file",
        "save_as",
        "hosts",
        "readers",
        "servers",
        "launcher",
        "notice_metadata",
        "supervisor",
        *OF_LAUNCHERS,
    }
)
#: The metadata server of a virtual machine. A pod gets SIGTERM in any case.
_METADATA = "http://metadata.google.internal"
#: Parameters that name a place of one machine.
_OF_ONE_MACHINE = ("job_dir", "notice_file", "notice_http", "plan", "towers", "export")


def write_launch(options: TrainOptions, training: Mapping[str, Any], tpus: TpuOptions | None) -> None:
    """Write the manifests or the script of a job.

    Args:
        options: of ``headrace train``.
        training: the training options.
        tpus: of its hosts; None: they train with the cpu engine.

    Raises :class:`InputError`.
    """
    from headrace.launchers.manifests import Cluster, gke_manifests, to_yaml
    from headrace.launchers.tpu_vm import TpuVm, tpu_vm_script

    job, cluster = _cluster_job(options, training, tpus), options.cluster
    if cluster.launcher == GKE:
        text = to_yaml(gke_manifests(job, Cluster(cluster.namespace or "default", cluster.queue, cluster.priority)))
    else:
        text = tpu_vm_script(job, TpuVm(cluster.zone, cluster.project))
    if cluster.output in ("", "-"):
        sys.stdout.write(text)
    else:
        write_output(cluster.output, text, option="--output")


def _cluster_job(options: TrainOptions, training: Mapping[str, Any], tpus: TpuOptions | None) -> ClusterJob:
    from headrace.launchers.cluster_job import ClusterJob, Images, check_hosts
    from trainer.options.topology import Topology

    values, cluster, hosts = values_of_group(options), options.cluster, options.hosts
    for name in _OF_ONE_MACHINE:
        if values[name]:
            raise InputError("this option needs a job on one machine", where=option_name(name), value=values[name],
                             next_step="leave it out: SIGTERM, and headrace preempt in the controller's container, give notices")  # fmt: skip
    if not options.data.version:
        raise InputError("a job on other machines must name the version of its model", where="--version",
                         next_step="headrace model ls lists versions: a process that is started again must train the same one")  # fmt: skip
    topology = Topology.parse(cluster.topology)
    check_hosts(hosts.hosts, topology)
    check_slice_of(tpus, topology, training, is_served=bool(options.servers.servers))
    hosts.as_job(topology.hosts)
    return ClusterJob(
        name=cluster.job_name or "headrace",
        topology=topology,
        readers=hosts.readers,
        images=Images.parse(cluster.images, tag=version("headrace")),
        run_dir=options.run.run_dir,
        home=home_text(options.run.home),
        arguments=tuple(command_line(options, _NOT_PASSED)),
        options=json.dumps(training, indent=2, sort_keys=True) + "\n" if training else "",
        grace_secs=hosts.grace_secs,
        notice_metadata=hosts.notice_metadata or (_METADATA if cluster.launcher == TPU_VM else ""),
        spot=cluster.spot,
        tpu_arguments=() if tpus is None else tuple(tpus.arguments()),
        servers=int(options.servers.servers or 0),
    )
