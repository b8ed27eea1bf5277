"""The command lines of a job's roles on machines of their own."""

from __future__ import annotations

from headrace.launchers.cluster_job import ClusterJob

#: Where the roles serve. TPU software takes ports from 8431 on.
CONTROLLER_PORT, READER_PORT, HOST_PORT = 7410, 7411, 7412
#: Of several readers on one machine, the port of the first.
FIRST_READER_PORT = 7420
#: Where a container finds the token, the training options and its own folder.
TOKEN_FILE = "/etc/headrace/job/token"
OPTIONS_FILE = "/etc/headrace/options/options.json"
JOB_FOLDER = "/var/lib/headrace/job"
ROLE_FOLDER = "/var/lib/headrace/role"
#: Where a pod has the files of its service account.
SERVICE_ACCOUNT_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
#: After the grace period a host has so long to end.
END_SECS = 15


def controller_command(job: ClusterJob, address: str) -> list[str]:
    """The command of the controller, which serves at ``address``."""
    options = ["--config", OPTIONS_FILE] if job.options else []
    return [
        *("headrace", "train", *job.arguments, "--home", job.home, "--run-dir", job.run_dir, *options),
        *("--hosts", str(job.hosts), "--readers", str(job.readers), "--job-dir", JOB_FOLDER),
        *("--launcher", "remote", "--listen", address, "--token-file", TOKEN_FILE),
    ]


def reader_command(name: str, address: str, controller: str) -> list[str]:
    """The command of a reader, which serves at ``address``."""
    return _role_command("reader", name, address, controller)


def host_command(job: ClusterJob, name: str, address: str, controller: str) -> list[str]:
    """The command of a host, which serves at ``address``."""
    notices = ["--notice-metadata", job.notice_metadata] if job.notice_metadata else []
    own = ["--grace-secs", f"{job.grace_secs:g}", *notices, *job.tpu_arguments]
    return [*_role_command("host", name, address, controller), *own]


def _role_command(role: str, name: str, address: str, controller: str) -> list[str]:
    return [
        *("headrace", "role", role, ROLE_FOLDER, "--name", name, "--address", address),
        *("--controller", controller, "--token-file", TOKEN_FILE),
    ]
