"""The dataset of PyTorch over a loader's batches. It needs PyTorch, so it is imported when a dataset is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch.utils.data import IterableDataset, get_worker_info

from headrace.loaders.event_batches import EventBatches, Iteration
from headrace.loaders.feature_batch import bucket_counts, dense_columns, ragged_inputs
from trainer.model.inputs import InputLayout
from trainer.run.reading.batches import Batch


@dataclass(frozen=True, slots=True)
class RaggedTensors:
    """The ids of an input: those of event i are ``values[offsets[i]:offsets[i + 1]]``.

    Attributes:
        values: int32, or int64 if any input has more than 2**31 buckets.
        offsets: of the type of ``values``, [events + 1], as ``torch.nn.EmbeddingBag`` takes it with ``include_last_offset``.
        weights: float32 per id of an input with weights, else None.
    """

    values: torch.Tensor
    offsets: torch.Tensor
    weights: torch.Tensor | None

    def to(self, device: Any, *, non_blocking: bool = False) -> RaggedTensors:
        """These tensors on a device."""
        weights = None if self.weights is None else self.weights.to(device, non_blocking=non_blocking)
        return RaggedTensors(
            self.values.to(device, non_blocking=non_blocking),
            self.offsets.to(device, non_blocking=non_blocking),
            weights,
        )

    def pin_memory(self) -> RaggedTensors:
        """These tensors in pinned memory."""
        weights = None if self.weights is None else self.weights.pin_memory()
        return RaggedTensors(self.values.pin_memory(), self.offsets.pin_memory(), weights)


@dataclass(frozen=True, slots=True)
class TorchBatch:
    """The events of a batch.

    Attributes:
        rows: its events, without those that fill it up.
        ids: the inputs of ids: a ``KeyedJaggedTensor`` of TorchRec, or tensors by name.
        dense: the inputs of numbers, float32 [events, numbers], in the order of :attr:`TorchBatches.dense_columns`.
        labels: float32 [events], or of several labels [events, labels] with NaN where an event has none.
        weights: float32 [events]: 1, or 0 for what fills a batch up.
    """

    rows: int
    ids: Any
    dense: torch.Tensor
    labels: torch.Tensor
    weights: torch.Tensor

    def to(self, device: Any, *, non_blocking: bool = False) -> TorchBatch:
        """The batch on a device."""
        if isinstance(self.ids, Mapping):
            ids: Any = {name: one.to(device, non_blocking=non_blocking) for name, one in self.ids.items()}
        else:
            ids = self.ids.to(device, non_blocking=non_blocking)
        dense, labels, weights = (
            one.to(device, non_blocking=non_blocking) for one in (self.dense, self.labels, self.weights)
        )
        return TorchBatch(self.rows, ids, dense, labels, weights)

    def pin_memory(self) -> TorchBatch:
        """The batch in pinned memory; a ``DataLoader`` with ``pin_memory`` calls it."""
        if isinstance(self.ids, Mapping):
            ids: Any = {name: one.pin_memory() for name, one in self.ids.items()}
        else:
            ids = self.ids.pin_memory()
        return TorchBatch(self.rows, ids, self.dense.pin_memory(), self.labels.pin_memory(), self.weights.pin_memory())


class TorchBatches(IterableDataset):  # type: ignore[misc, type-arg, unused-ignore]
    """Batches of tensors; each iteration hands out every event of the range once, a share of it to each worker.

    Attributes:
        table_version: the version of the table that is read.
        dense_columns: the columns of each input of numbers in :attr:`TorchBatch.dense`.
        buckets: of each input of ids, the number that its ids are below.
        labels: the names of several labels, in the order of their columns; none for one label.
    """

    def __init__(self, events: EventBatches, *, is_jagged: bool) -> None:
        super().__init__()
        self._events, self._is_jagged = events, is_jagged
        self.table_version = events.table_version
        self.dense_columns = dense_columns(events.layout)
        self.buckets = bucket_counts(events.layout)
        self.labels = events.labels

    @property
    def steps(self) -> int:
        """The batches of this rank in the next iteration, of all of its workers."""
        return self._events.steps()

    def __iter__(self) -> TorchIteration:
        info = get_worker_info()
        iteration = self._events.iterate() if info is None else self._events.iterate(info.id, info.num_workers)
        return TorchIteration(iteration, self._events.layout, is_jagged=self._is_jagged)

    def state_dict(self) -> dict[str, Any]:
        """What the share of this process has handed out, as a JSON object; see ``docs/loaders.md``."""
        return self._events.state_dict()

    def load_state_dict(self, state: object) -> None:
        """Let the next iteration begin where states end.

        Args:
            state: what :meth:`state_dict` returned, a list of the states of all ranks, or such states of a ``StatefulDataLoader``.
        """
        self._events.load_state_dict(state)

    def rewind(self) -> None:
        """Let the next iteration begin at the beginning of the range."""
        self._events.rewind()


class TorchIteration(Iterator[TorchBatch]):
    """The batches of an iteration."""

    def __init__(self, iteration: Iteration, layout: InputLayout, *, is_jagged: bool) -> None:
        self._iteration, self._layout = iteration, layout
        self._names = [item.name for item in layout.embedded] if is_jagged else None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TorchBatch:
        batch = next(self._iteration)
        ids: Any = _tensors(batch, self._layout) if self._names is None else _jagged(batch, self._names)
        dense, labels, weights = (torch.from_numpy(one) for one in (batch.dense, batch.labels, batch.weights))
        return TorchBatch(batch.rows, ids, dense, labels, weights)

    def close(self) -> None:
        """End reading."""
        self._iteration.close()


def _tensors(batch: Batch, layout: InputLayout) -> dict[str, RaggedTensors]:
    return {
        name: RaggedTensors(
            torch.from_numpy(one.values),
            torch.from_numpy(one.offsets.astype(one.values.dtype)),
            None if one.weights is None else torch.from_numpy(one.weights),
        )
        for name, one in ragged_inputs(batch, layout)
    }


def _jagged(batch: Batch, names: list[str]) -> Any:
    """A ``KeyedJaggedTensor``: its values are input by input, as the ids of a batch are."""
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

    ids = batch.ids
    lengths = (ids.offsets[:, 1:] - ids.offsets[:, :-1]).astype(ids.ids.dtype).reshape(-1)
    return KeyedJaggedTensor(
        keys=names,
        values=torch.from_numpy(ids.ids),
        weights=None if ids.weights is None else torch.from_numpy(ids.weights),
        lengths=torch.from_numpy(lengths),
        stride=ids.rows,
    )
