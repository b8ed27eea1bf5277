"""What a job is: the document from which its processes start."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from trainer.checkpoints.manifest import canonical_json, parse_json
from trainer.errors import TornCheckpoint
from trainer.job.control.job_files import JobFiles, replace_file
from trainer.options.document_field import DocumentField
from trainer.scheduling.documents import read_value, value_document
from trainer.scheduling.events import DataRange
from trainer.scheduling.job import JobSettings
from trainer.tables.wire.settings import DENSE_VALUES, VALUES
from transforms.derived_documents import Later, one_of
from transforms.errors import NotFound, StorageError

_MOST_BYTES = 1 << 24
FORMAT = "headrace.job/1"


@dataclass(frozen=True, slots=True)
class ServersSpec:
    """The parameter servers of a job.

    Attributes:
        addresses: as host:port.
        updates: how the updates of hosts come together: summed or each.
        token_file: a file with their token; empty: the token of a job on other machines; servers of this one were started with --no-token.
        authority: a PEM file of the authority of their certificates; empty: connections are not encrypted.
        plan: the digest of the document of the plan by which they hold tables; empty: rows are spread over them.
        wire_ids, wire_values: see :class:`~trainer.tables.wire.settings.WireSettings`.
        run: its number; see :class:`~trainer.servers.run_servers.RunServers`.
        patience_secs: how long a server may be away before the attempt fails.
        workers: addresses of embedding workers; none: hosts use the servers themselves.
        workers_authority: a PEM file of the authority of their certificates; empty: connections to them are not encrypted.
        workers_token_file: a file with the token of the workers; empty: that of the servers.
    """

    addresses: tuple[str, ...]
    updates: str = "summed"
    token_file: str = ""
    authority: str = ""
    plan: str = ""
    wire_ids: str = "plain"
    wire_values: str = "float32"
    run: int = 0
    patience_secs: float = 60.0
    workers: tuple[str, ...] = ()
    workers_authority: str = ""
    workers_token_file: str = ""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A job, as its launcher wrote it.

    Attributes:
        format: of the document.
        job: the identity of the job; it stays while the run directory is used.
        settings: of the state machine.
        data: the plan and its natural ends of epochs; None while it is not known.
        home: the warehouse's home, for readers.
        bucket_run: the run directory in a bucket, with the settings of its store; empty: the commits are beside the job's files.
        keep_commits: the newest commits that are kept.
        buffer_bytes: the limit of a host's buffer.
        statistics_share: the share of the batches from which hosts sample statistics of features.
        partition: the digest of the document of the plan by which hosts hold tables, from the next attempt on if it was replaced; empty:
            rows are spread over them.
        servers: that hold the tables; None: the hosts do.
        towers: the names of the inputs of each tower, whose plan is ``partition``; none: hosts exchange flat.
        wire_values: how rows and gradients are encoded between hosts that hold the tables.
        dense_values: how dense gradients are sent between hosts.
        machine_hosts: so many hosts share a machine, by which they exchange by towers, and add dense gradients.
        sends_sums: whether hosts of a tower may send sums of their rows.
        hot_rows: how many rows of each table on servers stay in the memory of the host, by its name.
        batch_file_bytes: the most bytes of all files of batches in the home, which hosts read and write; 0: they use none.
    """

    format: str
    job: str
    settings: JobSettings
    data: DataRange | None
    home: str
    bucket_run: str = ""
    keep_commits: int = 2
    buffer_bytes: int = 256 << 20
    statistics_share: float = 0.0
    partition: str = ""
    servers: ServersSpec | None = None
    towers: tuple[tuple[str, ...], ...] = ()
    hot_rows: Later[Mapping[str, int]] = field(default_factory=dict)
    wire_values: Later[Annotated[str, one_of(*VALUES)]] = "float32"
    dense_values: Later[Annotated[str, one_of(*DENSE_VALUES)]] = "float32"
    machine_hosts: Later[int] = 1
    sends_sums: Later[bool] = False
    batch_file_bytes: Later[int] = 0

    def write(self, files: JobFiles) -> None:
        """Replace the document of the run, atomically."""
        files.make()
        replace_file(files.spec, canonical_json(value_document(self)))

    def run_dir(self, files: JobFiles) -> str:
        """The run directory, which holds the commits."""
        return self.bucket_run or str(files.root)

    @classmethod
    def read(cls, files: JobFiles) -> JobSpec:
        """The document of a run. Raises :class:`NotFound` without one, :class:`TornCheckpoint` for a damaged one."""
        place = files.spec
        try:
            with open(place, "rb") as file:
                content = file.read(_MOST_BYTES)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound("this run has no job", where=str(place),
                           next_step="start it: headrace train MODEL --hosts 1 --readers 1") from None  # fmt: skip
        except OSError as error:
            raise StorageError("the document of a job cannot be read", where=str(place), value=error.strerror) from None
        return cls.parse(content, str(place))

    @classmethod
    def parse(cls, content: bytes, where: str) -> JobSpec:
        """The inverse of :meth:`write`, from the bytes of the document. Raises :class:`TornCheckpoint`."""
        spec: JobSpec = read_value(cls, DocumentField(parse_json(content, where), where))
        if spec.format != FORMAT:
            raise TornCheckpoint(
                "the document of a job must have the known format", where=where, value=spec.format[:80], allowed=FORMAT
            )
        return spec


def job_identity(files: JobFiles) -> str:
    """The identity of the run's job; a new one for a run without a job."""
    try:
        return JobSpec.read(files).job
    except NotFound:
        return secrets.token_hex(8)
