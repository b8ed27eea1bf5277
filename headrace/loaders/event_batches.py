"""Iterations over a range that hand out each event once, in any number of processes, and continue from their states."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from headrace.loaders.source import FeatureSource, OpenedSource
from trainer.model.inputs import InputLayout, lay_out
from trainer.model.task_heads import TaskHeads
from trainer.options.config import TrainConfig
from trainer.run.loading.beginning import (
    StreamBeginning,
    beginning_after,
    beginning_of_share,
    check_continued,
    new_beginning,
)
from trainer.run.loading.options import ReadAhead, Share, StreamOptions
from trainer.run.loading.state import MergedStates, StreamState, merge_states, order_of_plan, states_in
from trainer.run.loading.stream import BatchForm, BatchStream
from trainer.run.reading.batches import Batch
from trainer.run.reading.columns import DecodedFragment
from trainer.run.reading.stream import FragmentRef, load_fragment
from transforms.errors import InputError


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """The options of a loader.

    Attributes:
        stream: what decides the batches.
        rank, world: the process among those that train together.
        equal_steps: all ranks have equally many steps; a rank without an event in the last one has a batch without events.
        pads: batches with fewer events are filled up with events of weight 0.
        ahead: how far to read ahead.
    """

    stream: StreamOptions
    rank: int = 0
    world: int = 1
    equal_steps: bool = False
    pads: bool = False
    ahead: ReadAhead = field(default_factory=ReadAhead)

    def __post_init__(self) -> None:
        Share(self.rank, self.world)  # raises

    def share(self, worker: int, workers: int) -> Share:
        """The share of a worker of this rank."""
        return Share(self.rank, self.world, worker, workers)


class EventBatches:
    """The batches of a range: what the loaders of all frameworks have in common.

    It holds nothing open, so processes may be forked from it, or get it pickled. The plan is made here, so that all workers of a rank have one.

    Args:
        table_version: of the table; None: its newest. Ranks must have the same.
    """

    def __init__(self, source: FeatureSource, options: LoaderOptions, table_version: int | None) -> None:
        self._source, self._options = source, options
        with source.opened(table_version) as opened:
            solution = opened.solution
            self._begin = new_beginning(solution, options.stream, opened.read_labels)
            self._model = solution.model, solution.model_version
        self.table_version = self._begin.table_version
        plan = self._begin.plan
        self.layout: InputLayout = lay_out(plan.identity.typed_inputs, TrainConfig("loader"))
        self.labels = tuple(name for name, _ in plan.head.each) if isinstance(plan.head, TaskHeads) else ()
        self._loaded: StreamBeginning | None = None
        self._handed_out: _HandedOut | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handed_out": None}

    @property
    def form(self) -> BatchForm:
        """How events become batches."""
        return BatchForm(self.layout, self._options.stream.batch_rows, len(self.labels), self._options.pads)

    def steps(self) -> int:
        """The batches of this rank in the next iteration, of all of its workers."""
        begin = self._loaded or self._begin
        stream = self.stream(begin, begin.share or self._options.share(0, 1))
        return stream.steps - begin.steps

    def stream(self, begin: StreamBeginning, share: Share) -> BatchStream:
        """The batches of a share."""
        order = order_of_plan(begin.plan, self._options.stream.lanes)
        return BatchStream(order, begin.first, share, self._options.equal_steps)

    def iterate(self, worker: int = 0, workers: int = 1) -> Iteration:
        """Begin an iteration: where a loaded state ends, else at the beginning of the range.

        Raises :class:`InputError` for the state of another share.
        """
        begin, self._loaded = self._loaded or self._begin, None
        share = self._options.share(worker, workers)
        if begin.share is not None and begin.share != share:
            raise InputError("the state of one share must be loaded by the same share", where=_named(share), value=_named(begin.share),
                             next_step="load the states of all ranks and workers, in a list, before workers start")  # fmt: skip
        # Not the iteration itself, which holds this object: a cycle would keep its pin until garbage is collected.
        self._handed_out = _HandedOut(begin, share, begin.steps)
        return Iteration(self.read(begin, share, begin.steps), self._handed_out)

    def read(self, begin: StreamBeginning, share: Share, done: int) -> Generator[Batch]:
        """The batches of a share after its first ``done``. Raises what opening and reading raise."""
        options = self._options
        with self._source.opened(begin.table_version) as opened:
            check_continued(begin, options.stream.lanes, opened.solution, options.stream)
            yield from self.stream(begin, share).read(
                _Fragments(opened, begin, self.layout), self.form, options.ahead, done=done
            )

    def state(self, begin: StreamBeginning, share: Share, steps: int) -> dict[str, Any]:
        """The state of a share after so many steps, as a JSON object."""
        return begin.state(self._model, self._options.stream.lanes, share, steps).to_document()

    def state_dict(self) -> dict[str, Any]:
        """What the newest iteration has handed out, or, before the first one, what was loaded."""
        if (newest := self._handed_out) is not None and self._loaded is None:
            return self.state(newest.begin, newest.share, newest.steps)
        begin = self._loaded or self._begin
        return self.state(begin, begin.share or self._options.share(0, 1), begin.steps)

    def load_state_dict(self, document: object) -> None:
        """Let the next iteration begin where the states in ``document`` end; see :mod:`trainer.run.loading.state`.

        Raises :class:`~transforms.errors.DataError` for an invalid state, and :class:`InputError` for states that do not fit each other.
        """
        states = states_in(document)
        merged = merge_states(states)
        self._check_model(merged.any_state)
        if merged.is_whole:
            self._loaded = self._after(merged)
        elif len(merged.steps) == 1:
            self._loaded = beginning_of_share(states[0])
        else:
            raise InputError("states must be those of all ranks and workers, or of one share", value=f"{len(merged.steps)} states",
                             allowed=f"{merged.any_state.world * merged.any_state.workers}", next_step="load the states that all ranks saved at one step")  # fmt: skip

    def rewind(self) -> None:
        """Let the next iteration begin at the beginning of the range."""
        self._loaded, self._handed_out = None, None

    def _after(self, merged: MergedStates) -> StreamBeginning:
        with self._source.opened(self.table_version) as opened:
            return beginning_after(merged, opened.solution, self._options.stream, opened.read_labels)

    def _check_model(self, state: StreamState) -> None:
        if state.model != self._model[0]:
            raise InputError("a state must be loaded with its model", value=state.model, allowed=self._model[0])


@dataclass(slots=True)
class _HandedOut:
    """What an iteration has handed out: so many steps of a share."""

    begin: StreamBeginning
    share: Share
    steps: int


class Iteration(Iterator[Batch]):
    """The batches of a share, counted as they are handed out. The warehouse is opened at the first one.

    The pin is released by :meth:`close`, at the end, and with the last reference.
    """

    def __init__(self, read: Generator[Batch], handed_out: _HandedOut) -> None:
        self._read, self._handed_out = read, handed_out

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        found = next(self._read)
        self._handed_out.steps += 1
        return found

    def close(self) -> None:
        """End reading, and release the pin."""
        self._read.close()


class _Fragments:
    """Reads the fragments of a plan by their numbers."""

    def __init__(self, opened: OpenedSource, begin: StreamBeginning, layout: InputLayout) -> None:
        self._opened, self._plan, self._layout = opened, begin.plan, layout
        refs = [
            FragmentRef(part.key, k, one) for part in opened.solution.partitions for k, one in enumerate(part.fragments)
        ]
        self._refs = {ref.key: ref for ref in refs}

    def __call__(self, number: int) -> DecodedFragment:
        ref = self._refs[self._plan.units.keys[number]]
        return load_fragment(ref, self._opened.read, self._layout, self._plan.head)


def _named(share: Share) -> str:
    return f"rank {share.rank} of {share.world}, worker {share.worker} of {share.workers}"
