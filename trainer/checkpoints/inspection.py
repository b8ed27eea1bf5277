"""What the commits of a run hold and how they differ, for ``headrace ckpt``; without TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainer.checkpoints.commit_manifest import TABLE_KINDS, JobPosition, table_of
from trainer.checkpoints.host_part import LABELS, LEDGER, PARTS, attempt_folder
from trainer.checkpoints.manifest import MANIFEST
from trainer.checkpoints.merge_tables import newest_of_layers
from trainer.checkpoints.read import check_fit, counts_of, open_commit, read_table
from trainer.checkpoints.retention import kept_commits, named_attempts, recorded_policy, written_commits
from trainer.checkpoints.run_files import RunFiles, commit_name
from trainer.checkpoints.saved_counts import SavedCounts
from trainer.checkpoints.stored_commit import StoredCommit, StoredFile, StoredPart, StoredSlice
from trainer.checkpoints.table_sections import name_in_commit
from trainer.errors import OtherFormat, TornCheckpoint
from trainer.options.document_field import DocumentField
from trainer.planning.plan import PartitionPlan
from trainer.planning.plan_document import plan_fingerprint
from transforms.arrays import Array

#: Bytes of the header of an npy file with a list of numbers.
_HEADER_BYTES = 128


@dataclass(frozen=True, slots=True)
class CommitSummary:
    """A commit in a list.

    Attributes:
        attempt: the attempt that trained it; None for one of a single process.
        events: trained events so far, over all passes.
        hosts: the hosts whose parts it consists of.
        written_secs: when it was written, in epoch seconds.
        rule: the rule that keeps it.
        problem: why its manifests cannot be read; the other fields are 0 then.
    """

    name: str
    epochs: int
    attempt: int | None
    step: int
    events: int
    hosts: int
    size_bytes: int
    written_secs: float
    rule: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The commits of a run, newest first, and the parts that none of them names: attempts and bytes."""

    commits: tuple[CommitSummary, ...]
    unnamed_attempts: int
    unnamed_bytes: int


@dataclass(frozen=True, slots=True)
class TableSummary:
    """The trained rows of a table; ``kind``: "embedding" or "linear"."""

    kind: str
    table: str
    rows: int
    dim: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """An array that is no table."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LedgerTotals:
    """The counters of a commit: fragments and events with a counter, the least and the greatest, and their sum."""

    fragments: int
    events: int
    least: int
    most: int
    trained: int


@dataclass(frozen=True, slots=True)
class PartSummary:
    """The part of a host, or of a core of the commit's partition, by its number, or the shard of a server."""

    host: str
    folder: str
    rows: int
    size_bytes: int


@dataclass(frozen=True)
class CommitDescription:
    """What a commit holds.

    Attributes:
        job: the position of the job; None for a checkpoint of a single process.
        labels_bytes: the size of the record of labels as trained; 0 without one.
        options: the options that decide weights.
        partition: of a commit by a plan, or resharded, in words; None for other parts of hosts, or one folder.
        scores: the newest figures on events that the model had not seen.
        calibrations: by label, the document of the map of its logits that predictions apply; empty without one.
        batch_files: the digests of the files of batches that epochs were trained from or have written, each once, in order.
    """

    summary: CommitSummary
    digest: str
    source: str
    label: str
    inputs: tuple[str, ...]
    partitions: int
    first_partition: str
    last_partition: str
    job: JobPosition | None
    scores: Mapping[str, Any]
    tables: tuple[TableSummary, ...]
    arrays: tuple[ArraySummary, ...]
    ledger: LedgerTotals | None
    labels_bytes: int
    parts: tuple[PartSummary, ...]
    options: Mapping[str, Any]
    partition: str | None = None
    calibrations: Mapping[str, Any] = field(default_factory=dict)
    batch_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileCheck:
    """A file of a commit after all of its bytes were read.

    Attributes:
        holds: what it holds: the name of an array, or "document".
        problem: "" if its bytes are those that were written.
    """

    commit: str
    path: str
    holds: str
    size_bytes: int
    problem: str = ""


def list_commits(files: RunFiles, now_secs: float) -> RunSummary:
    """The commits of a run by their manifests; arrays are not read."""
    written = written_commits(files)
    try:
        policy = recorded_policy(files)
    except TornCheckpoint:
        policy = None
    rules = kept_commits(policy, written, now_secs) if policy else dict.fromkeys(written, "newest")
    found = tuple(
        _summary(files, epochs, written[epochs], rules.get(epochs, "")) for epochs in sorted(written, reverse=True)
    )
    named = None if any(one.problem for one in found) else named_attempts(files, sorted(written))
    kept = {attempt_folder(one).removeprefix(f"{PARTS}/") for one in named or ()}
    unnamed = [
        name for name in files.folders(PARTS) if named is not None and name not in kept
    ]  # a torn commit may name any of them
    parts = [f"{PARTS}/{name}/{part}" for name in unnamed for part in files.folders(f"{PARTS}/{name}")]
    return RunSummary(found, len(unnamed), sum(sum(files.sizes(part).values()) for part in parts))


def _summary(files: RunFiles, epochs: int, written_secs: float, rule: str) -> CommitSummary:
    name = commit_name(epochs)
    try:
        return summary_of(open_commit(files, name), written_secs, rule)
    except (TornCheckpoint, OtherFormat) as error:
        return CommitSummary(name, epochs, None, 0, 0, 0, 0, written_secs, rule, f"{error.what} ({error.where})")


def summary_of(commit: StoredCommit, written_secs: float, rule: str = "") -> CommitSummary:
    """The summary of a commit. Raises :class:`TornCheckpoint` for a document that does not fit."""
    return CommitSummary(
        name=commit_name(commit.epochs_done),
        epochs=commit.epochs_done,
        attempt=commit.names[0].attempt if commit.names else None,
        step=commit.document.at("step").count(),
        events=sum(item.at("scores").at("events").count() for item in commit.document.at("history").items()),
        hosts=len(commit.parts),
        size_bytes=sum(file.file.size_bytes for file in commit.files),
        written_secs=written_secs,
        rule=rule,
    )


def describe_commit(files: RunFiles, epochs: int) -> CommitDescription:
    """What a commit holds; embedding tables are not read. Raises :class:`TornCheckpoint` and :class:`OtherFormat`."""
    name = commit_name(epochs)
    commit = open_commit(files, name)
    identity = commit.document.at("identity")
    history = commit.document.at("history").items()
    trained = sorted({key for item in history for key in item.at("partitions").texts()})
    return CommitDescription(
        summary=summary_of(commit, files.written_secs(f"{name}/{MANIFEST}")),
        digest=commit.digest,
        source=identity.at("table").text(),
        label=identity.at("label").text(),
        inputs=tuple(item.at("name").text() for item in identity.at("inputs").items()),
        partitions=len(trained),
        first_partition=trained[0] if trained else "",
        last_partition=trained[-1] if trained else "",
        job=commit.job,
        scores=_newest_unseen(commit.document),
        tables=_tables(files, commit),
        arrays=_arrays(files, commit),
        ledger=_totals(counts_of(files, commit)),
        labels_bytes=commit.parts[0].arrays[LABELS].file.size_bytes if LABELS in commit.parts[0].arrays else 0,
        parts=_parts(commit),
        options={key: option.value for key, option in identity.at("config").members().items()},
        partition=None if commit.partition is None else _partition_text(commit.partition),
        calibrations=_calibrations(commit.document),
        batch_files=tuple(dict.fromkeys(one.at("batch_file").text() for one in history if one.has("batch_file"))),
    )


def _partition_text(plan: PartitionPlan) -> str:
    if not plan.tables:
        return f"row r of each table in part r % {plan.cores}"
    return f"the plan {plan_fingerprint(plan)[:12]} of {plan.cores} cores"


def _held_out(document: DocumentField) -> list[DocumentField]:
    """The figures of the held-out events after each pass."""
    held_out = document.members().get("held_out")
    return [] if held_out is None else held_out.at("scored").items()


def _calibrations(document: DocumentField) -> dict[str, Any]:
    scored = _held_out(document)
    return {} if not scored else {name: one.value for name, one in scored[-1].at("calibrations").members().items()}


def _newest_unseen(document: DocumentField) -> dict[str, Any]:
    """The scores of the newest epoch in the first pass of a segment, or of the held-out events if those are newer."""
    epochs = [one for one in document.at("history").items() if _is_unseen(one)]
    scored = _held_out(document)
    if scored and (not epochs or epochs[-1].at("epoch").count() < scored[-1].at("epochs_done").count()):
        return _scores(scored[-1].at("scores"))
    return _scores(epochs[-1].at("scores")) if epochs else {}


def _is_unseen(epoch: DocumentField) -> bool:
    return epoch.at("pass_number").count() == 0 and epoch.at("scores").at("events").count() > 0


def _scores(field: DocumentField) -> dict[str, Any]:
    """The scores at ``field`` by name, of several labels with the label's name before each."""
    found = {key: one.value for key, one in field.members().items() if key != "tasks"}
    for name, task in field.at("tasks").members().items() if "tasks" in field.members() else ():
        found |= {f"{name} {key}": one.value for key, one in task.members().items()}
    return found


def _tables(files: RunFiles, commit: StoredCommit) -> tuple[TableSummary, ...]:
    """The sizes of tables by the sizes of their files; the rows of shards with bases are counted."""
    found = []
    for kind, table in commit.tables:
        slices = commit.slices(kind, table)
        shards = [shard for one in slices for shard in one.shards]
        rows = sum(_rows(shard.rows.file.size_bytes) for shard in slices[0].shards)
        if slices[0].has_layers:
            where, removed = f"{kind} table {table}", slices[0].removed_rows(files, f"{kind} table {table}")
            rows = len(newest_of_layers(slices[0].rows(files, where), slices[0].bases, removed, where)[0])
        size_bytes = sum(file.file.size_bytes for one in shards for file in (one.rows, one.weights, one.slots))
        found.append(TableSummary(kind, table, rows, sum(map(_columns, slices)), size_bytes))
    return tuple(found)


def _columns(one: StoredSlice) -> int:
    """The columns of a slice of a table, by the sizes of its files; 0 without rows."""
    rows = sum(_rows(shard.rows.file.size_bytes) for shard in one.shards)
    values = sum(shard.weights.file.size_bytes - _HEADER_BYTES for shard in one.shards) // 4
    return values // rows if rows else 0


def _rows(size_bytes: int) -> int:
    return max(size_bytes - _HEADER_BYTES, 0) // 8


def _arrays(files: RunFiles, commit: StoredCommit) -> tuple[ArraySummary, ...]:
    read = ((name, file.array(files), file.file.size_bytes) for name, file in _untabled(commit).items())
    return tuple(ArraySummary(name, str(array.dtype), array.shape, size) for name, array, size in read)


def _untabled(commit: StoredCommit) -> dict[str, StoredFile]:
    """The arrays that are neither tables nor counters nor labels; those of ranks above 0 by ``host-<rank>/``."""
    return {
        name_in_commit(rank, name): file
        for rank, part in enumerate(commit.parts)
        for name, file in part.arrays.items()
        if table_of(name) is None and name not in (LEDGER, LABELS)
    }


def _totals(saved: SavedCounts | None) -> LedgerTotals | None:
    if saved is None:
        return None
    counts = [
        (len(each), int(each.min()), int(each.max()), int(each.sum(dtype=np.int64)))
        for _, each in saved.counts()
        if len(each)
    ]
    return LedgerTotals(
        fragments=len(saved.fragments),
        events=sum(one[0] for one in counts),
        least=min((one[1] for one in counts), default=0),
        most=max((one[2] for one in counts), default=0),
        trained=sum(one[3] for one in counts),
    )


def _parts(commit: StoredCommit) -> tuple[PartSummary, ...]:
    servers = tuple(
        _part(f"s{server}", name.folder, part)
        for server, (name, part) in enumerate(zip(commit.shard_names, commit.shards, strict=True))
    )
    if not commit.is_merged:
        return servers
    of_hosts = commit.partition is None and commit.job is not None
    hosts = commit.job.hosts if of_hosts and commit.job else tuple(f"core {core}" for core in range(len(commit.parts)))
    own = (_part(host, name.folder, part) for host, name, part in zip(hosts, commit.names, commit.parts, strict=True))
    return (*own, *servers)


def _part(owner: str, folder: str, part: StoredPart) -> PartSummary:
    """What is in a folder; a shard with a base has the rows that were changed since."""
    rows = sum(_rows(file.file.size_bytes) for array, file in part.arrays.items() if _is_rows(array))
    return PartSummary(owner, folder, rows, sum(file.file.size_bytes for file in part.arrays.values()))


def _is_rows(name: str) -> bool:
    found = table_of(name)
    return found is not None and found[0] in TABLE_KINDS and found[1] == "rows"


def check_files(files: RunFiles, epochs: int) -> Iterator[FileCheck]:
    """Read every byte of a commit, file by file, and compare it with the manifests; then whether the parts fit each other."""
    name = commit_name(epochs)
    manifest = f"{name}/{MANIFEST}"
    try:
        commit = open_commit(files, name)
    except (TornCheckpoint, OtherFormat) as error:
        yield FileCheck(name, manifest, "manifest", files.sizes(name).get(MANIFEST, 0), f"{error.what} ({error.where})")
        return
    yield FileCheck(name, manifest, "manifest", files.sizes(name).get(MANIFEST, 0))
    for folder in (*(one.folder for one in commit.names), *(one.folder for one in commit.shard_names)):
        yield FileCheck(name, f"{folder}/{MANIFEST}", "manifest", files.sizes(folder).get(MANIFEST, 0))
    is_torn = False
    for file in commit.files:
        problem = _problem(files, file)
        is_torn |= bool(problem)
        yield FileCheck(name, file.path, file.holds, file.file.size_bytes, problem)
    if not is_torn and (problem := _misfit(files, commit)):
        yield FileCheck(name, manifest, "parts", 0, problem)


def _problem(files: RunFiles, file: StoredFile) -> str:
    try:
        file.verify(files)
    except TornCheckpoint as error:
        return error.what
    return ""


def _misfit(files: RunFiles, commit: StoredCommit) -> str:
    """Why the parts of a commit do not fit each other, or ""."""
    try:
        check_fit(files, commit)
        summary_of(commit, 0.0)
    except TornCheckpoint as error:
        return f"{error.what} ({error.where})"
    return ""


@dataclass(frozen=True, slots=True)
class TableChange:
    """How a table differs between two commits.

    Attributes:
        before, after: its rows.
        added, removed, changed: rows that only the later or the earlier one has, and rows of both with other weights or slots.
        weights_norm, slots_norm: the Euclidean norm of the change of the rows of both; None for other widths.
    """

    kind: str
    table: str
    before: int
    after: int
    added: int
    removed: int
    changed: int
    weights_norm: float | None
    slots_norm: float | None


@dataclass(frozen=True, slots=True)
class ArrayChange:
    """How another array differs: the Euclidean norm of the earlier one and of the change; None for arrays of other shapes."""

    name: str
    norm: float | None
    change: float | None


@dataclass(frozen=True, slots=True)
class FragmentChange:
    """The counters of a fragment between two commits: the events whose counter changed, and the sum of the changes.

    A counter that is lower says that its event is trained again, since its label has changed.
    """

    fragment: str
    events: int
    trained: int


@dataclass(frozen=True, slots=True)
class CommitChange:
    """How two commits differ; ``options``: of each option that differs, the two values."""

    before: CommitSummary
    after: CommitSummary
    tables: tuple[TableChange, ...]
    arrays: tuple[ArrayChange, ...]
    ledger: tuple[FragmentChange, ...] | None
    options: Mapping[str, tuple[Any, Any]]


def compare_commits(files: RunFiles, before: int, after: int) -> CommitChange:
    """How two commits differ; both are read and verified, table by table. Raises :class:`TornCheckpoint` and :class:`OtherFormat`."""
    one, other = (open_commit(files, commit_name(epochs)) for epochs in (before, after))
    tables = dict.fromkeys((*one.tables, *other.tables))
    first, second = _untabled(one), _untabled(other)
    options, now = (_options(commit.document) for commit in (one, other))
    return CommitChange(
        summary_of(one, files.written_secs(f"{commit_name(before)}/{MANIFEST}")),
        summary_of(other, files.written_secs(f"{commit_name(after)}/{MANIFEST}")),
        tuple(_table_change(files, one, other, kind, table) for kind, table in tables),
        tuple(
            _array_change(files, name, first.get(name), second.get(name)) for name in dict.fromkeys((*first, *second))
        ),
        _ledger_change(counts_of(files, one), counts_of(files, other)),
        {key: (options.get(key), now.get(key)) for key in sorted({*options, *now}) if options.get(key) != now.get(key)},
    )


def _options(document: DocumentField) -> dict[str, Any]:
    return {key: option.value for key, option in document.at("identity").at("config").members().items()}


def _table_change(files: RunFiles, one: StoredCommit, other: StoredCommit, kind: str, table: str) -> TableChange:
    empty = (np.zeros(0, np.int64), np.zeros((0, 0), np.float32), np.zeros((0, 0), np.float32))
    (rows, weights, slots), (rows_now, weights_now, slots_now) = (
        read_table(files, commit, kind, table) if (kind, table) in commit.tables else empty for commit in (one, other)
    )
    _, at, at_now = np.intersect1d(rows, rows_now, assume_unique=True, return_indices=True)
    changed = np.zeros(len(at), bool)
    norms: list[float | None] = []
    for earlier, later in ((weights, weights_now), (slots, slots_now)):
        if earlier.shape[1:] != later.shape[1:]:
            norms.append(None)
            changed[:] = True
            continue
        difference = later[at_now].astype(np.float64) - earlier[at]
        changed |= (difference != 0).any(axis=1)
        norms.append(float(np.sqrt((difference**2).sum())))
    return TableChange(
        kind, table, len(rows), len(rows_now), len(rows_now) - len(at), len(rows) - len(at), int(changed.sum()), *norms
    )


def _array_change(files: RunFiles, name: str, one: StoredFile | None, other: StoredFile | None) -> ArrayChange:
    if one is None or other is None:
        return ArrayChange(name, None, None)
    before, after = one.array(files), other.array(files)
    if before.shape != after.shape:
        return ArrayChange(name, None, None)
    return ArrayChange(name, _norm(before), _norm(after.astype(np.float64) - before.astype(np.float64)))


def _norm(array: Array) -> float:
    return float(np.sqrt((array.astype(np.float64) ** 2).sum()))


def _ledger_change(one: SavedCounts | None, other: SavedCounts | None) -> tuple[FragmentChange, ...] | None:
    if one is None or other is None:
        return None
    before = {fragment.key: counts for fragment, counts in one.counts()}
    found = []
    for fragment, counts in other.counts():
        earlier = before.get(fragment.key)
        if earlier is not None and len(earlier) != len(counts):
            earlier = None  # its key names other data
        gained = counts.astype(np.int64) - (0 if earlier is None else earlier.astype(np.int64))
        if gained.any():
            found.append(FragmentChange(fragment.key, int(np.count_nonzero(gained)), int(gained.sum())))
    return tuple(found)
