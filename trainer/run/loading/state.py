"""The state of a stream: its plan, and how many batches each share has handed out. Pure.

A share's state is its plan, which says what was handed out before the stream began, and its number of steps. The *ledger*, one count for each event,
follows: :func:`handed_out` adds the events of the batches of all shares to the counts of the plan. States of N ranks with W workers each are merged
by their numbers of batches, so any number of ranks and workers goes on from them:

* If the shares have handed out the first batches of the stream, and no others, as ranks that make equally many steps have, and options and data are the same, the
  stream goes on with its next batch. Batches are those that it would have had.
* Otherwise a new stream has the events that the ledger lacks.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np

from trainer.checkpoints.saved_counts import SavedCounts
from trainer.run.loading.batch_order import BatchOrder, counts_before
from trainer.run.loading.options import MOST_SHARES, Share
from trainer.run.loading.rest import HandedOut
from trainer.run.preparation.job_plan import JobPlan
from transforms.arrays import Array
from transforms.derived_documents import Derivation, Form, Name, document_of, one_of, whole
from transforms.documents import Part
from transforms.errors import DataError, InputError

FORMAT = "headrace.loader/1"
KIND = "loader state"
#: The most bytes of a plan.
MOST_PLAN_BYTES = 1 << 28
_MOST_BATCHES = 2**53
_MOST_DEPTH, _MOST_VALUES = 16, 1 << 20
#: What a ``StatefulDataLoader`` calls its steps that are in no state.
_STEPS_SINCE = "_steps_since_snapshot"
_STRICT = Derivation()


@lru_cache(2)
def _write_plan(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 6)).decode("ascii")


def _read_plan(part: Part) -> bytes:
    try:
        unpacked = zlib.decompressobj()
        content = unpacked.decompress(
            base64.b64decode(part.text(most=2 * MOST_PLAN_BYTES), validate=True), MOST_PLAN_BYTES
        )
    except (ValueError, binascii.Error, zlib.error) as error:
        raise part.refused("the compressed bytes of a plan as base64", value=str(error)[:200]) from None
    if not unpacked.eof or unpacked.unused_data:
        raise part.refused(f"the whole of a plan of at most {MOST_PLAN_BYTES} bytes")
    return content


@dataclass(frozen=True)
class StreamState:
    """What a share has handed out.

    Attributes:
        model, model_version: whose inputs they are.
        table_version: of the table, whose data the plan is of.
        plan: the document of a :class:`~trainer.run.preparation.job_plan.JobPlan`.
        lanes: see :class:`~trainer.run.loading.options.StreamOptions`.
        first: the batches of the plan that were handed out before the shares took turns.
        rank, world, worker, workers: the share.
        steps: those that the share has made since then.
    """

    format: Annotated[str, one_of(FORMAT)]
    model: Name
    model_version: Annotated[int, whole(1, 2**31 - 1)]
    table_version: Annotated[int, whole()]
    plan: Annotated[bytes, Form(_read_plan, _write_plan)]
    lanes: Annotated[int, whole(1, MOST_SHARES)]
    first: Annotated[int, whole(0, _MOST_BATCHES)]
    rank: Annotated[int, whole(0, MOST_SHARES)]
    world: Annotated[int, whole(1, MOST_SHARES)]
    worker: Annotated[int, whole(0, MOST_SHARES)]
    workers: Annotated[int, whole(1, MOST_SHARES)]
    steps: Annotated[int, whole(0, _MOST_BATCHES)]

    def check_read(self, part: Part) -> None:
        """Raise :class:`DataError` for a share that there is not."""
        for name, most in (("rank", self.world), ("worker", self.workers)):
            if getattr(self, name) >= most:
                raise part.at(name).refused(f"less than {most}")

    @property
    def share(self) -> Share:
        """The share."""
        return Share(self.rank, self.world, self.worker, self.workers)

    def to_document(self) -> dict[str, Any]:
        """A JSON object, the inverse of :meth:`read`."""
        document: dict[str, Any] = document_of(self)
        return document

    @classmethod
    def read(cls, document: object) -> StreamState:
        """The state of a document from outside. Raises :class:`DataError`."""
        return _STRICT.read(cls, Part(document, KIND))


def states_in(document: object) -> list[StreamState]:
    """All states in a document, wherever they are: one, lists of them, or states of data loaders that hold some.

    Raises :class:`DataError` for a document without any, or with an invalid one.
    """
    found = [StreamState.read(one) for one in _documents(document)]
    if not found:
        raise DataError("a state of a loader must hold the state of a stream", value=type(document).__name__, allowed="what state_dict() returned, or a list of such")  # fmt: skip
    return found


def _documents(document: object) -> Iterator[Mapping[Any, object]]:
    """The objects with the format of a state; level by level, so that no depth exhausts the stack."""
    level, values = [document], 0
    for _ in range(_MOST_DEPTH):
        inner: list[object] = []
        for one in level:
            if isinstance(one, Mapping):
                if "format" in one:
                    yield one
                    continue
                if (steps := one.get(_STEPS_SINCE, 0)) != 0:
                    raise DataError("a data loader must have made no step since its snapshot to be continued with others", where=_STEPS_SINCE, value=steps,
                                    next_step="make the loader with snapshot_every_n_steps=1")  # fmt: skip
                inner.extend(one.values())
            elif isinstance(one, (list, tuple)):
                inner.extend(one)
        values += len(inner)
        if values > _MOST_VALUES:
            raise DataError("a state of a loader must have a limited number of values", value=values, allowed=str(_MOST_VALUES))  # fmt: skip
        level = inner


@dataclass(frozen=True)
class MergedStates:
    """The states of shares of one stream.

    Attributes:
        any_state: one of them.
        steps: of each share.
    """

    any_state: StreamState
    steps: Mapping[Share, int]

    @property
    def is_whole(self) -> bool:
        """Whether there is a state of every share."""
        return len(self.steps) == self.any_state.world * self.any_state.workers

    def batches(self, count: int) -> Array:
        """The numbers of the batches, of ``count`` batches of the stream, that were handed out since the shares took turns; int64, ascending."""
        numbers = [np.zeros(0, np.int64)]
        for share, steps in self.steps.items():
            steps = min(steps, share.steps(count - self.any_state.first))
            numbers.append(self.any_state.first + share.batch(0) + np.arange(steps) * (share.world * share.workers))
        return np.sort(np.concatenate(numbers))


def merge_states(states: Sequence[StreamState]) -> MergedStates:
    """The states of shares of one stream, in any order; equal states count once.

    Raises :class:`InputError` for states of several streams, and for several states of one share.
    """
    first, steps = states[0], dict[Share, int]()
    for one in states:
        for name in ("model", "model_version", "plan", "lanes", "first", "world", "workers"):
            if getattr(one, name) != getattr(first, name):
                value = "several plans" if name == "plan" else f"{getattr(first, name)} and {getattr(one, name)}"
                raise InputError("states that are loaded together must belong to one stream", where=name, value=value,
                                 next_step="load the states that all ranks saved at one step; begin all ranks with one table_version")  # fmt: skip
        if steps.setdefault(one.share, one.steps) != one.steps:
            raise InputError("a share must have one state", where=f"rank {one.rank}, worker {one.worker}",
                             value=f"{steps[one.share]} and {one.steps} steps", next_step="load the states that all ranks saved at one step")  # fmt: skip
    return MergedStates(first, steps)


@lru_cache(2)
def plan_of(content: bytes) -> JobPlan:
    """The plan of a state. Raises :class:`DataError` for an invalid one."""
    plan = JobPlan.from_bytes(content, "the plan of a loader state")
    fragments = plan.units.fragment
    if plan.counts is None or (np.diff(fragments) < 0).any() or plan.units.pass_number.any():
        raise DataError("the plan of a loader state must have counts, and the fragments of one pass in order", value="another plan")  # fmt: skip
    if plan.shuffle_events and plan.shuffle_events % batch_rows_of(plan):
        raise DataError("the plan of a loader state must have windows of whole batches", value=plan.shuffle_events)
    for fragment, counts in plan.counts.counts():
        if counts.max(initial=0) > 1:
            raise DataError("a loader must have handed out each event once at most", where=f"fragment {fragment.key}", value=int(counts.max()))  # fmt: skip
    return plan


def batch_rows_of(plan: JobPlan) -> int:
    """The events of a batch of a plan. Raises :class:`DataError`."""
    return _count_of(plan, "batch_rows", 1)


def _count_of(plan: JobPlan, name: str, least: int) -> int:
    value = plan.config.get(name)
    if type(value) is not int or not least <= value < 2**31:
        raise DataError(f"{name} of a loader's plan must be an integer from {least} on", value=value)
    return value


def order_of_plan(plan: JobPlan, lanes: int) -> BatchOrder:
    """The batches of a plan. Raises :class:`DataError`."""
    return BatchOrder(plan, batch_rows_of(plan), _count_of(plan, "seed", 0), lanes)


def handed_out(merged: MergedStates) -> HandedOut:
    """All events that were handed out: before the stream, before its shares took turns, and by them."""
    state = merged.any_state
    plan = plan_of(state.plan)
    order, before = order_of_plan(plan, state.lanes), counts_before(plan)
    counts = {key: before(key).copy() for key in plan.units.keys}
    own = merged.batches(order.batches)
    for number in (*range(min(state.first, order.batches)), *own.tolist()):
        for one in order.events(number):
            counts[plan.units.keys[one.fragment]][one.rows] = 1
    assert plan.counts is not None, "checked when it was read"
    others = {fragment.key: of for fragment, of in plan.counts.counts() if fragment.key not in counts}
    return HandedOut(plan.identity, SavedCounts.of((key, of, None) for key, of in {**others, **counts}.items() if of.any()))  # fmt: skip


def next_batch(merged: MergedStates) -> int | None:
    """The number of the first batch that was not handed out, if none after it was; else None."""
    state = merged.any_state
    count = order_of_plan(plan_of(state.plan), state.lanes).batches
    own = merged.batches(count)
    first = min(state.first, count)
    return first + len(own) if np.array_equal(own, np.arange(first, first + len(own))) else None
