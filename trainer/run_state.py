"""Everything a training run is at one moment, and how it becomes a checkpoint and comes back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.config import TrainConfig
from trainer.document_field import DocumentField
from trainer.embedding.engine import CpuEngine, TableState
from trainer.epochs import DataPosition, Segments
from trainer.errors import TornCheckpoint
from trainer.heads import BINARY, Head
from trainer.inputs import InputLayout
from trainer.ledger import Ledger
from trainer.metrics import AnyScores, read_scores
from trainer.readers import Batch
from trainer.run_identity import RunIdentity

if TYPE_CHECKING:
    from trainer.dlrm import Dlrm

Array = np.ndarray[Any, np.dtype[Any]]

#: The array of a checkpoint that holds the ledger's uneven counts.
LEDGER = "ledger"


@dataclass(frozen=True, slots=True)
class EpochScores:
    """Progressive validation of one epoch: every event was predicted before it was trained on."""

    epoch: int
    pass_number: int
    partitions: tuple[str, ...]
    scores: AnyScores

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        return {
            "epoch": self.epoch,
            "pass_number": self.pass_number,
            "partitions": list(self.partitions),
            "scores": self.scores.to_document(),
        }

    @classmethod
    def read(cls, field: DocumentField) -> EpochScores:
        """The scores at ``field``."""
        epoch, pass_number = field.at("epoch").count(), field.at("pass_number").count()
        return cls(epoch, pass_number, field.at("partitions").texts(), read_scores(field.at("scores")))


@dataclass
class Progress:
    """Where a run stands: optimizer ``step``, epochs done, segments planned so far, scores of past epochs."""

    step: int = 0
    epochs_done: int = 0
    segments: Segments = ()
    history: list[EpochScores] = field(default_factory=list)

    @classmethod
    def read(cls, field: DocumentField) -> Progress:
        """The progress at ``field``, a checkpoint's document. Raises :class:`TornCheckpoint` if its parts disagree."""
        position = DataPosition.read(field.at("position"))
        segments = tuple(item.texts() for item in field.at("segments").items())
        history = [EpochScores.read(item) for item in field.at("history").items()]
        if [item.epoch for item in history] != list(range(len(history))) or len(history) != position.epochs_done:
            raise TornCheckpoint("a checkpoint must hold the scores of every epoch, got others",
                                 where=field.at("history").place, value=[item.epoch for item in history][-5:],
                                 allowed=f"epochs 0 to {position.epochs_done - 1}")  # fmt: skip
        return cls(field.at("step").count(), position.epochs_done, segments, history)


class Weights:
    """The model as a whole: embedding tables and the dense part, predicting and learning together."""

    def __init__(self, layout: InputLayout, engine: CpuEngine | None, dense: Dlrm, head: Head = BINARY) -> None:
        self.head = head
        self.layout = layout
        self.engine = engine
        self.dense = dense

    def train(self, batch: Batch) -> Array:
        """One step on a batch; returns the logits from before it, float32 [batch.rows] or [batch.rows, classes]."""
        activations = self._activations(batch)
        logits, gradients = self.dense.step(activations, batch.dense, batch.labels, batch.weights)
        if self.engine is not None:
            self.engine.apply_gradients(batch.ids, gradients)
        return logits[: batch.rows]

    def predict(self, batch: Batch) -> Array:
        """Logits of a batch, float32 [batch.rows] or [batch.rows, classes]; changes nothing."""
        return self.dense.predict(self._activations(batch), batch.dense)[: batch.rows]

    def _activations(self, batch: Batch) -> Array:
        if self.engine is None:
            return np.zeros((len(batch.labels), 0), np.float32)
        return self.engine.lookup(batch.ids)

    def arrays(self) -> dict[str, Array]:
        """All weights, slots and random state, as a checkpoint stores them."""
        arrays = {f"dense/{name}": array for name, array in self.dense.state().items()}
        for table, state in (self.engine.state() if self.engine else {}).items():
            arrays[f"embedding/rows/{table}"] = state.rows
            arrays[f"embedding/weights/{table}"] = state.weights
            arrays[f"embedding/slots/{table}"] = state.slots
        return arrays

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Become what :meth:`arrays` was taken from. Raises :class:`TornCheckpoint` if something is missing or misfits."""
        self.dense.load_state(_under(arrays, "dense/"))
        rows, weights, slots = (_under(arrays, f"embedding/{kind}/") for kind in ("rows", "weights", "slots"))
        if not rows.keys() == weights.keys() == slots.keys():
            raise TornCheckpoint("saved embedding tables lack a part", value=sorted(rows))
        if self.engine is not None:
            self.engine.load_state({name: TableState(rows[name], weights[name], slots[name]) for name in rows})


def _under(arrays: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def build_weights(layout: InputLayout, config: TrainConfig, head: Head = BINARY) -> Weights:
    """A model in its initial state. Loads TensorFlow and sets it up for ``config``."""
    from trainer.dlrm import Dlrm, prepare_tensorflow

    prepare_tensorflow(config)
    engine = CpuEngine(layout.features, seed=config.seed) if layout.features else None
    return Weights(layout, engine, Dlrm(layout, config, head), head)


def snapshot(
    identity: RunIdentity, progress: Progress, weights: Weights, ledger: Ledger | None
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The document and arrays of a checkpoint, all of this one moment."""
    arrays = weights.arrays()
    counts = None if ledger is None else ledger.counts()
    if counts is not None:
        arrays[LEDGER] = counts.uneven
    document = {
        "position": DataPosition(progress.epochs_done, identity.data_digest).to_document(),
        "step": progress.step,
        "segments": [list(segment) for segment in progress.segments],
        "history": [item.to_document() for item in progress.history],
        "identity": identity.to_document(),
        "ledger": None if counts is None else counts.to_document(),
        "head": weights.head.to_document(),
    }
    return document, arrays


def trained_partitions(history: Iterable[EpochScores]) -> set[str]:
    """Every partition that some epoch has trained."""
    return {key for item in history for key in item.partitions}
