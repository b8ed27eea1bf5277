"""A training job that other machines run: what its launcher was asked for, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer.options.process_range import ProcessRange
from trainer.options.topology import Topology
from transforms.errors import InputError
from warehouse.storage.locations import is_gcs, parse_gcs

#: Kubernetes allows 63 characters in the longest name that it makes of a job's: ``NAME-workers-reader-0-9999``, or with phases
#: ``NAME-caught-up-reader-0-9999``.
_MOST_NAME, _MOST_PHASED_NAME = 40, 38
#: The label of the revision of a StatefulSet's pods is its name and 11 characters, of 63: https://github.com/kubernetes/kubernetes/issues/64023.
_MOST_SET_NAME = 52
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?\Z", re.ASCII)
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z", re.ASCII)
_REPOSITORY = re.compile(r"[a-z0-9]+([._-]+[a-z0-9]+)*(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*\Z", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z", re.ASCII)
#: Of the pod of a parameter server, at least.
SERVER_PROCESSORS = 4
_MOST_READERS = 1000
_MOST_SERVERS = 64
_MOST_HOSTS = 10_000
#: The priorities of a queued job: the names of its WorkloadPriorityClass without ``headrace-``.
PRIORITIES = ("low", "normal", "high")
#: Of the longest configuration, which a ConfigMap takes.
_MOST_OPTIONS_BYTES = 1 << 19


@dataclass(frozen=True, slots=True)
class Images:
    """The container images of the roles.

    Attributes:
        repository: in which they are, without a scheme.
        tag: of all of them.
    """

    repository: str
    tag: str

    @classmethod
    def parse(cls, text: str, *, tag: str) -> Images:
        """The images of ``repository`` or ``repository:tag``; ``tag``: without one. Raises :class:`InputError`."""
        repository, colon, given = text.rpartition(":")
        if not colon or "/" in given:  # no colon, or that of a port
            repository, given = text, tag
        if not _REPOSITORY.match(repository) or len(repository) > 200 or not _TAG.match(given):
            raise InputError("images must be named by a repository of containers", where="--images", value=text[:200],
                             allowed="such as europe-west4-docker.pkg.dev/PROJECT/headrace, perhaps with :TAG")  # fmt: skip
        return cls(repository, given)

    def of(self, role: str) -> str:
        """The image of a role."""
        return f"{self.repository}/headrace-{role}:{self.tag}"


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """A job of a controller, readers, and hosts on one TPU slice or on nodes with CPUs or GPUs.

    Attributes:
        name: of the job; its objects, secret and service accounts are named after it.
        topology: of the slice; None: hosts are on nodes without TPUs.
        hosts: the host processes: one on each virtual machine of a slice, or on each node.
        readers: the number of reader processes, or its range.
        images: of the roles.
        run_dir, home: the run directory and the warehouse's home, in buckets.
        arguments: of ``headrace train``, without those that depend on the machine.
        options: the training options, a JSON text; empty: chosen from the data.
        grace_secs: in which the job may commit after the preemption notice of a host or parameter server.
        notice_metadata: the URL of the metadata server that gives notices to hosts; empty: SIGTERM alone does.
        spot: use machines that may be preempted.
        device_arguments: of the host, whose TPUs or GPUs train; empty: hosts train on their CPUs.
        slice_machines: machines of the slice of each host, whose TensorFlow servers it drives from elsewhere; 0: each host is on a machine of a slice.
        gpu: hosts have a GPU each.
        accelerator: the kind of these GPUs, the label ``cloud.google.com/gke-accelerator`` of their nodes; empty: any.
        servers: the number of parameter servers, the most of a range; 0: hosts hold the tables.
        servers_from: the least number of a range of servers; 0: their number is fixed.
        server_threads: the threads of each parameter server.
        embedding_workers: the number of embedding workers between hosts and servers; 0: hosts use the servers themselves.
        files: the texts of "plan" and "towers", by option.
        has_export: the controller writes links of served weights, on its disk before they are sent to a bucket.
        metrics_address: where each process serves metrics, as host:port; empty: none does.
        anonymous_metrics: the names of clients in metrics are hashed.
        phase: of the run, "initial" or "caught_up", whose processes these are; empty: the run has no phases.
    """

    name: str
    topology: Topology | None
    hosts: int
    readers: ProcessRange
    images: Images
    run_dir: str
    home: str
    arguments: tuple[str, ...]
    options: str = ""
    grace_secs: float = 30.0
    notice_metadata: str = ""
    spot: bool = False
    device_arguments: tuple[str, ...] = ()
    slice_machines: int = 0
    gpu: bool = False
    accelerator: str = ""
    servers: int = 0
    servers_from: int = 0
    server_threads: int = SERVER_PROCESSORS
    embedding_workers: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    has_export: bool = False
    metrics_address: str = ""
    anonymous_metrics: bool = False
    phase: str = ""

    def __post_init__(self) -> None:
        if self.readers.most > _MOST_READERS:
            raise InputError("a job must have a number of readers, or a range", where="--readers", value=str(self.readers),
                             allowed=f"1 to {_MOST_READERS:,}")  # fmt: skip
        most_name = _MOST_PHASED_NAME if self.phase else _MOST_NAME
        if self.is_scaled:
            most_name = min(most_name, _MOST_SET_NAME - len(self.reader_set) + len(self.name))
        if self.servers_from:
            most_name = min(most_name, _MOST_SET_NAME - len(self.server_set) + len(self.name))
        check_name("--job-name", self.name, most=most_name)
        if not 0 <= self.servers <= _MOST_SERVERS:
            raise InputError("a job must have a number of parameter servers", where="--servers", value=self.servers,
                             allowed=f"1 to {_MOST_SERVERS}")  # fmt: skip
        if not 0 <= self.embedding_workers <= _MOST_SERVERS:
            raise InputError("a job must have a number of embedding workers", where="--embedding-workers", value=self.embedding_workers,
                             allowed=f"1 to {_MOST_SERVERS}")  # fmt: skip
        if not 1 <= self.hosts <= _MOST_HOSTS:
            raise InputError(
                "a job must have a number of hosts", where="--hosts", value=self.hosts, allowed=f"1 to {_MOST_HOSTS:,}"
            )
        if self.accelerator:
            check_label("--accelerator", self.accelerator)
            if not self.gpu:
                raise InputError("--accelerator must go with --device gpu", where="--accelerator", value=self.accelerator,
                                 next_step="give --device gpu too")  # fmt: skip
        for option, value in (("--run-dir", self.run_dir), ("--home", self.home)):
            if not is_gcs(value) or not value.isprintable():
                raise InputError("the run and the home of a job on other machines must be in a bucket", where=option,
                                 value=value or None, allowed="gs://bucket/path")  # fmt: skip
            parse_gcs(value)
        if len(self.options.encode()) > _MOST_OPTIONS_BYTES:
            raise InputError("training options must be short", where="--config", value=f"{len(self.options):,} characters",
                             allowed=f"{_MOST_OPTIONS_BYTES:,} bytes")  # fmt: skip

    @property
    def metrics_port(self) -> int:
        """The port of the metrics of each process; 0 without metrics."""
        return int(self.metrics_address.rpartition(":")[2]) if self.metrics_address else 0

    @property
    def metrics_arguments(self) -> list[str]:
        """The options of each process for its metrics."""
        if not self.metrics_address:
            return []
        return ["--metrics-address", self.metrics_address, *(["--anonymous-metrics"] if self.anonymous_metrics else [])]

    @property
    def workers(self) -> str:
        """The name of the JobSet of hosts, readers, parameter servers and embedding workers."""
        return f"{self.name}-{self.phase.replace('_', '-') or 'workers'}"

    @property
    def reader_set(self) -> str:
        """The name of the StatefulSet of a range of readers."""
        return f"{self.name}-{self.phase.replace('_', '-')}-readers" if self.phase else f"{self.name}-readers"

    @property
    def server_set(self) -> str:
        """The name of the StatefulSet of a range of parameter servers, and of its headless service."""
        return self.reader_set.removesuffix("readers") + "servers"

    @property
    def is_scaled(self) -> bool:
        """Whether the controller sets the number of readers."""
        return not self.readers.is_fixed

    @property
    def is_repeated(self) -> bool:
        """Whether the same hosts and readers may be wanted for another training after this one has ended."""
        return self.phase == "initial"


def check_hosts(hosts: int, expected: int, topology: Topology) -> None:
    """Raise :class:`InputError` for another number of hosts than train on the slice; 0 is none given."""
    if hosts not in (0, expected):
        raise InputError("the number of hosts must be that of the TPU slice", where="--hosts", value=hosts,
                         allowed=f"{expected}, of {topology}", next_step="leave --hosts out")  # fmt: skip


def check_name(option: str, name: str, *, most: int = 63) -> None:
    """Raise :class:`InputError` unless a name is a DNS label that begins with a letter."""
    if not _NAME.match(name) or len(name) > most:
        raise InputError("a name must be a DNS-1123 label that begins with a letter", where=option, value=name[:100],
                         allowed=f"up to {most} of a-z, 0-9 and -, such as ctr-daily")  # fmt: skip


def check_label(option: str, name: str) -> None:
    """Raise :class:`InputError` unless a name is a DNS label."""
    if not _LABEL.match(name):
        raise InputError(
            "a name must be a DNS-1123 label", where=option, value=name[:100], allowed="up to 63 of a-z, 0-9 and -"
        )


def check_priority(priority: str) -> None:
    """Raise :class:`InputError` for an unknown priority."""
    if priority and priority not in PRIORITIES:
        raise InputError(
            "a priority must be a known one", where="--priority", value=priority[:100], allowed=", ".join(PRIORITIES)
        )
