"""Streams over a synthetic log, whose batches say which events they have."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import numpy as np

from tests.trainer.late_log import Log
from trainer.model.inputs import lay_out
from trainer.run.loading.beginning import StreamBeginning, beginning_after, check_continued, new_beginning
from trainer.run.loading.options import ReadAhead, Share, StreamOptions
from trainer.run.loading.state import StreamState, merge_states, order_of_plan, states_in
from trainer.run.loading.stream import BatchForm, BatchStream
from trainer.run.reading.batches import Batch
from trainer.run.reading.stream import FragmentRef, load_fragment

Event = tuple[str, int]
ALONE = Share()


class LogStream:
    """One range of a log with some options."""

    def __init__(self, log: Log, **options) -> None:
        self.log, self.options = log, StreamOptions(**{"batch_rows": 16, **options})

    def begin(self) -> StreamBeginning:
        return new_beginning(self.log.solution, self.options, self.log.read_labels)

    def after(self, states: list[dict]) -> StreamBeginning:
        merged = merge_states(states_in(states))
        return beginning_after(merged, self.log.solution, self.options, self.log.read_labels)

    def batches(
        self, begin: StreamBeginning, share: Share = ALONE, *, steps: int | None = None, done: int = 0, pads=False, **stream
    ) -> list[Batch]:  # fmt: skip
        check_continued(begin, self.options.lanes, self.log.solution, self.options)
        plan = begin.plan
        layout = lay_out(plan.identity.typed_inputs, self.options.config())
        refs = {
            f"{part.key}#{k}": FragmentRef(part.key, k, one)
            for part in self.log.solution.partitions
            for k, one in enumerate(part.fragments)
        }

        def load(number: int):
            return load_fragment(refs[plan.units.keys[number]], self.log.read, layout, plan.head)

        made = BatchStream(order_of_plan(plan, self.options.lanes), begin.first, share, **stream)
        read = made.read(load, BatchForm(layout, self.options.batch_rows, pads=pads), ReadAhead(2, 2), done=done)
        found = list(islice(read, steps))
        read.close()
        return found

    def state(self, begin: StreamBeginning, share: Share, steps: int) -> dict:
        state = begin.state(("ctr", 1), self.options.lanes, share, steps)
        assert StreamState.read(state.to_document()) == state
        return state.to_document()

    def events(self, batch: Batch) -> list[Event]:
        """The stored events of a batch, by the path of their file, which is the same wherever it is in its partition."""
        paths = {f"{part.key}#{k}": one.path for part in self.log.solution.partitions for k, one in enumerate(part.fragments)}  # fmt: skip
        return [
            (paths[span.key], int(row))
            for span in batch.spans
            for row in (range(span.start, span.stop) if isinstance(span.events, slice) else span.events)
        ]

    def counted(self, batches: list[Batch]) -> Counter[Event]:
        return Counter(event for batch in batches for event in self.events(batch))

    def trainable(self) -> set[Event]:
        """The events that have a label and are not deleted."""
        found = set()
        for path, table in self.log.stored.items():
            labelled = np.array([one is not None for one in table["__label__"].to_pylist()])
            found |= {(path, int(row)) for row in np.flatnonzero(labelled & self.log.live[path])}
        return found
