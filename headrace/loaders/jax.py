"""Batches of a model's inputs as arrays of JAX, each of one shape, each event once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, Self

from headrace.loaders.event_batches import EventBatches, Iteration, LoaderOptions
from headrace.loaders.feature_batch import bucket_counts, dense_columns
from headrace.loaders.fixed_shapes import FixedShapes
from headrace.loaders.source import FeatureSource
from trainer.run.loading.options import ReadAhead, StreamOptions
from transforms.errors import InputError
from transforms.time_range import Moment


def jax(
    model: str,
    start: Moment | None = None,
    end: Moment | None = None,
    *,
    most_ids: int | Mapping[str, int],
    device: Any = None,
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
    equal_steps: bool = True,
    table_version: int | None = None,
    fragments_ahead: int = 2,
    threads: int = 1,
) -> JaxBatches:
    """A model's inputs for the partitions that start in ``[start, end)``, as batches of JAX arrays of fixed shapes.

    A batch is a dictionary, so it can be an argument of a compiled function: ``ids``, by input with ``values`` [most ids], ``offsets`` [events + 1] and,
    of an input with weights, ``weights``; ``dense`` [events, numbers], ``labels`` and ``weights`` [events]. All of them have ``batch_rows`` events: what
    fills a batch up has weight 0 and no ids, and values after the last id are 0. Deterministic.

    Args:
        most_ids: the ids of an input in a batch, of all inputs or by name; inputs that have equally many ids per event need none.
        device: a device or sharding for ``jax.device_put``; None: JAX's default.
        equal_steps: see :func:`headrace.batches <headrace.loaders.batches.batches>`, as all other arguments.

    Raises, while batches are read, :class:`~transforms.errors.DataError` for a batch with more ids. Errors are otherwise those of
    :func:`headrace.batches <headrace.loaders.batches.batches>`, and :class:`~transforms.errors.InputError` if JAX is not installed.

    >>> events = jax("ctr", home=home, batch_rows=64, most_ids={"overlap": 500})
    >>> batch = next(iter(events))
    >>> batch["dense"].shape, batch["ids"]["overlap"]["values"].shape
    ((64, 1), (500,))
    """
    if find_spec("jax") is None:
        raise InputError("jax must be installed to load batches as its arrays", where="hr.jax",
                         next_step="pip install headrace[jax], or load NumPy arrays with hr.batches")  # fmt: skip
    source = FeatureSource.of(model, start, end, home, catalog_url)
    stream = StreamOptions(
        batch_rows=batch_rows,
        shuffle_events=shuffle_events,
        seed=seed,
        lanes=lanes,
        partitions_per_epoch=partitions_per_epoch,
        events_per_epoch=events_per_epoch,
    )
    options = LoaderOptions(stream, rank, world, equal_steps, True, ReadAhead(fragments_ahead, threads))
    events = EventBatches(source, options, table_version)
    return JaxBatches(events, FixedShapes.of(events.layout, batch_rows, most_ids), device)


class JaxBatches:
    """Batches of JAX arrays; each ``iter()`` hands out every event of the range once.

    Attributes:
        table_version: the version of the table that is read.
        dense_columns: the columns of each input of numbers in ``dense``.
        buckets: of each input of ids, the number that its ids are below.
        labels: the names of several labels, in the order of their columns; none for one label.
    """

    def __init__(self, events: EventBatches, shapes: FixedShapes, device: Any) -> None:
        self._events, self._shapes, self._device = events, shapes, device
        self.table_version = events.table_version
        self.dense_columns = dense_columns(events.layout)
        self.buckets = bucket_counts(events.layout)
        self.labels = events.labels

    @property
    def steps(self) -> int:
        """The batches of the next iteration."""
        return self._events.steps()

    def __iter__(self) -> JaxIteration:
        return JaxIteration(self._events.iterate(), self._shapes, self._device)

    def state_dict(self) -> dict[str, Any]:
        """What this rank has handed out, as a JSON object; see ``docs/loaders.md``."""
        return self._events.state_dict()

    def load_state_dict(self, state: object) -> None:
        """Let the next iteration begin where a state, or a list of the states of all ranks, ends."""
        self._events.load_state_dict(state)

    def rewind(self) -> None:
        """Let the next iteration begin at the beginning of the range."""
        self._events.rewind()


class JaxIteration(Iterator[dict[str, Any]]):
    """The batches of an iteration."""

    def __init__(self, iteration: Iteration, shapes: FixedShapes, device: Any) -> None:
        from jax import device_put

        self._iteration, self._shapes, self._device, self._put = iteration, shapes, device, device_put

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> dict[str, Any]:
        found: dict[str, Any] = self._put(self._shapes.arrays(next(self._iteration)), self._device)
        return found

    def close(self) -> None:
        """End reading."""
        self._iteration.close()
