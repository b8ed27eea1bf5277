"""``headrace train --launcher gke|tpu-vm``: write what starts a training job on other machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from headrace.cli.options.launchers import GKE, OF_LAUNCHERS, TPU_VM, check_launcher, command_line, option_name
from headrace.cli.options.session import home_text
from headrace.cli.options.tpus import TpuOptions, check_slice_of
from headrace.cli.training_jobs import job_options
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


def write_launch(
    command: Callable[..., None], given: Mapping[str, Any], options: Mapping[str, Any], tpus: TpuOptions | None
) -> None:
    """Write the manifests or the script of a job.

    Args:
        command: ``headrace train``.
        given: its parameters.
        options: of the training.
        tpus: of its hosts; None: they train with the cpu engine.

    Raises :class:`InputError`.
    """
    from headrace.launchers.manifests import Cluster, gke_manifests, to_yaml
    from headrace.launchers.tpu_vm import TpuVm, tpu_vm_script

    job = _cluster_job(command, given, options, tpus)
    if check_launcher(given) == GKE:
        cluster = Cluster(given["namespace"] or "default", given["queue"], given["priority"])
        text = to_yaml(gke_manifests(job, cluster))
    else:
        text = tpu_vm_script(job, TpuVm(given["zone"], given["project"]))
    if given["output"] in ("", "-"):
        sys.stdout.write(text)
    else:
        write_output(given["output"], text, option="--output")


def _cluster_job(
    command: Callable[..., None], given: Mapping[str, Any], options: Mapping[str, Any], tpus: TpuOptions | None
) -> ClusterJob:
    from headrace.launchers.cluster_job import ClusterJob, Images, check_hosts
    from trainer.topology import Topology

    for name in _OF_ONE_MACHINE:
        if given[name]:
            raise InputError("an option must not be of one machine", where=option_name(name), value=given[name],
                             next_step="leave it out: SIGTERM, and headrace preempt in the controller's container, give notices")  # fmt: skip
    if not given["version"]:
        raise InputError("a job on other machines must name the version of its model", where="--version",
                         next_step="headrace model ls lists versions: a process that is started again must train the same one")  # fmt: skip
    topology = Topology.parse(given["topology"])
    check_hosts(given["hosts"], topology)
    check_slice_of(tpus, topology, options)
    job_options({**given, "hosts": topology.hosts})
    return ClusterJob(
        name=given["job_name"] or "headrace",
        topology=topology,
        readers=given["readers"],
        images=Images.parse(given["images"], tag=version("headrace")),
        run_dir=given["run_dir"],
        home=home_text(given["home"]),
        arguments=tuple(command_line(command, given, _NOT_PASSED)),
        options=json.dumps(options, indent=2, sort_keys=True) + "\n" if options else "",
        grace_secs=given["grace_secs"],
        notice_metadata=given["notice_metadata"] or (_METADATA if given["launcher"] == TPU_VM else ""),
        spot=given["spot"],
        tpu_arguments=() if tpus is None else tuple(tpus.arguments()),
        servers=int(given["servers"] or 0),
    )
