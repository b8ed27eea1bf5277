"""Match a component over a fragment: load its memo, wait for it, or queue it. Pure.

The paper's frontend looks up the connected components of a model's graph by their signatures; here a component, or
a subgraph of one, is looked up fragment by fragment. Memos that :mod:`warehouse.memos.coverage` lists as ready are not looked
up here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from warehouse.memos.memos import UNPAID, MemoRecord
from warehouse.scheduling.task_states import MemoState
from warehouse.tables.manifests import PlacedFragment
from warehouse.tables.table import MemoKeys


class MemoAction(StrEnum):
    """The action for one component over one fragment."""

    LOAD = "load"  # the memo is ready
    WAIT = "wait"  # the memo is queued or being computed
    QUEUE = "queue"  # the memo is missing, or was evicted
    COMPUTE = "compute"  # the policy keeps no memo: it is computed at every read
    LEAVE = "leave"  # the memo was evicted and is not queued again
    QUARANTINED = "quarantined"  # its task is quarantined; it is computed on the fly
    DROPPED = "dropped"  # its task was dropped; it is computed on the fly


#: Actions that queue nothing: the models wait for the memo, also if it is computed only after a retry.
AWAITED = (MemoAction.WAIT, MemoAction.QUARANTINED, MemoAction.DROPPED)


@dataclass(frozen=True, slots=True)
class MemoRequest:
    """A request for the memo of a component over a fragment."""

    fingerprint: str
    placed: PlacedFragment
    memo_key: str


@dataclass(frozen=True, slots=True)
class MemoMatch:
    """The action for a requested memo; ``record`` is None if the catalog has no row of it."""

    request: MemoRequest
    action: MemoAction
    record: MemoRecord | None


def memo_requests(components: Mapping[str, Sequence[str]], fragments: Sequence[PlacedFragment]) -> list[MemoRequest]:
    """Requests for every component (fingerprint to its columns) over every fragment, fragment by fragment."""
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


class Requeue(StrEnum):
    """Which evicted memos are queued again."""

    ALL = "all"  # by a submission
    UNPAID = "unpaid"  # those that were dropped for the price of their storage, once they are worth it
    NONE = "none"  # new data queues none of them


def match_memos(
    wanted: Iterable[MemoRequest], memos: Mapping[str, MemoRecord], *, requeue: Requeue = Requeue.ALL
) -> list[MemoMatch]:
    """One match for every request, in order.

    A memo that is requested twice (equal content in two places) is queued once; the second request waits. An evicted memo
    that is not in ``requeue`` stays evicted.
    """
    decided = []
    queued: set[str] = set()
    for item in wanted:
        record = memos.get(item.memo_key)
        action = MemoAction.QUEUE if record is None else _ACTIONS[record.state]
        if record is not None and action is MemoAction.QUEUE and not _is_requeued(record, requeue):
            action = MemoAction.LEAVE
        if action is MemoAction.QUEUE:
            if item.memo_key in queued:
                action = MemoAction.WAIT
            queued.add(item.memo_key)
        decided.append(MemoMatch(item, action, record))
    return decided


def _is_requeued(record: MemoRecord, requeue: Requeue) -> bool:
    return requeue is Requeue.ALL or (requeue is Requeue.UNPAID and record.evicted_why.startswith(UNPAID))
