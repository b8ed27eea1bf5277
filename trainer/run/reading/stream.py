"""Read and decode fragments in a background thread, one or a few ahead of training. Loads neither TensorFlow nor Beam."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from trainer.errors import BadFeature
from trainer.model.heads import BINARY
from trainer.model.inputs import InputLayout
from trainer.model.task_heads import AnyHead
from trainer.run.reading.columns import ROW_COLUMN, DecodedFragment, decode
from warehouse.solution.parts import SolutionFragment

#: Reads one fragment: a column for every input by its name, and the label; row i is event i of the fragment.
ReadFragment = Callable[[SolutionFragment], pa.Table]


@dataclass(frozen=True, slots=True)
class FragmentRef:
    """A fragment and its place: number ``position`` of its partition. Content may repeat, places do not."""

    partition: str
    position: int
    fragment: SolutionFragment

    @property
    def key(self) -> str:
        """The name of the place: ``partition#position``."""
        return f"{self.partition}#{self.position}"


def fragment_stream(
    fragments: Sequence[FragmentRef], read: ReadFragment, layout: InputLayout, *, ahead: int, head: AnyHead = BINARY
) -> Iterator[DecodedFragment]:
    """Decode the fragments in order; a thread reads up to ``ahead`` of them in advance.

    An error of reading or decoding is raised in place of its fragment. Closing the iterator ends the thread.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="fragment-reader") as pool:
        remaining = iter(fragments)
        waiting: deque[Future[DecodedFragment]] = deque()

        def submit(count: int) -> None:
            waiting.extend(pool.submit(load_fragment, ref, read, layout, head) for ref in islice(remaining, count))

        submit(ahead)
        try:
            while waiting:
                decoded = waiting.popleft().result()
                submit(1)
                yield decoded
        finally:
            for future in waiting:
                future.cancel()


def load_fragment(ref: FragmentRef, read: ReadFragment, layout: InputLayout, head: AnyHead = BINARY) -> DecodedFragment:
    """Read and decode a fragment. Raises :class:`BadFeature` for other rows than it must have, and what decoding raises."""
    table = read(ref.fragment)
    if table.num_rows != ref.fragment.live_rows:
        raise BadFeature("a fragment must have the rows that the read solution states", where=f"fragment {ref.key}",
                         value=table.num_rows, allowed=str(ref.fragment.live_rows))  # fmt: skip
    if ROW_COLUMN not in table.column_names and table.num_rows != ref.fragment.rows:
        raise BadFeature("a reader that leaves deleted events out must return a column of event numbers",
                         where=f"fragment {ref.key}", allowed=f"a column {ROW_COLUMN}",
                         next_step="read_fragment(..., rows=True)")  # fmt: skip
    return decode(table, layout, ref.key, head=head)
