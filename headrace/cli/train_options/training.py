"""All options of ``headrace train``, checked against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from headrace.cli.options.completions import model_names
from headrace.cli.options.devices import DeviceOptions
from headrace.cli.options.exports import ServingOptions
from headrace.cli.options.launchers import GKE, LOCAL, REMOTE, TPU_VM, ClusterOptions, option_name
from headrace.cli.options.metrics import MetricsOptions
from headrace.cli.options.option_groups import values_of_group
from headrace.cli.options.servers import ServerOptions
from headrace.cli.options.tpus import TPUS_OF_THIS_MACHINE, TpuOptions
from headrace.cli.options.tracking import TrackingOptions
from headrace.cli.options.training import read_options
from headrace.cli.train_options.data import DataOptions
from headrace.cli.train_options.hosts import HostOptions
from headrace.cli.train_options.run import RunOptions
from transforms.errors import InputError

#: Options that a job on other machines does not have: its processes are as many as its machines.
_LOCAL_ONLY = ("caught_up_hosts", "caught_up_readers")


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """What ``headrace train`` is given, by group. Raises :class:`InputError` for groups that do not fit each other.

    The checks read no file: :meth:`tpus_of` and :meth:`check_combinations` look at the training options of ``--config``, too.
    """

    model: Annotated[str, typer.Argument(autocompletion=model_names, help="Name of a submitted model.")]
    data: DataOptions = field(default_factory=DataOptions)
    run: RunOptions = field(default_factory=RunOptions)
    hosts: HostOptions = field(default_factory=HostOptions)
    servers: ServerOptions = field(default_factory=ServerOptions)
    serving: ServingOptions = field(default_factory=ServingOptions)
    tracking: TrackingOptions = field(default_factory=TrackingOptions)
    tpu: TpuOptions = field(default_factory=TpuOptions)
    device: DeviceOptions = field(default_factory=DeviceOptions)
    metrics: MetricsOptions = field(default_factory=MetricsOptions)
    cluster: ClusterOptions = field(default_factory=ClusterOptions)

    def __post_init__(self) -> None:
        self._check_processes()
        self.servers.check_launcher(self.cluster.launcher)
        self.metrics.check_processes(self.cluster.launcher, is_job=self.hosts.is_job)
        if self.hosts.follow and self.data.end:
            raise InputError("--follow must go without --end", where="--follow", value=self.data.end,
                             next_step="leave --end out")  # fmt: skip
        if not self.cluster.is_written:
            self._check_job()

    def tpus_of(self, options: Mapping[str, Any]) -> TpuOptions | None:
        """The TPUs that train with these training options, or their dense part beside servers; None for the cpu engine.

        Raises :class:`InputError` where the two disagree, and for a job that a slice cannot train: one process drives all TPUs of its
        machine.
        """
        found = self.tpu.of_training(options)
        if found is None:
            return None
        if self.device.has_gpu:
            raise InputError("the dense part must be on one kind of device", where="--tpu, --device", value=f"{found.tpu}, {self.device.device}",
                             next_step="leave --tpu or --device out")  # fmt: skip
        found.check_servers(self.servers.servers)
        launcher, hosts = self.cluster.launcher, self.hosts.hosts
        if launcher != LOCAL and found.tpu != TPUS_OF_THIS_MACHINE:
            raise InputError("--tpu with --launcher must name the TPUs of each host's own machine", where="--tpu", value=found.tpu,
                             allowed=TPUS_OF_THIS_MACHINE)  # fmt: skip
        if launcher == LOCAL and (hosts or self.hosts.follow):
            raise InputError("--tpu with --launcher local needs a single process: remove --hosts and --follow", where="--tpu, --hosts",
                             value=hosts, next_step=f"leave --hosts out, or give --launcher {GKE}, {TPU_VM} or {REMOTE}")  # fmt: skip
        if launcher == REMOTE and hosts != 1 and not self.servers.servers:
            raise InputError("a job whose tables are in a TPU slice must have one host", where="--hosts", value=hosts, allowed="1",
                             next_step="give --servers N too: then each host has a slice for the dense part; or leave --tpu out")  # fmt: skip
        return found

    def check_combinations(self, options: Mapping[str, Any]) -> None:
        """Raise :class:`InputError` for what :mod:`trainer.options.combinations` refuses with these training options."""
        from trainer.options.combinations import Setup, place_of, refusal_of

        setup = Setup(
            hashed=bool(options.get("hashed")), pruned=options.get("pruning") is not None, hosts=self.hosts.most_hosts,
            servers=bool(self.servers.servers), workers=bool(self.servers.embedding_workers), plan=bool(self.hosts.plan),
            plan_follows_data=self.hosts.plan_follows_data,
            spares=bool(self.servers.spare_servers), scales=self.servers.scaled is not None,
            towers=bool(self.hosts.towers), tpu=self.tpu.of_training(options) is not None, least_servers=bool(self.servers.least_servers),
            least_hosts=0 < self.hosts.least_hosts < self.hosts.most_hosts, hot=options.get("hot_rows") is not None,
            rounded=self.servers.wire_values not in ("", "float32"), machines=self.hosts.hosts_per_machine > 1,
            tower_sums=self.hosts.tower_sums, rounded_sums=self.hosts.rounds_dense_values,
            batch_files=self.data.batch_file_bytes() > 0, own_batches=self.hosts.is_job and bool(options.get("batch_rows_per_host")),
            sequences=bool(options.get("sequences")), tower_modules=options.get("tower_modules") is not None,
        )  # fmt: skip
        if (found := refusal_of(setup)) is not None:
            option = found.options[0]
            value = setup.hosts if option == "hosts" else values_of_group(self).get(option) or options.get(option)
            raise InputError(found.what, where=place_of(found), value=str(value)[:200], next_step=found.next_step)

    def check_phase(self, phase: str) -> None:
        """Raise :class:`InputError` for what does not go with the phases of a run file."""
        if self.run.save_as:
            raise InputError("--save-as must go without phases", where="--save-as", value=self.run.save_as,
                             next_step="copy the run file of --from, or give --phase")  # fmt: skip
        if self.cluster.launcher == TPU_VM:
            raise InputError("a slice without a cluster must have one phase: its script makes one slice and deletes it", where="--launcher, --from",
                             value=TPU_VM, allowed=f"--launcher {GKE}, or --phase {phase}", next_step=f"write each phase: --phase {phase}")  # fmt: skip
        if self.cluster.launcher == REMOTE:
            raise InputError("the controller of hosts that are started elsewhere must have one phase: it cannot start those of another",
                             where="--launcher, --from", value=REMOTE, next_step=f"train each phase: --phase {phase}")  # fmt: skip
        if not 0 < self.run.catch_up_secs < float("inf"):
            raise InputError(
                "the time of initial training must be above 0", where="--catch-up-secs", value=self.run.catch_up_secs
            )
        self.check_combinations(read_options(self.run.config))

    def _check_processes(self) -> None:
        """Raise :class:`InputError` for numbers of processes that would change on other machines."""
        for name in _LOCAL_ONLY if self.cluster.launcher != LOCAL else ():
            if value := getattr(self.hosts, name):
                raise InputError("a job on other machines needs a fixed number of processes", where=option_name(name),
                                 value=value, next_step="leave this option out")  # fmt: skip
        if self.tracking.tensorboard and self.cluster.is_written:
            raise InputError("--tensorboard needs a job that this command runs: event files are written on its machine", where="--tensorboard, --launcher",
                             value=self.cluster.launcher, next_step="leave it out, and read the run: headrace runs tensorboard gs://bucket/path FOLDER")  # fmt: skip
        if self.tracking.mlflow and self.cluster.is_written:
            raise InputError("--mlflow needs a job that this command runs: it looks at the commits and copies their points", where="--mlflow, --launcher",
                             value=self.cluster.launcher, next_step="leave it out, or train with --launcher local or remote")  # fmt: skip
        if self.data.evaluate_commits and self.cluster.launcher != LOCAL:
            raise InputError("--evaluate-commits needs --launcher local: the controller of a job on other machines has no memory for tables",
                             where="--evaluate-commits, --launcher", value=self.cluster.launcher,
                             next_step="leave it out, and start headrace evaluate --follow on a machine that reads the run")  # fmt: skip

    def _check_job(self) -> None:
        """Raise :class:`InputError` for a job, or training in one process, that this command cannot run."""
        from warehouse.storage.locations import is_gcs

        job = self.hosts.as_job()
        if self.servers.spare_servers and job is None:
            raise InputError("--spare-servers needs a job, which has the servers as its roles", where="--spare-servers",
                             value=self.servers.spare_servers, next_step="give --hosts 1 too")  # fmt: skip
        if self.servers.scaled is not None and job is None:
            raise InputError("servers that scale need a job, whose controller chooses their number", where="--servers, --scale-servers-from",
                             value=self.servers.servers, next_step="give --hosts 1 too")  # fmt: skip
        if is_gcs(self.run.run_dir) and job is None:
            raise InputError("the run directory of training in one process must be a local folder", where="--run-dir",
                             value=self.run.run_dir, allowed="a local folder, or gs://bucket/path with --hosts",
                             next_step="give --hosts 1 too")  # fmt: skip
