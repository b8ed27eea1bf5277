"""The options of ``headrace train --launcher``, and which belong to which launcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

import typer

from headrace.cli.options.option_groups import Mark
from transforms.errors import InputError

LOCAL, GKE, TPU_VM, REMOTE = "local", "gke", "tpu-vm", "remote"
#: The options of launchers, by parameter.
OF_LAUNCHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "output": (GKE, TPU_VM),
    "job_name": (GKE, TPU_VM),
    "topology": (GKE, TPU_VM),
    "accelerator": (GKE,),
    "images": (GKE, TPU_VM),
    "spot": (GKE, TPU_VM),
    "namespace": (GKE,),
    "queue": (GKE,),
    "priority": (GKE,),
    "zone": (TPU_VM,),
    "project": (TPU_VM,),
    "listen": (REMOTE,),
    "token_file": (REMOTE,),
    "jobset": (REMOTE,),
    "reader_set": (REMOTE,),
    "server_set": (REMOTE,),
    "service_account": (REMOTE,),
    "keep_jobset": (REMOTE,),
}


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Where a job runs, and what its launcher writes or serves. Raises :class:`InputError` for options that belong to other launchers."""

    PANEL: ClassVar[str] = "Cluster"

    launcher: Annotated[
        str,
        typer.Option(
            help="Where the job runs: local; gke and tpu-vm write what starts it there; remote: as the controller of a job "
            "whose readers and hosts are started elsewhere."
        ),
    ] = LOCAL
    output: Annotated[
        str,
        typer.Option(metavar="FILE", help="File of the manifests or the script; - is the standard output."),
        Mark.PATH,
    ] = ""
    job_name: Annotated[str, typer.Option(help="The job's name in the cluster, or the slice's.")] = ""
    topology: Annotated[
        str, typer.Option(help="The TPU slice, such as v5p:4x4x4. Without it --launcher gke takes nodes by --device.")
    ] = ""
    accelerator: Annotated[
        str,
        typer.Option(help="The GPU of hosts with --device gpu, such as nvidia-l4. Default: any.", show_default=False),
    ] = ""
    images: Annotated[str, typer.Option(help="The repository of the roles' images, perhaps with :TAG.")] = ""
    spot: Annotated[bool, typer.Option("--spot/--no-spot", help="Use machines that may be preempted.")] = False
    namespace: Annotated[
        str, typer.Option(help="The namespace of the cluster. Default: default.", show_default=False)
    ] = ""
    queue: Annotated[str, typer.Option(help="The LocalQueue of Kueue in which the job waits for its slice.")] = ""
    priority: Annotated[str, typer.Option(help="Its priority in the queue: low, normal or high.")] = ""
    zone: Annotated[str, typer.Option(help="The zone of the slice.")] = ""
    project: Annotated[str, typer.Option(help="The project of the slice. Default: gcloud's.", show_default=False)] = ""
    listen: Annotated[str, typer.Option(help="Where the controller listens, as host:port.")] = ""
    token_file: Annotated[
        str,
        typer.Option(metavar="FILE", help="A file with the token of the job, which all its processes have."),
        Mark.PATH,
    ] = ""
    jobset: Annotated[
        str,
        typer.Option(help="The JobSet of readers and hosts, as namespace/name: suspended while none is wanted."),
    ] = ""
    reader_set: Annotated[
        str,
        typer.Option(
            help="The StatefulSet of readers, as namespace/name, whose number follows a range of --readers.",
            hidden=True,
        ),
    ] = ""
    server_set: Annotated[
        str,
        typer.Option(
            help="The StatefulSet of parameter servers, as namespace/name, whose number follows --scale-servers-from.",
            hidden=True,
        ),
    ] = ""
    service_account: Annotated[
        str, typer.Option(help="Folder of the pod's service account, with --jobset.", hidden=True), Mark.PATH
    ] = ""
    keep_jobset: Annotated[
        bool,
        typer.Option(
            "--keep-jobset",
            help="Leave the JobSet suspended after the job, for another one.",
            show_default=False,
            hidden=True,
        ),
    ] = False

    def __post_init__(self) -> None:
        known = (LOCAL, GKE, TPU_VM, REMOTE)
        if self.launcher not in known:
            raise InputError("a launcher must be a known one", where="--launcher", value=self.launcher[:100],
                             allowed=", ".join(known))  # fmt: skip
        for name, owners in OF_LAUNCHERS.items():
            if (value := getattr(self, name)) and self.launcher not in owners:
                raise InputError("this option needs another launcher", where=option_name(name), value=value,
                                 allowed=f"with --launcher {' or '.join(owners)}")  # fmt: skip

    @property
    def is_written(self) -> bool:
        """Whether the command writes what starts the job, and trains nothing."""
        return self.launcher in (GKE, TPU_VM)


def option_name(parameter: str) -> str:
    """The option of a parameter, by the rule of the command line."""
    return f"--{parameter.replace('_', '-')}"
