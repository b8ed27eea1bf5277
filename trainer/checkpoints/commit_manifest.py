"""The manifest of a commit that consists of parts: the merged document, and the parts by their digests. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.checkpoints.host_part import HostPart, PartName
from trainer.checkpoints.host_steps import StepsByHost
from trainer.checkpoints.manifest import other_format, signed_text, verified_document
from trainer.checkpoints.part_manifest import PartManifest, check_moments
from trainer.checkpoints.shard_rows import table_slices
from trainer.errors import ConfigError, TornCheckpoint
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_document import plan_at, plan_fingerprint, plan_members
from trainer.scheduling.orders import Commit
from transforms.derived_documents import Later, Omitted, Row, document_of

COMMIT_FORMAT = "headrace.commit/1"
#: The format of a commit whose parts are the shards of a partition plan, of a resharded run or of a job that trains by a plan.
PARTITIONED_FORMAT = "headrace.commit/2"
#: The formats of commits of parts.
COMMIT_FORMATS = (COMMIT_FORMAT, PARTITIONED_FORMAT)


@dataclass(frozen=True)
class CommitFacts:
    """What the commits of one plan have in common, as its document states it.

    Attributes:
        identity, head: the documents of the run's identity and of the model's task.
        data_digest: the digest of the identity's data.
        segments: the planned partitions.
        planned_rows: the events of each partition when it was planned.
        held_out: the document of the run's held-out share; None without one.
    """

    identity: Mapping[str, Any]
    data_digest: str
    head: Mapping[str, Any]
    segments: tuple[tuple[str, ...], ...]
    planned_rows: Mapping[str, int]
    held_out: Omitted[Mapping[str, Any] | None] = None


@dataclass(frozen=True, slots=True, order=True)
class CarriedPlaces:
    """Places ``[first, stop)`` in the stream of a plan that the host of ``rank`` had to train and had not."""

    rank: int
    first: int
    stop: int

    def check_read(self, part: DocumentField) -> None:
        """Raise :class:`TornCheckpoint` for places of which the last is not after the first."""
        if self.first >= self.stop:
            raise TornCheckpoint("carried places must be the rank of a host, the first place and the one after the last",
                                 where=part.place, value=(self.first, self.stop))  # fmt: skip


@dataclass(frozen=True, slots=True)
class JobPosition:
    """The position of a job in its units at a commit.

    Attributes:
        attempt: the attempt that trained it.
        next_unit: the units below this number are trained, but for ``carried``.
        plan: the name of the plan.
        hosts: the hosts by rank.
        carried: what is not trained of begun units.
        release: the release that trained it.
        epoch_steps: optimizer steps since the natural beginning of the epoch.
        epoch_events: the events of their batches, of all hosts, or of each one where hosts have batches of their own; 0 in a commit of an
            earlier release, whose batches within an epoch have one size.
        host_steps: the steps of every host since the run's beginning, by name.
        sum_order: the order in which hosts added dense gradients: machines and hosts of each, as ``2 x 4``, and ``bf16`` for rounded ones; empty:
            by rank, as they were.
        carried_units: the same as ``carried`` in a commit of an earlier release: begun units of one host each, with the first row of the
            fragment that is not trained.
    """

    attempt: int
    next_unit: int
    plan: str
    hosts: tuple[str, ...]
    carried: tuple[Row[CarriedPlaces], ...]
    release: str
    epoch_steps: int = 0
    epoch_events: Omitted[int] = 0
    host_steps: Later[StepsByHost] = field(default_factory=dict)
    carried_units: Omitted[tuple[tuple[int, int], ...]] = ()
    sum_order: Omitted[str] = ""

    def to_document(self) -> dict[str, Any]:
        """A JSON object."""
        document: dict[str, Any] = document_of(self)
        units = document.pop("carried_units", None)
        return document if units is None else {**document, "carried": units}

    @classmethod
    def read(cls, document: DocumentField) -> JobPosition | None:
        """The position in the document of a checkpoint; None for one of a single process."""
        job = document.members().get("job")
        if job is None:
            return None
        carried = job.at("carried").items()
        if carried and len(carried[0].items()) == 2:
            job = DocumentField(
                {**job.members_as_they_are(), "carried": [], "carried_units": job.at("carried").value}, job.place
            )
        return OPEN.read(cls, job)


@dataclass(frozen=True)
class CommitManifest:
    """A commit after ``epochs_done`` epochs.

    Attributes:
        document: the checkpoint's document, without the ledger, which the parts hold.
        parts: the parts by rank, or by core of ``partition``.
        partition: of a commit with a plan, the placement of its tables; it may name no table. None: row r of each table is in the part of
            rank r modulo their number.
    """

    epochs_done: int
    document: Mapping[str, Any]
    parts: tuple[PartName, ...]
    partition: PartitionPlan | None = None

    def to_bytes(self) -> bytes:
        """The text of the commit's ``manifest.json``: equal commits give equal bytes."""
        return signed_text(
            {
                "format": COMMIT_FORMAT if self.partition is None else PARTITIONED_FORMAT,
                "epochs_done": self.epochs_done,
                "document": dict(self.document),
                "parts": [str(part) for part in self.parts],
                **({} if self.partition is None else {"partition": plan_members(self.partition)}),
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> CommitManifest:
        """The inverse of :meth:`to_bytes`. Raises :class:`TornCheckpoint`, or :class:`OtherFormat` for another version."""
        return cls.read(verified_document(data, where), where)

    @classmethod
    def read(cls, found: DocumentField, where: str) -> CommitManifest:
        """The manifest of a verified document."""
        form = found.at("format").text()
        if form not in COMMIT_FORMATS:
            raise other_format(form, COMMIT_FORMATS, where)
        parts = tuple(PartName.parse(item.text(), item.place) for item in found.at("parts").items())
        if [part.rank for part in parts] != list(range(len(parts))) or len({part.attempt for part in parts}) != 1:
            raise TornCheckpoint("the parts of a commit must be those of all ranks of one attempt, got others", where=where,
                                 value=[part.folder for part in parts][:8])  # fmt: skip
        document = found.at("document").members_as_they_are()
        partition = _read_partition(found.at("partition"), len(parts)) if form == PARTITIONED_FORMAT else None
        return cls(found.at("epochs_done").count(), document, parts, partition)


def _read_partition(field: DocumentField, parts: int) -> PartitionPlan:
    try:
        plan = plan_at(field)
    except ConfigError as error:
        raise TornCheckpoint(
            error.what, where=f"{field.place}: {error.where}", value=error.value, allowed=error.allowed
        ) from error
    if plan.cores != parts:
        raise TornCheckpoint("a commit must have a part for each core of its partition", where=field.place, value=parts,
                             allowed=str(plan.cores))  # fmt: skip
    return plan


def digest_of(data: bytes) -> str:
    """The digest by which a commit names the manifest of a part."""
    return hashlib.sha256(data).hexdigest()


def check_parts(commit: Commit, hosts: Sequence[str], parts: Sequence[tuple[PartName, PartManifest]]) -> None:
    """Raises :class:`TornCheckpoint` unless the parts are one state of the whole job, at one moment."""
    _check_same_state(commit, len(hosts), parts)
    _check_ledgers(commit, parts)
    if planned := sorted({manifest.part.partition for _, manifest in parts} - {""}):
        raise TornCheckpoint("a part of a job without a plan must have no plan, got a part with a plan", where=f"commit {commit.epochs}",
                             value=planned[0][:12], next_step="train the epoch again from the last commit")  # fmt: skip
    if parts[0][1].part.shards:
        _check_without_rows(commit, parts)
        return
    tables = {tuple(array.name for array in manifest.arrays if _is_shared(array.name)) for _, manifest in parts}
    if len(tables) != 1:
        raise TornCheckpoint("all parts of a commit must have the same tables", where=f"commit {commit.epochs}")


def _check_without_rows(commit: Commit, parts: Sequence[tuple[PartName, PartManifest]]) -> None:
    """Raise :class:`TornCheckpoint` for a part with rows of tables, beside the shards of the servers that have them all."""
    for name, manifest in parts:
        if any(_is_shared(array.name) and array.file.size_bytes > _EMPTY_BYTES for array in manifest.arrays):
            raise TornCheckpoint("the rows of tables must be in the parts of hosts or in the shards of servers, got both",
                                 where=f"commit {commit.epochs}: {name.folder}")  # fmt: skip


def check_planned_parts(
    commit: Commit, hosts: Sequence[str], plan: PartitionPlan, parts: Sequence[tuple[PartName, PartManifest]]
) -> None:
    """As :func:`check_parts`, for the parts of hosts that train by a plan."""
    if len(hosts) != plan.cores:
        raise TornCheckpoint("a commit with a plan must have one host per core of the plan", where=f"commit {commit.epochs}",
                             value=f"{len(hosts)} hosts", allowed=str(plan.cores))  # fmt: skip
    fingerprint = plan_fingerprint(plan)
    for name, manifest in parts:
        if manifest.part.partition != fingerprint:
            raise TornCheckpoint("a part must have the plan of its job, got another plan", where=name.folder,
                                 value=manifest.part.partition[:12] or "none", allowed=fingerprint[:12],
                                 next_step="train the epoch again from the last commit")  # fmt: skip
    _check_ledgers(commit, parts)
    check_shards(commit, plan, parts)


def _check_ledgers(commit: Commit, parts: Sequence[tuple[PartName, PartManifest]]) -> None:
    if len({manifest.part.ledger is None for _, manifest in parts}) != 1:
        raise TornCheckpoint("all parts of a commit must hold a ledger, or none", where=f"commit {commit.epochs}")


def check_shards(commit: Commit, plan: PartitionPlan, parts: Sequence[tuple[PartName, PartManifest]]) -> None:
    """Raises :class:`TornCheckpoint` unless the parts are one state, each with the arrays of its core's shards."""
    _check_same_state(commit, plan.cores, parts)
    found = [{array.name for array in manifest.arrays if _is_shared(array.name)} for _, manifest in parts]
    expected: list[set[str]] = [set() for _ in parts]
    for kind, table in tables_of([name for names in found for name in sorted(names)]):
        slices = table_slices(plan, kind, table)
        for s, one in enumerate(slices):
            names = {array_name(kind, column, table, s if len(slices) > 1 else None) for column in TABLE_COLUMNS}
            for core in one.cores:
                expected[core] |= names
    for (name, _), own, wanted in zip(parts, found, expected, strict=True):
        if own != wanted:
            raise TornCheckpoint("a part must have the arrays of its shards, got others or not all", where=name.folder,
                                 value=sorted(own ^ wanted)[:4])  # fmt: skip


def _check_same_state(commit: Commit, ranks: int, parts: Sequence[tuple[PartName, PartManifest]]) -> None:
    steps = {manifest.part.step for _, manifest in parts}
    if len(steps) != 1:
        raise TornCheckpoint("all parts of a commit must have the same step, got several steps", where=f"commit {commit.epochs}",
                             value=sorted(steps))  # fmt: skip
    if len({manifest.part.plan for _, manifest in parts}) != 1:
        raise TornCheckpoint(
            "all parts of a commit must have the same plan, got several plans", where=f"commit {commit.epochs}"
        )
    for rank, (name, manifest) in enumerate(parts):
        _check_part(commit, ranks, rank, name, manifest)


def _is_shared(name: str) -> bool:
    return table_of(name) is not None


def table_of(name: str) -> tuple[str, str, str] | None:
    """The kind, the column ("rows", "weights", "slots") and the table of an array's name; None for another array."""
    kind, _, rest = (name[found.end() :] if (found := _SLICE.match(name)) else name).partition("/")
    column, _, table = rest.partition("/")
    return (kind, column, table) if _ROW_KIND.fullmatch(kind) and column in TABLE_COLUMNS and table else None


def tables_of(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The kinds and names of the tables of arrays."""
    return tuple(dict.fromkeys((kind, table) for kind, _, table in filter(None, map(table_of, names))))


def array_name(kind: str, column: str, table: str, slice_number: int | None = None) -> str:
    """The name of an array of a table, or of one of its slices of columns."""
    return f"{'' if slice_number is None else f'slice-{slice_number}/'}{kind}/{column}/{table}"


def is_of_slice(name: str) -> bool:
    """Whether an array is that of a slice of columns."""
    return _SLICE.match(name) is not None


_SLICE = re.compile("slice-(0|[1-9][0-9]{0,8})/")
#: An npy file of an array without values.
_EMPTY_BYTES = 128
#: The kinds of a model's tables.
TABLE_KINDS = ("embedding", "linear")
#: The arrays of each kind by rows, which hosts share: of tables, and of what tables have by rows beside their own.
TABLE_COLUMNS = ("rows", "weights", "slots")
_ROW_KIND = re.compile(f"({'|'.join(TABLE_KINDS)})(-[a-z]+)?")


def _check_part(commit: Commit, hosts: int, rank: int, name: PartName, manifest: PartManifest) -> None:
    part = manifest.part
    found = {
        "attempt": (part.attempt, commit.attempt),
        "attempt of the folder": (name.attempt, commit.attempt),
        "epoch": (part.epoch, commit.epochs - 1),
        "next unit": (part.next_unit, commit.next_unit),
        "hosts": (part.hosts, hosts),
        "rank": (part.rank, rank),
        "rank of the folder": (name.rank, rank),
    }
    wrong = {what: pair for what, pair in found.items() if pair[0] != pair[1]}
    if wrong:
        raise TornCheckpoint(
            "a part must be that of the commit, its host and its attempt, got another",
            where=name.folder,
            value=", ".join(f"{what} {pair[0]}" for what, pair in wrong.items()),
            allowed=", ".join(f"{what} {pair[1]}" for what, pair in wrong.items()),
            next_step="train the epoch again from the last commit",
        )
    check_moments(part, ((array.name, array.moment) for array in manifest.arrays), name.folder)


def commit_document(
    commit: Commit,
    hosts: Sequence[str],
    parts: Sequence[HostPart],
    facts: CommitFacts,
    release: str,
) -> dict[str, Any]:
    """The document of a commit; the parts by rank. Raises :class:`TornCheckpoint` for parts of several epochs."""
    first = parts[0]
    if len(first.history) != first.epochs_done or {one.epochs_done for one in parts} != {first.epochs_done}:
        raise TornCheckpoint("the part of rank 0 must hold the scores of all finished epochs, got others", where=first.folder,
                             value=f"scores of {len(first.history)}", allowed=f"{first.epochs_done}")  # fmt: skip
    carried = tuple(CarriedPlaces(part.rank, *places) for part in parts for places in part.carried)
    position = JobPosition(
        commit.attempt,
        commit.next_unit,
        first.plan,
        tuple(hosts),
        carried,
        release,
        first.epoch_steps,
        first.epoch_events,
        first.host_steps,
        sum_order=first.sum_order,
    )
    return {
        "position": {"epochs_done": first.epochs_done, "data_digest": facts.data_digest},
        "step": first.step,
        "segments": [list(segment) for segment in facts.segments],
        "history": [dict(one) for one in first.history],
        "planned_rows": dict(facts.planned_rows),
        "identity": dict(facts.identity),
        "head": dict(facts.head),
        **({} if first.labels is None else {"labels": dict(first.labels)}),
        **({} if facts.held_out is None else {"held_out": dict(facts.held_out)}),
        "job": position.to_document(),
    }
