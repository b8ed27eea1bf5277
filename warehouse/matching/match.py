"""Matching one component over one fragment: load its memo, wait for it, or queue it.

Pure functions over values. The paper's frontend divides a model's input graph into connected components and looks each
one up by its signature; here a component, or a subgraph of one, is looked up fragment by fragment. What is ready by
:mod:`warehouse.memos.coverage` is not looked up again here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from warehouse.memos.memos import MemoRecord
from warehouse.scheduling.task_states import MemoState
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.table import MemoKeys


class MemoAction(StrEnum):
    """What to do about one component over one fragment."""

    LOAD = "load"  # the memo is ready
    WAIT = "wait"  # someone queued it, or is computing it
    QUEUE = "queue"  # nobody did: it is missing, or was evicted
    COMPUTE = "compute"  # nobody keeps it: it is computed whenever it is read
    LEAVE = "leave"  # it was evicted, and nobody asks for it again
    QUARANTINED = "quarantined"  # it failed too often; it is computed on the fly, or the fault repaired first
    DROPPED = "dropped"  # somebody took it out of the queue for good; it is computed on the fly


#: Nobody has to queue these. Once somebody retries what was set aside, it is computed for those who wait for it.
AWAITED = (MemoAction.WAIT, MemoAction.QUARANTINED, MemoAction.DROPPED)


@dataclass(frozen=True, slots=True)
class MemoRequest:
    """A component over a fragment, and the key of the memo that would hold it."""

    fingerprint: str
    placed: PlacedFragment
    memo_key: str


@dataclass(frozen=True, slots=True)
class MemoMatch:
    """The decision about one wanted memo; ``record`` is None when the catalog has never heard of it."""

    request: MemoRequest
    action: MemoAction
    record: MemoRecord | None


def memo_requests(components: Mapping[str, Sequence[str]], fragments: Sequence[PlacedFragment]) -> list[MemoRequest]:
    """Every component (fingerprint to the columns it reads) over every fragment, fragment by fragment."""
    read = {fingerprint: tuple(sorted(columns)) for fingerprint, columns in components.items()}
    return [
        MemoRequest(fingerprint, placed, keys.key(fingerprint, columns))
        for placed in fragments
        for keys in (MemoKeys(placed.fragment.digests),)
        for fingerprint, columns in read.items()
    ]


_ACTIONS = {
    MemoState.READY: MemoAction.LOAD,
    MemoState.PENDING: MemoAction.WAIT,
    MemoState.RUNNING: MemoAction.WAIT,
    MemoState.FAILED: MemoAction.QUARANTINED,
    MemoState.DROPPED: MemoAction.DROPPED,
    MemoState.EVICTED: MemoAction.QUEUE,
}


def match_memos(
    wanted: Iterable[MemoRequest], memos: Mapping[str, MemoRecord], *, requeue_evicted: bool = True
) -> list[MemoMatch]:
    """One decision for every wanted memo, in order.

    The same memo wanted twice (the same content in two places) is queued once; the second one waits. Without
    ``requeue_evicted`` an evicted memo is left alone: new data does not bring back what someone removed.
    """
    decided = []
    queued: set[str] = set()
    for item in wanted:
        record = memos.get(item.memo_key)
        action = MemoAction.QUEUE if record is None else _ACTIONS[record.state]
        if record is not None and action is MemoAction.QUEUE and not requeue_evicted:
            action = MemoAction.LEAVE
        if action is MemoAction.QUEUE:
            if item.memo_key in queued:
                action = MemoAction.WAIT
            queued.add(item.memo_key)
        decided.append(MemoMatch(item, action, record))
    return decided
