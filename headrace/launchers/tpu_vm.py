"""The script that trains a job on one TPU slice of virtual machines, without a cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.launchers.cluster_job import ClusterJob
from headrace.launchers.role_commands import (
    CONTROLLER_PORT,
    END_SECS,
    FIRST_READER_PORT,
    HOST_PORT,
    OPTIONS_FILE,
    SLICE_PORT,
    TOKEN_FILE,
    controller_command,
    host_command,
    reader_command,
    slice_command,
)
from trainer.options.topology import GENERATIONS
from transforms.errors import InputError

_ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]{1,2}-[a-z]{1,2}[0-9]?[a-z]?\Z", re.ASCII)
_MOST_PORT = 65535
_PROJECT = re.compile(r"([a-z][a-z0-9.-]*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]\Z", re.ASCII)
#: Texts of commands that the shell of a machine replaces.
_IP, _CONTROLLER, _INDEX, _READER, _READER_PORT, _SERVERS, _READER_METRICS = (
    "@ip@",
    "@controller@",
    "@index@",
    "@reader@",
    "@port@",
    "@servers@",
    "@metrics@",
)
_SHELL = {
    _IP: "$ip",
    _CONTROLLER: "$controller",
    _INDEX: "$index",
    _READER: "$reader",
    _READER_PORT: "$port",
    _SERVERS: "$servers",
    _READER_METRICS: "$metrics",
}


@dataclass(frozen=True, slots=True)
class TpuVm:
    """Where a slice is made.

    Attributes:
        zone: of the slice.
        project: of it; empty: that of gcloud's configuration.
    """

    zone: str
    project: str = ""

    def __post_init__(self) -> None:
        if not _ZONE.match(self.zone):
            raise InputError("a zone must be one of the cloud", where="--zone", value=self.zone[:100] or None,
                             allowed="such as us-east5-a")  # fmt: skip
        if self.project and not _PROJECT.match(self.project):
            raise InputError("a project must be named by its id", where="--project", value=self.project[:100],
                             allowed="6 to 30 of a-z, 0-9 and -")  # fmt: skip


def tpu_vm_script(job: ClusterJob, place: TpuVm) -> str:
    """A Bash script that makes the slice, starts the roles on it, and waits. Raises :class:`InputError`.

    The controller runs on the first machine, and the readers are spread over all of them. A host runs on each machine; where TPUs train on several,
    one host runs on the first machine, and drives a TensorFlow server on each.
    """
    topology = job.topology
    if topology is None:
        raise InputError("--launcher tpu-vm needs a slice", where="--topology", allowed="such as v5p:2x2x1")
    if not topology.vm_type:
        with_api = ", ".join(one.name for one in GENERATIONS if one.vm_type)
        raise InputError("--launcher tpu-vm needs a TPU generation that the TPU API offers", where="--topology",
                         value=str(topology), allowed=with_api, next_step="use --launcher gke")  # fmt: skip
    if job.is_scaled:
        raise InputError("readers on the machines of one slice must have a fixed number", where="--readers", value=str(job.readers),
                         allowed="a number, such as 4", next_step="use --launcher gke for a range")  # fmt: skip
    project = [f"--project={place.project}"] if place.project else []
    slice_ = shlex.join([job.name, f"--zone={place.zone}", *project])
    made_as = [f"--type={topology.generation.vm_type}", f"--topology={topology.shape_text}",
               f"--version={topology.generation.vm_runtime}", "--scopes=cloud-platform", *(["--spot"] if job.spot else [])]  # fmt: skip
    return _SCRIPT.format(
        name=job.name,
        topology=topology,
        vm_type=topology.vm_type,
        machines=topology.hosts,
        chips=topology.chips_per_host,
        run_dir=job.run_dir,
        slice=slice_,
        made_as=shlex.join(made_as),
        options=job.options or "{}\n",
        registry=shlex.quote(job.images.repository.split("/")[0]),
        controller=_docker("controller", job, _controller(job)),
        host=_host(job),
        servers=_FIND_SERVERS.format(port=SLICE_PORT) if job.slice_machines else "",
        second='servers="$2"\n' if job.slice_machines else "",
        passed=" $servers" if job.slice_machines else "",
        reader=_docker("reader", job, _reader(job)),
        readers=job.readers.most,
        first_port=FIRST_READER_PORT,
        metrics=_READER_METRICS_PORT.format(first=_metrics_port(job, _readers(job)), machines=topology.hosts) if job.metrics_address else "",
    )  # fmt: skip


#: On a machine, the metrics of the controller are at the port that is given, those of its host, its TensorFlow server and its readers at the next ones.
_HOSTS, _SLICES = 1, 2
_READER_METRICS_PORT = "\n  metrics=$(({first} + reader / {machines}))"


def _readers(job: ClusterJob) -> int:
    """How far above the controller's port the metrics of readers begin."""
    return _SLICES + bool(job.slice_machines)


def _metrics_port(job: ClusterJob, place: int) -> int:
    """A port for metrics above that of the controller. Raises :class:`InputError` for one that does not exist."""
    found = job.metrics_port + place
    if found + (job.readers.most if place == _readers(job) else 0) > _MOST_PORT:
        raise InputError("processes on one machine must have ports for their metrics from the given one on", where="--metrics-address",
                         value=job.metrics_address, next_step="give a lower port")  # fmt: skip
    return found


def _with_metrics(job: ClusterJob, port: int | str) -> ClusterJob:
    """The job, with another port of metrics if there are any."""
    host = job.metrics_address.rpartition(":")[0]
    return replace(job, metrics_address=f"{host}:{port}") if host else job


def _controller(job: ClusterJob) -> list[str]:
    return controller_command(job, f"{_IP}:{CONTROLLER_PORT}")


def _host(job: ClusterJob) -> str:
    """The commands of a machine that start its host, and its TensorFlow server where one host drives those of all machines."""
    controller, drives = f"{_CONTROLLER}:{CONTROLLER_PORT}", bool(job.slice_machines)
    started = _docker("host", job, host_command(_with_metrics(job, _metrics_port(job, _HOSTS)), f"h{_INDEX}", f"{_IP}:{HOST_PORT}", controller, _SERVERS if drives else ""))  # fmt: skip
    if not drives:
        return started
    on_first = started.replace("\n", "\n  ")
    server = slice_command(_with_metrics(job, _metrics_port(job, _SLICES)), "h0", controller)
    return f'{_docker("slice", job, server)}\nif [ "$index" = 0 ]; then\n  {on_first}\nfi'


def _reader(job: ClusterJob) -> list[str]:
    return reader_command(
        _with_metrics(job, _READER_METRICS), f"r{_READER}", f"{_IP}:{_READER_PORT}", f"{_CONTROLLER}:{CONTROLLER_PORT}"
    )


def _docker(role: str, job: ClusterJob, command: Sequence[str]) -> str:
    """The command that starts a role's container, one option a line."""
    name = f"headrace-reader-{_READER}" if role == "reader" else f"headrace-{role}"
    own = {
        "controller": ["--env-file", f"{_HOME}/catalog.env", "--volume", "headrace-controller:/var/lib/headrace"],
        "reader": ["--env-file", f"{_HOME}/catalog.env"],
        "host": [*([] if job.slice_machines else ["--privileged"]), *_stop(job)],
        "slice": ["--privileged", *_stop(job)],
    }[role]
    mounts = ["--volume", f"{_HOME}/token:{TOKEN_FILE}:ro", "--volume", f"{_HOME}/options.json:{OPTIONS_FILE}:ro"]
    options = ["--name", name, "--restart", "on-failure", "--net", "host", "--user", "root", *own, *mounts]
    image = job.images.of("host" if role == "slice" else role)
    words = list(map(_quoted, ["sudo", "docker", "run", "--detach", *options, image, *command[1:]]))
    return "".join(f" \\\n    {one}" if one.startswith("--") else f" {one}" for one in words).lstrip()


def _stop(job: ClusterJob) -> list[str]:
    return ["--stop-timeout", str(round(job.grace_secs) + END_SECS)]


#: The folder of a machine with the files of the job.
_HOME = "@home@"
_SHELL[_HOME] = "$HOME/headrace-job"


def _quoted(text: str) -> str:
    """A word of a shell, in which our places stand for its variables."""
    if not any(place in text for place in _SHELL):
        return shlex.quote(text)
    for place, variable in _SHELL.items():
        text = text.replace(place, variable)
    return f'"{text}"'


_FIND_SERVERS = """\
machines="$(gcloud compute tpus tpu-vm describe "${{slice[@]}}" --format='value(networkEndpoints[].ipAddress)')"
servers="${{machines//;/:{port},}}:{port}"
"""

_SCRIPT = """\
#!/usr/bin/env bash
# Trains the job {name} on a TPU slice {topology} ({vm_type}: {machines} machines of {chips} chips), and deletes the slice after it.
# Written by `headrace train --launcher tpu-vm`. The same script goes on from the last commit in {run_dir}.
# It needs gcloud, openssl, and the catalog's URL in $HEADRACE_CATALOG_URL.
set -euo pipefail
: "${{HEADRACE_CATALOG_URL:?must be the URL of the catalog, which the first machine of the slice reaches}}"
slice=({slice})

state="$(gcloud compute tpus tpu-vm describe "${{slice[@]}}" --format='value(state)' 2>/dev/null || true)"
if [ "$state" = PREEMPTED ] || [ "$state" = TERMINATED ]; then
  gcloud compute tpus tpu-vm delete "${{slice[@]}}" --quiet
  state=""
fi
if [ -z "$state" ]; then
  gcloud compute tpus tpu-vm create "${{slice[@]}}" {made_as}
fi
controller="$(gcloud compute tpus tpu-vm describe "${{slice[@]}}" --format='value(networkEndpoints[0].ipAddress)')"
{servers}
# The files of the job, for each machine.
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
mkdir -m 700 "$folder/headrace-job"
openssl rand -hex 32 >"$folder/headrace-job/token"
printf 'HEADRACE_CATALOG_URL=%s\\n' "$HEADRACE_CATALOG_URL" >"$folder/headrace-job/catalog.env"
cat >"$folder/headrace-job/options.json" <<'END_OF_OPTIONS'
{options}END_OF_OPTIONS
cat >"$folder/headrace-job/machine.sh" <<'END_OF_MACHINE'
set -euo pipefail
controller="$1"
{second}ip="$(hostname -I | cut -d ' ' -f 1)"
index="$(curl --silent --fail --header 'Metadata-Flavor: Google' \\
  http://metadata.google.internal/computeMetadata/v1/instance/attributes/agent-worker-number)"
sudo gcloud auth configure-docker --quiet {registry}
old="$(sudo docker ps --all --quiet --filter name=headrace-)"
if [ -n "$old" ]; then
  xargs sudo docker rm --force <<<"$old"
fi
if [ "$index" = 0 ]; then
  {controller}
fi
for ((reader = index; reader < {readers}; reader += {machines})); do
  port=$(({first_port} + reader / {machines})){metrics}
  {reader}
done
{host}
END_OF_MACHINE
gcloud compute tpus tpu-vm ssh "${{slice[@]}}" --worker=all --command='rm -rf headrace-job'
gcloud compute tpus tpu-vm scp --recurse "$folder/headrace-job" "${{slice[0]}}:" "${{slice[@]:1}}" --worker=all
gcloud compute tpus tpu-vm ssh "${{slice[@]}}" --worker=all --command="bash headrace-job/machine.sh $controller{passed}"

# The controller ends with the job.
gcloud compute tpus tpu-vm ssh "${{slice[@]}}" --worker=0 --command='sudo docker logs --follow headrace-controller' || true
status="$(gcloud compute tpus tpu-vm ssh "${{slice[@]}}" --worker=0 --command='sudo docker wait headrace-controller')"
if [ "$status" != 0 ]; then
  echo "The job ended with status $status. The slice is still there: gcloud compute tpus tpu-vm delete ${{slice[*]}}" >&2
  exit "$status"
fi
gcloud compute tpus tpu-vm delete "${{slice[@]}}" --quiet
"""
