"""The options of ``headrace train --launcher``: which belong to which launcher, and the command line that its controller runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Final

import typer
from typer.main import get_command_from_info
from typer.models import CommandInfo

from transforms.errors import InputError

LOCAL, GKE, TPU_VM, REMOTE = "local", "gke", "tpu-vm", "remote"
#: The options of launchers, by parameter.
OF_LAUNCHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "output": (GKE, TPU_VM),
    "job_name": (GKE, TPU_VM),
    "topology": (GKE, TPU_VM),
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
    "service_account": (REMOTE,),
}
#: Options that a job on other machines does not have: its processes are as many as its machines.
_LOCAL_ONLY = ("caught_up_hosts", "caught_up_readers")

Launcher = Annotated[
    str,
    typer.Option(
        help="Where the job runs: local; gke and tpu-vm write what starts it there; remote: as the controller of a job "
        "whose readers and hosts are started elsewhere."
    ),
]
Output = Annotated[str, typer.Option(help="File of the manifests or the script; - is the standard output.")]
JobName = Annotated[str, typer.Option("--job-name", help="The job's name in the cluster, or the slice's.")]
TpuTopology = Annotated[str, typer.Option("--topology", help="The TPU slice, such as v5p:4x4x4.")]
ImagesOf = Annotated[str, typer.Option("--images", help="The repository of the roles' images, perhaps with :TAG.")]
Spot = Annotated[bool, typer.Option("--spot", help="Use machines that may be preempted.")]
Namespace = Annotated[str, typer.Option(help="The namespace of the cluster. Default: default.", show_default=False)]
Queue = Annotated[str, typer.Option(help="The LocalQueue of Kueue in which the job waits for its slice.")]
Priority = Annotated[str, typer.Option(help="Its priority in the queue: low, normal or high.")]
Zone = Annotated[str, typer.Option(help="The zone of the slice.")]
Project = Annotated[str, typer.Option(help="The project of the slice. Default: gcloud's.", show_default=False)]
Listen = Annotated[str, typer.Option(help="Where the controller listens, as host:port.")]
TokenFile = Annotated[str, typer.Option("--token-file", help="The token of the job, which all its processes have.")]
JobSet = Annotated[
    str, typer.Option(help="The JobSet of readers and hosts, as namespace/name: suspended while none is wanted.")
]
ServiceAccount = Annotated[str, typer.Option(help="Folder of the pod's service account, with --jobset.", hidden=True)]


def check_launcher(given: Mapping[str, Any]) -> str:
    """The launcher. Raises :class:`InputError` for an unknown one, and for options that belong to others."""
    launcher = str(given["launcher"])
    known = (LOCAL, GKE, TPU_VM, REMOTE)
    if launcher not in known:
        raise InputError(
            "a launcher must be a known one", where="--launcher", value=launcher[:100], allowed=", ".join(known)
        )
    for name, owners in OF_LAUNCHERS.items():
        if given[name] and launcher not in owners:
            raise InputError("an option must be one of the launcher", where=option_name(name), value=given[name],
                             allowed=f"with --launcher {' or '.join(owners)}")  # fmt: skip
    if launcher != LOCAL:
        for name in _LOCAL_ONLY:
            if given[name]:
                raise InputError("the number of processes of a job on other machines must stay", where=option_name(name),
                                 value=given[name], next_step="leave this option out")  # fmt: skip
    return launcher


def option_name(parameter: str) -> str:
    """The option of a parameter, by the rule of the command line."""
    return f"--{parameter.replace('_', '-')}"


def command_line(command: Callable[..., None], given: Mapping[str, Any], leave_out: Collection[str]) -> list[str]:
    """The arguments that give these values to a command; defaults are left out, and so are some parameters."""
    parameters: Any = get_command_from_info(
        CommandInfo("command", callback=command), pretty_exceptions_short=False, rich_markup_mode=None
    ).params
    found: list[str] = []
    for one in parameters:
        value = given[one.name]
        if one.name in leave_out or not value or value == one.default:
            continue
        if one.param_type_name == "argument":
            found.append(str(value))
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            found += [one.opts[0]] if item is True else [one.opts[0], str(item)]
    return found
