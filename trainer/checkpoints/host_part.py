"""The document of a host's part of a commit. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.checkpoints.host_steps import StepsByHost
from trainer.errors import TornCheckpoint
from trainer.options.document_field import DocumentField
from transforms.derived_documents import Omitted

#: The folder of parts within the folder of checkpoints.
PARTS = "parts"
#: The array of the ledger's uneven counts.
LEDGER = "ledger"
#: The array of the compressed labels as trained.
LABELS = "labels"
#: The arrays of the predictions of an epoch that is not finished.
PREDICTIONS = "predictions"

_FOLDER = re.compile("attempt-([0-9]{6,18})/host-([0-9]{1,6})")
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment of a snapshot: after ``step`` steps of the optimizer, at the end of an attempt."""

    attempt: int
    step: int


@dataclass(frozen=True)
class HostPart:
    """What a host knows about its part, beside the arrays.

    Attributes:
        attempt: the attempt whose end it is.
        epoch: the number of the epoch, from 0.
        rank, hosts: the host's rank, and the number of hosts.
        next_unit: the units below this number are trained.
        step: optimizer steps of the whole run.
        carried: the places ``[first, stop)`` in the plan's stream that the host has begun units of and has not trained, ascending.
        ledger: :meth:`SavedCounts.to_document` of the events that this host trained (:class:`trainer.checkpoints.saved_counts.SavedCounts`);
            the array ``ledger`` goes with it. None if events are not counted.
        labels: the document of the labels as trained (:class:`trainer.run.labels.label_record.LabelRecord`), by rank 0; the array ``labels`` goes
            with it. None if they are not recorded.
        epochs_done: the natural epochs of the run that are finished; a commit may be within one.
        history: the documents of their scores, by rank 0; empty by others.
        plan: the name of the plan that the units belong to.
        epoch_steps: optimizer steps since the natural beginning of the epoch.
        epoch_events: the events of their whole batches, see :class:`~trainer.checkpoints.commit_manifest.JobPosition`.
        partition: the fingerprint of the partition plan by which the host trains; empty: rows are spread over the hosts.
        host_steps: the steps of every host since the run's beginning, by rank 0; empty by others.
        sum_order: the order in which hosts add dense gradients, by rank 0, see :attr:`~trainer.planning.host_grid.SumFigures.order`.
        shards: the names of the shards that servers have written, by server, by rank 0; none: the tables are in the parts.
        bases: the names of the full shards that have the rows which those leave out.
    """

    attempt: int
    epoch: int
    rank: int
    hosts: int
    next_unit: int
    step: int
    carried: tuple[tuple[int, int], ...] = ()
    ledger: Mapping[str, Any] | None = None
    labels: Omitted[Mapping[str, Any] | None] = None
    epochs_done: int = 0
    history: tuple[Mapping[str, Any], ...] = ()
    plan: str = ""
    epoch_steps: int = 0
    epoch_events: Omitted[int] = 0
    partition: Omitted[str] = ""
    host_steps: Omitted[StepsByHost] = field(default_factory=dict)
    sum_order: Omitted[str] = ""
    shards: Omitted[tuple[str, ...]] = ()
    bases: Omitted[tuple[str, ...]] = ()

    @property
    def moment(self) -> Moment:
        """The moment of every array of the part."""
        return Moment(self.attempt, self.step)

    @property
    def folder(self) -> str:
        """The part's folder within the folder of checkpoints."""
        return part_folder(self.attempt, self.rank)

    def check_read(self, part: DocumentField) -> None:
        """Raise :class:`TornCheckpoint` for a rank that is not that of a host."""
        if self.rank >= self.hosts:
            raise TornCheckpoint("the rank of a part must be below the number of hosts", where=part.place,
                                 value=self.rank, allowed=f"less than {self.hosts}")  # fmt: skip


def attempt_folder(attempt: int) -> str:
    """The folder of the parts of an attempt within the folder of checkpoints."""
    return f"{PARTS}/attempt-{attempt:06d}"


def part_folder(attempt: int, rank: int) -> str:
    """The folder of a part within the folder of checkpoints."""
    return f"{attempt_folder(attempt)}/host-{rank}"


@dataclass(frozen=True, slots=True, order=True)
class PartName:
    """A written part by its place and its content, as ``PartWritten.part`` names it.

    Attributes:
        attempt, rank: its place.
        sha256: the digest of its manifest's bytes, hence of all its files.
    """

    attempt: int
    rank: int
    sha256: str

    @property
    def folder(self) -> str:
        """The part's folder within the folder of checkpoints."""
        return part_folder(self.attempt, self.rank)

    def __str__(self) -> str:
        return f"{self.folder.removeprefix(PARTS + '/')}@{self.sha256}"

    @classmethod
    def parse(cls, text: str, where: str) -> PartName:
        """The inverse of ``str``. Raises :class:`TornCheckpoint`."""
        folder, _, digest = text.partition("@")
        matched = _FOLDER.fullmatch(folder)
        if matched is not None and _DIGEST.fullmatch(digest):
            name = cls(int(matched[1]), int(matched[2]), digest)
            if str(name) == text:
                return name
        raise TornCheckpoint("the name of a part must be its folder and its digest, got another text", where=where,
                             value=text[:120], allowed="attempt-NNNNNN/host-R@<sha256>")  # fmt: skip
