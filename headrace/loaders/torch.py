"""Batches of a model's inputs as tensors of PyTorch, each event once."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from headrace.loaders.event_batches import EventBatches, LoaderOptions
from headrace.loaders.source import FeatureSource
from trainer.run.loading.options import ReadAhead, StreamOptions
from transforms.errors import InputError
from transforms.time_range import Moment

if TYPE_CHECKING:
    from headrace.loaders.torch_dataset import TorchBatches


def torch(
    model: str,
    start: Moment | None = None,
    end: Moment | None = None,
    *,
    home: str = ".headrace",
    catalog_url: str = "",
    rank: int = 0,
    world: int = 1,
    batch_rows: int = 1024,
    shuffle_events: int = 0,
    seed: int = 0,
    lanes: int = 1,
    partitions_per_epoch: int = 1,
    events_per_epoch: int = 0,
    equal_steps: bool = False,
    pad: bool = False,
    jagged: bool | None = None,
    table_version: int | None = None,
    fragments_ahead: int = 2,
    threads: int = 1,
) -> TorchBatches:
    """A model's inputs for the partitions that start in ``[start, end)``, as a ``torch.utils.data.IterableDataset`` of batches.

    Give it to a ``DataLoader`` or a ``StatefulDataLoader`` with ``batch_size=None``, and any number of workers; or iterate over it. Its
    ``state_dict()`` has what was handed out. Deterministic.

    Args:
        jagged: ids are one ``KeyedJaggedTensor`` of TorchRec; False: values and offsets of each input; None: as TorchRec is installed or not.

    The other arguments, the order of events and the errors are those of :func:`headrace.batches <headrace.loaders.batches.batches>`. In addition
    :class:`~transforms.errors.InputError` is raised if PyTorch, or TorchRec for ``jagged``, is not installed.

    >>> events = torch("ctr", home=home, batch_rows=64, jagged=False)
    >>> batch = next(iter(events))
    >>> batch.rows, batch.dense.shape, batch.ids["overlap"].offsets.shape
    (64, torch.Size([64, 1]), torch.Size([65]))
    """
    _require("torch")
    if jagged:
        _require("torchrec")
    from headrace.loaders.torch_dataset import TorchBatches

    source = FeatureSource.of(model, start, end, home, catalog_url)
    stream = StreamOptions(
        batch_rows=batch_rows,
        shuffle_events=shuffle_events,
        seed=seed,
        lanes=lanes,
        partitions_per_epoch=partitions_per_epoch,
        events_per_epoch=events_per_epoch,
    )
    options = LoaderOptions(stream, rank, world, equal_steps, pad, ReadAhead(fragments_ahead, threads))
    is_jagged = find_spec("torchrec") is not None if jagged is None else jagged
    return TorchBatches(EventBatches(source, options, table_version), is_jagged=is_jagged)


def _require(package: str) -> None:
    if find_spec(package) is None:
        raise InputError(f"{package} must be installed to load batches as its tensors", where="hr.torch",
                         next_step=f"pip install {'headrace[torch]' if package == 'torch' else package}, or load NumPy arrays with hr.batches")  # fmt: skip
