"""Read a run from its newest intact checkpoint as checked values, without TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from trainer.checkpoints.checkpoint import newest_intact
from trainer.checkpoints.commit_manifest import JobPosition
from trainer.checkpoints.host_part import LABELS, LEDGER
from trainer.checkpoints.manifest import STATE
from trainer.checkpoints.read import Checkpoint
from trainer.checkpoints.run_files import commit_name
from trainer.checkpoints.saved_counts import SavedCounts
from trainer.checkpoints.shard_name import ShardName
from trainer.errors import TornCheckpoint
from trainer.model.heads import BINARY
from trainer.model.task_heads import AnyHead, read_head
from trainer.options.document_field import OPEN, DocumentField
from trainer.planning.plan import PartitionPlan
from trainer.run.labels.label_record import LabelRecord
from trainer.run.progress.epochs import DataPosition
from trainer.run.progress.identity import RunIdentity
from trainer.run.weights.run_state import RunProgress
from transforms.arrays import Array

#: By name, of no checkpoint.
NOTHING_TORN: Mapping[str, TornCheckpoint] = MappingProxyType({})


@dataclass(frozen=True)
class SavedRun:
    """A run read from a checkpoint, the inverse of :func:`trainer.run.weights.run_state.snapshot`.

    Attributes:
        path: the checkpoint's folder, or its location in a bucket.
        identity: the run's identity.
        progress: the run's progress.
        counts: the counts of trained events; None if the run does not count them.
        arrays: weights, slots and random state, by name; none of them if it was read without weights.
        head: the model's task; earlier releases had only one.
        digest: SHA-256 of the checkpoint's manifest, hence of all its bytes.
        number: of the checkpoint, which is in its name.
        job: the position of a training job; None if one process trained it.
        labels: the labels as trained; None if they are not recorded.
        partition: the plan of the tables in its parts; None: they are whole, or their rows are spread over the hosts of ``job``.
        unread: the shards that have the tables, if servers are to read them: ``arrays`` has no table then.
    """

    path: str
    identity: RunIdentity
    progress: RunProgress
    counts: SavedCounts | None
    arrays: Mapping[str, Array]
    head: AnyHead = BINARY
    digest: str = ""
    number: int = 0
    job: JobPosition | None = None
    labels: LabelRecord | None = None
    partition: PartitionPlan | None = None
    unread: tuple[ShardName, ...] = ()

    @property
    def name(self) -> str:
        """The name of the checkpoint's folder."""
        return commit_name(self.number)

    @property
    def epoch_events(self) -> int:
        """The events of the batches of the open epoch of a job, see :class:`JobPosition`; by its steps in a commit of an earlier release."""
        if self.job is None:
            return 0
        return self.job.epoch_events or self.job.epoch_steps * self.identity.config["batch_rows"]


def read_newest_run(
    run_dir: str | Path, *, on_skip: Callable[[str], None], weights: bool = True, verifies_all: bool = True,
    with_shards: bool = True, torn: Mapping[str, TornCheckpoint] = NOTHING_TORN,
) -> SavedRun | None:  # fmt: skip
    """The newest checkpoint that is intact and whole, or None: see :func:`trainer.checkpoints.checkpoint.newest_intact`.

    ``torn``: by name, checkpoints of which servers have found a shard torn.
    """

    def take(checkpoint: Checkpoint) -> SavedRun:
        if checkpoint.name in torn:
            raise torn[checkpoint.name]
        return saved_run(checkpoint)

    return newest_intact(
        run_dir, take, on_skip=on_skip, weights=weights, verifies_all=verifies_all, with_shards=with_shards
    )


def saved_run(checkpoint: Checkpoint) -> SavedRun:
    """The typed content of a checkpoint. Raises :class:`TornCheckpoint` naming the place of what does not fit."""
    field = DocumentField(checkpoint.document, f"{checkpoint.path}/{STATE}")
    identity = RunIdentity.read(field.at("identity"))
    progress = RunProgress.read(field)
    position = OPEN.read(DataPosition, field.at("position"))
    job = JobPosition.read(field)
    # A checkpoint within an epoch has a number of its own, and so have all later ones.
    is_behind = position.epochs_done > checkpoint.epochs_done and job is None
    if is_behind or position.data_digest != identity.data_digest:
        raise TornCheckpoint("a checkpoint's position must be that of its own epoch and data",
                             where=field.at("position").place, value=position)  # fmt: skip
    arrays = dict(checkpoint.arrays)
    uneven = arrays.pop(LEDGER, None)
    counts = field.at("ledger")
    wanted = identity.config.get("count_events")
    if (counts.value is not None, uneven is not None) != (wanted, wanted):
        raise TornCheckpoint("a checkpoint must hold a ledger if and only if the run counts events", where=counts.place)
    saved = None if uneven is None else SavedCounts.read(counts, uneven)
    labels = _read_labels(field, arrays.pop(LABELS, None), saved)
    head = field.members().get("head")
    task = BINARY if head is None else read_head(head)
    return SavedRun(
        checkpoint.path, identity, progress, saved, arrays, task, checkpoint.digest, checkpoint.epochs_done, job, labels,
        checkpoint.partition, checkpoint.unread,
    )  # fmt: skip


def _read_labels(field: DocumentField, packed: Array | None, counts: SavedCounts | None) -> LabelRecord | None:
    """The label record of a document; None without one."""
    document = field.members().get("labels")
    if (document is None) != (packed is None) or (packed is not None and counts is None):
        raise TornCheckpoint("a checkpoint must hold a label record with its array and a ledger, or none of it",
                             where=field.place)  # fmt: skip
    return None if document is None or packed is None else LabelRecord.read(document, packed)
