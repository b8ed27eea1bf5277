"""Batches of a model's inputs as NumPy arrays, each event once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from headrace.loaders.event_batches import EventBatches, Iteration, LoaderOptions
from headrace.loaders.feature_batch import FeatureBatch, bucket_counts, dense_columns, feature_batch
from headrace.loaders.source import FeatureSource
from trainer.run.loading.options import ReadAhead, StreamOptions
from transforms.time_range import Moment


def batches(
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
    table_version: int | None = None,
    fragments_ahead: int = 2,
    threads: int = 1,
) -> NumpyBatches:
    """A model's inputs for the partitions that start in ``[start, end)``, as batches of NumPy arrays.

    The events, their order and the batches are those that ``headrace train`` has with the same ``batch_rows``, ``shuffle_events``, ``seed``,
    ``partitions_per_epoch`` and ``events_per_epoch``: events that have a label and are not deleted. Memos are loaded and the rest is computed; files are
    pinned while they are read. Deterministic.

    Args:
        model: the name of a submitted model, at its newest version, or ``name@version``.
        start: a date, a time or its ISO 8601 text, in UTC unless it has an offset; None: from the first partition on.
        end: likewise, not included; None: to the last partition.
        home: the warehouse, as ``--home`` of the commands.
        catalog_url: the catalog's, if it is not in the home.
        rank: the number of this process among those that train together, from 0 on; batches go to ranks in turn.
        world: the number of these processes.
        batch_rows: the events of a batch of one rank.
        shuffle_events: events are shuffled in windows of this number, a multiple of ``batch_rows``; 0: they are not.
        seed: of the shuffling.
        lanes: the contiguous parts of an epoch whose batches take turns; with as many lanes as there are ranks times workers, each of them reads
            fragments of its own. 1: batches are in order of time.
        partitions_per_epoch: no batch has events of two epochs, which are so many partitions each.
        events_per_epoch: an epoch is whole partitions until they hold this many events; 0: ``partitions_per_epoch`` partitions.
        equal_steps: all ranks have equally many batches; a rank without an event for its last one has a batch without events.
        pad: fill up batches with fewer events with events of weight 0, which have no ids.
        table_version: the version of the table to read; None: the newest. Ranks must have the same: the attribute of this name has it.
        fragments_ahead: the fragments that are read before a batch needs them.
        threads: that read.

    Raises :class:`~transforms.errors.InputError` for options out of range and for a range without partitions,
    :class:`~transforms.errors.NotFound` for an unknown model, :class:`~transforms.errors.TypeMismatch` for inputs that a trainer cannot
    take, and :class:`~transforms.errors.DataError` for labels that the model's task does not accept.

    >>> loader = batches("ctr", home=home, batch_rows=64)
    >>> batch = next(iter(loader))
    >>> batch.rows, batch.dense.shape, len(batch.ids["overlap"].offsets)
    (64, (64, 1), 65)
    >>> loader.state_dict()["steps"]
    1
    """
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
    return NumpyBatches(EventBatches(source, options, table_version))


class NumpyBatches:
    """Batches of NumPy arrays; each ``iter()`` hands out every event of the range once.

    Attributes:
        table_version: the version of the table that is read.
        dense_columns: the columns of each input of numbers in :attr:`FeatureBatch.dense <headrace.loaders.feature_batch.FeatureBatch.dense>`.
        buckets: of each input of ids, the number that its ids are below.
        labels: the names of several labels, in the order of their columns; none for one label.
    """

    def __init__(self, events: EventBatches) -> None:
        self._events = events
        self.table_version = events.table_version
        self.dense_columns = dense_columns(events.layout)
        self.buckets = bucket_counts(events.layout)
        self.labels = events.labels

    @property
    def steps(self) -> int:
        """The batches of the next iteration."""
        return self._events.steps()

    def __iter__(self) -> NumpyIteration:
        return NumpyIteration(self._events, self._events.iterate())

    def state_dict(self) -> dict[str, Any]:
        """What this rank has handed out, as a JSON object; see ``docs/loaders.md``."""
        return self._events.state_dict()

    def load_state_dict(self, state: object) -> None:
        """Let the next iteration begin where a state, or a list of the states of all ranks, ends."""
        self._events.load_state_dict(state)

    def rewind(self) -> None:
        """Let the next iteration begin at the beginning of the range."""
        self._events.rewind()


class NumpyIteration(Iterator[FeatureBatch]):
    """The batches of an iteration."""

    def __init__(self, events: EventBatches, iteration: Iteration) -> None:
        self._layout, self._iteration = events.layout, iteration

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> FeatureBatch:
        return feature_batch(next(self._iteration), self._layout)

    def close(self) -> None:
        """End reading."""
        self._iteration.close()
