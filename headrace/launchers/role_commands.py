"""The command lines of a job's roles on machines of their own."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.launchers.cluster_job import ClusterJob
from headrace.terminal.stopping import SIGTERM_STATUS
from trainer.job.launch.role_signals import LEFT_STATUS

#: Where the roles serve. TPU software takes ports from 8431 on.
CONTROLLER_PORT, READER_PORT, HOST_PORT, SERVER_PORT = 7410, 7411, 7412, 7413
#: Of the controller of caught-up training: a host of initial training that is slow to end must not join it.
CAUGHT_UP_PORT = 7414
WORKER_PORT = 7415
#: Of the TensorFlow server on each machine of a slice that is driven from elsewhere.
SLICE_PORT = 7416
#: Of several readers on one machine, the port of the first.
FIRST_READER_PORT = 7420
#: Where a container finds the token, the training options and its own folder.
TOKEN_FILE = "/etc/headrace/job/token"
OPTIONS_FOLDER = "/etc/headrace/options"
OPTIONS_FILE = f"{OPTIONS_FOLDER}/options.json"
JOB_FOLDER = "/var/lib/headrace/job"
ROLE_FOLDER = "/var/lib/headrace/role"
#: The shared memory of a parameter server, and the folder of its rows there.
MEMORY_MOUNT = "/dev/shm"
MEMORY_FOLDER = f"{MEMORY_MOUNT}/rows"
#: Where a pod has the files of its service account.
SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
#: After the grace period a host or a parameter server has so long to end.
END_SECS = 15


def controller_port(job: ClusterJob) -> int:
    """Where the controller of a job, or of its phase, serves."""
    return CAUGHT_UP_PORT if job.phase == "caught_up" else CONTROLLER_PORT


def file_name(job: ClusterJob, name: str) -> str:
    """The name of the file with the "options", the "plan" or the "towers" of a job, or of its phase."""
    return f"{job.phase}_{name}.json" if job.phase else f"{name}.json"


def phases_command(trainings: Sequence[Sequence[str]]) -> list[str]:
    """The command that trains the phases of a run, whose controllers have these commands, one after another."""
    return ["headrace", "role", "phases", *(word for one in trainings for word in ("--", *one[1:]))]


def controller_command(
    job: ClusterJob, address: str, servers: Sequence[str] = (), workers: Sequence[str] = ()
) -> list[str]:
    """The command of the controller, which serves at ``address``; ``servers``, ``workers``: the addresses of parameter servers and embedding workers."""
    names = {**({"config": "options"} if job.options else {}), **{one: one for one in job.files}}
    files = [
        word for option, name in names.items() for word in (f"--{option}", f"{OPTIONS_FOLDER}/{file_name(job, name)}")
    ]
    return [
        *("headrace", "train", *job.arguments, "--home", job.home, "--run-dir", job.run_dir, *files),
        *("--hosts", str(job.hosts), "--readers", str(job.readers), "--job-dir", JOB_FOLDER),
        *("--launcher", "remote", "--listen", address, "--token-file", TOKEN_FILE),
        *(("--servers", ",".join(servers)) if servers else ()),
        *(("--scale-servers-from", str(job.servers_from)) if job.servers_from else ()),
        *(("--embedding-workers", ",".join(workers)) if workers else ()),
        *job.metrics_arguments,
    ]


def server_command(job: ClusterJob, address: str) -> list[str]:
    """The command of a parameter server, which serves at ``address`` with the token of the job.

    After SIGTERM the job commits within the grace period. The status is then that of a process that is started again.
    """
    return [
        *("headrace", "ps", "serve", "--address", address, "--memory", MEMORY_FOLDER, "--token-file", TOKEN_FILE),
        *("--threads", str(job.server_threads)),
        *("--runs", job.run_dir, "--terminated-status", str(SIGTERM_STATUS), "--drain-secs", f"{job.grace_secs:g}"),
        *job.metrics_arguments,
    ]


def worker_command(job: ClusterJob, address: str, servers: Sequence[str]) -> list[str]:
    """The command of an embedding worker of these servers, which serves at ``address``; all have the token of the job."""
    return [
        *("headrace", "ps", "worker", "--servers", ",".join(servers), "--address", address, "--token-file", TOKEN_FILE),
        *("--terminated-status", str(SIGTERM_STATUS), "--drain-secs", f"{job.grace_secs:g}"),
        *job.metrics_arguments,
    ]


def reader_command(job: ClusterJob, name: str, address: str, controller: str) -> list[str]:
    """The command of a reader, which serves at ``address``."""
    return [*_role_command("reader", name, address, controller), *_over_status(job), *job.metrics_arguments]


def host_command(job: ClusterJob, name: str, address: str, controller: str, machines: str = "") -> list[str]:
    """The command of a host, which serves at ``address``; ``machines``: the addresses of the TensorFlow servers that it drives."""
    notices = ["--notice-metadata", job.notice_metadata] if job.notice_metadata else []
    tpus = [*job.device_arguments, *(["--tpu", machines] if machines else [])]
    own = ["--grace-secs", f"{job.grace_secs:g}", *notices, *tpus, *_over_status(job), *job.metrics_arguments]
    return [*_role_command("host", name, address, controller), *own]


def slice_command(job: ClusterJob, host: str, controller: str) -> list[str]:
    """The command of the TensorFlow server of one machine, which ``host`` drives. After SIGTERM the host gets a notice."""
    return [
        *("headrace", "role", "tpu-server", "--port", str(SLICE_PORT), "--host", host, "--controller", controller),
        *("--token-file", TOKEN_FILE, "--grace-secs", f"{job.grace_secs:g}"),
        *job.metrics_arguments,
    ]


def _over_status(job: ClusterJob) -> list[str]:
    """The status of a role whose training is over: a Job that is complete could not be resumed for another one."""
    return ["--over-status", str(LEFT_STATUS)] if job.is_repeated else []


def _role_command(role: str, name: str, address: str, controller: str) -> list[str]:
    return [
        *("headrace", "role", role, ROLE_FOLDER, "--name", name, "--address", address),
        *("--controller", controller, "--token-file", TOKEN_FILE),
    ]
