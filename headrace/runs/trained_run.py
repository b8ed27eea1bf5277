"""A run as its newest commit describes it, read from its folder or bucket without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from trainer.checkpoints.manifest import MANIFEST
from trainer.checkpoints.open_run import open_run
from trainer.checkpoints.read import read_document
from trainer.checkpoints.run_files import RunFiles, commit_name, epochs_of, newest_first
from trainer.errors import TornCheckpoint
from trainer.model.scores import AnyScores, StoredScores, read_scores
from trainer.options.config import recorded_options
from trainer.options.document_field import OPEN, DocumentField
from trainer.run.history.history_file import read_history
from trainer.run.history.run_history import RunHistory
from trainer.run.progress.identity import RunIdentity
from transforms.errors import NotFound


@dataclass(frozen=True, slots=True)
class TrainedEpoch:
    """An epoch, whose events were predicted before they were trained.

    Attributes:
        epoch, pass_number: both from 0.
        partitions: their keys.
        scores: exact figures. In later passes than the first the model has seen the events.
    """

    epoch: int
    pass_number: int
    partitions: tuple[str, ...]
    scores: StoredScores


@dataclass(frozen=True)
class TrainedRun:
    """A run up to its newest commit that can be read.

    Attributes:
        folder: the folder or the location in a bucket.
        commit: the number of the commit.
        epochs_done, step: the epochs and the optimizer steps that it has.
        committed_secs: when it was written, in epoch seconds.
        identity: the data, inputs and options.
        options: all options that weights depend on, by name.
        epochs: those that are finished, in order.
        held_out: the figures of the held-out events after the newest pass; None without any.
        held_out_epochs: the epochs that were finished then.
        history: the metric history; None if an earlier release trained it.
        commits: the numbers of the commits that are there, newest first.
        skipped: why newer commits, or the history, were passed over.
    """

    folder: str
    commit: int
    epochs_done: int
    step: int
    committed_secs: float
    identity: RunIdentity
    options: Mapping[str, Any]
    epochs: tuple[TrainedEpoch, ...]
    held_out: AnyScores | None
    held_out_epochs: int
    history: RunHistory | None
    commits: tuple[int, ...]
    skipped: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the folder's path."""
        return PurePath(self.folder.partition("?")[0].rstrip("/")).name

    @property
    def newest(self) -> AnyScores | None:
        """The newest figures on events that the model had not seen: of an epoch, or of the held-out events. None without any."""
        unseen = [one for one in self.epochs if one.pass_number == 0 and one.scores.events]
        if self.held_out is not None and (not unseen or unseen[-1].epoch < self.held_out_epochs):
            return self.held_out
        return unseen[-1].scores if unseen else None

    @property
    def events(self) -> int:
        """The events of the finished epochs, in all passes."""
        return sum(one.scores.events for one in self.epochs)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that it has trained, in time order."""
        seen = {key for one in self.epochs for key in one.partitions}
        return tuple(key for key in self.identity.partitions if key in seen)


def read_run(folder: str) -> TrainedRun:
    """The run in a folder or at ``gs://bucket/path``.

    Raises :class:`NotFound` for a folder without commits, :class:`TornCheckpoint` if none can be read, and
    :class:`~transforms.errors.StorageError`.
    """
    files = open_run(folder)
    names = newest_first(files)
    if not names:
        raise NotFound("a run must have a checkpoint", where=folder, next_step="headrace train MODEL, or name another folder")  # fmt: skip
    skipped: list[str] = []
    commits = tuple(map(epochs_of, names))
    for number in commits:
        try:
            return _read(files, folder, number, commits, tuple(skipped))
        except TornCheckpoint as error:
            skipped.append(f"{commit_name(number)}: {error.what} ({error.where})")
    raise TornCheckpoint("a run must have an intact checkpoint", where=folder, value="; ".join(skipped)[:400],
                         next_step=f"headrace ckpt verify {folder} lists what is damaged")  # fmt: skip


def _read(files: RunFiles, folder: str, number: int, commits: tuple[int, ...], skipped: tuple[str, ...]) -> TrainedRun:
    document = read_document(files, number)
    history = None
    try:
        history = read_history(files, number)
    except TornCheckpoint as error:
        skipped = (*skipped, f"the metric history: {error.what} ({error.where})")
    identity = RunIdentity.read(document.at("identity"))
    held_out_epochs, held_out = _held_out(document)
    return TrainedRun(
        folder=folder,
        commit=number,
        epochs_done=document.at("position").at("epochs_done").count(),
        step=document.at("step").count(),
        committed_secs=files.written_secs(f"{commit_name(number)}/{MANIFEST}"),
        identity=identity,
        options=recorded_options(identity.config),
        epochs=tuple(OPEN.read(TrainedEpoch, one) for one in document.at("history").items()),
        held_out=held_out,
        held_out_epochs=held_out_epochs,
        history=history,
        commits=commits,
        skipped=skipped,
    )


def _held_out(document: DocumentField) -> tuple[int, AnyScores | None]:
    """The finished epochs and the figures of the newest scoring of the held-out events."""
    scored = document.at("held_out").at("scored").items() if document.has("held_out") else []
    return (scored[-1].at("epochs_done").count(), read_scores(scored[-1].at("scores"))) if scored else (0, None)
