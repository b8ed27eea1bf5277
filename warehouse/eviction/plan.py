"""Which memos go, decided without a catalog: what is asked for, the order in which a budget takes memos, and the answer."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from transforms.errors import InputError
from warehouse.search.query import ComponentQuery

_DAY_SECS = 86_400


@dataclass(frozen=True, kw_only=True)
class EvictionRequest:
    """Which memos to evict: those that fulfil every condition; with a budget, only as many of them as it takes.

    ``query`` is about their components, and its ``table`` about the memos too. ``start`` and ``end``: of partitions that
    start in ``[start, end)``. ``written_before`` and ``written_after``: computed in ``[after, before)``, in epoch seconds.
    ``budget_bytes``: evict until all ready memos of the warehouse take no more than this.
    """

    query: ComponentQuery = field(default_factory=ComponentQuery)
    start: datetime | None = None
    end: datetime | None = None
    written_before: float | None = None
    written_after: float | None = None
    budget_bytes: int | None = None

    def __post_init__(self) -> None:
        """Raises :class:`InputError` for no condition at all: everything is never meant by saying nothing."""
        others = (self.start, self.end, self.written_before, self.written_after, self.budget_bytes)
        if self.query.is_empty and all(other is None for other in others):
            raise InputError("an eviction says what to evict", where="eviction", allowed="a condition, or a budget",
                             next_step="headrace graphs evict --help")  # fmt: skip
        if self.budget_bytes is not None and self.budget_bytes < 0:
            raise InputError("less than nothing", where="budget", value=self.budget_bytes, allowed="0 bytes or more")

    @property
    def text(self) -> str:
        """The request in words; tombstones keep it."""
        said = [] if self.query.is_empty else [self.query.text]
        said += [f"partitions from {_minute(self.start)}"] if self.start is not None else []
        said += [f"partitions before {_minute(self.end)}"] if self.end is not None else []
        said += [f"computed since {_minute(self.written_after)}"] if self.written_after is not None else []
        said += [f"computed before {_minute(self.written_before)}"] if self.written_before is not None else []
        said += [f"a budget of {self.budget_bytes:,} B"] if self.budget_bytes is not None else []
        return ", ".join(said)


def _minute(moment: datetime | float) -> str:
    found = moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    return f"{found:%Y-%m-%d %H:%M}"


@dataclass(frozen=True, slots=True)
class ReadyMemo:
    """A memo that may go, of a ``table``'s ``partition``. ``file``: the row of its file.

    ``created_at`` and ``changed_at``: when it was first asked for, and when it became ready, in epoch seconds.
    """

    memo_key: str
    fingerprint: str
    file: int
    table: str
    partition: str
    rows: int
    size_bytes: int
    secs: float
    created_at: float
    changed_at: float


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """A memo that a budget may evict. ``requested_at``: when it was last asked for, in epoch seconds.

    ``readers``: how many live models have its component, as an input or inside one.
    """

    memo: ReadyMemo
    requested_at: float
    readers: int


def eviction_order(candidate: EvictionCandidate) -> tuple[bool, int, float, str, str]:
    """What goes first has the least key, in this order:

    1. memos that no live model has go before all others;
    2. those last asked for on an earlier day (of UTC) before those of a later one;
    3. of one day, those that save the fewest seconds a byte: the time to compute them again, for each of their readers;
    4. by component and key, so that there is one order.
    """
    memo = candidate.memo
    worth = memo.secs * max(candidate.readers, 1) / max(memo.size_bytes, 1)
    return candidate.readers > 0, int(candidate.requested_at // _DAY_SECS), worth, memo.fingerprint, memo.memo_key


def choose_for_budget(candidates: Iterable[EvictionCandidate], excess_bytes: int) -> list[ReadyMemo]:
    """The memos that go, in :func:`eviction_order`: the fewest from its start that together take ``excess_bytes``.

    All of them where they take less; none where there is no excess. Holds no more at a time than it returns, and one.
    """
    if excess_bytes <= 0:
        return []
    kept: list[_Last] = []  # a heap with the last in the order on top
    total = 0
    for candidate in candidates:
        heapq.heappush(kept, _Last(candidate))
        total += candidate.memo.size_bytes
        while total - kept[0].candidate.memo.size_bytes >= excess_bytes:
            total -= heapq.heappop(kept).candidate.memo.size_bytes
    return [last.candidate.memo for last in sorted(kept, reverse=True)]


class _Last:
    """Turns the order around for ``heapq``, which keeps the least on top."""

    __slots__ = ("_order", "candidate")

    def __init__(self, candidate: EvictionCandidate) -> None:
        self.candidate = candidate
        self._order = eviction_order(candidate)

    def __lt__(self, other: _Last) -> bool:
        return other._order < self._order


@dataclass(frozen=True)
class PinnedComponents:
    """What an eviction leaves alone because a running job reads it: ``holder`` and how many components."""

    holder: str
    components: int


@dataclass(frozen=True)
class EvictionPlan:
    """What an eviction does, or with ``done`` did. ``id`` names exactly these memos: the same id, the same memos.

    ``bytes`` is what the memos take in their files. ``files_deleted`` hold nothing else, and ``gc`` deletes them:
    ``deleted_bytes``, the whole files. ``files_rewritten`` also hold others' memos: ``dead_bytes`` stay in them until
    they are compacted. ``models`` are the live models that read the components. They compute ``needed_memos`` again, when
    they are read or once a model is submitted again, in ``needed_secs`` of computing; ``secs`` is that of all that goes.
    ``pinned_memos`` fit too but stay, for the jobs in ``pinned``. ``stored_bytes``: all ready memos of the warehouse
    before the eviction; ``budget_bytes``: what they should take, if that was asked.
    """

    id: str
    done: bool
    request: str
    components: int
    memos: int
    rows: int
    bytes: int
    secs: float
    files_deleted: int
    deleted_bytes: int
    files_rewritten: int
    dead_bytes: int
    models: tuple[str, ...]
    needed_memos: int
    needed_secs: float
    pinned: tuple[PinnedComponents, ...]
    pinned_memos: int
    stored_bytes: int
    budget_bytes: int | None = None

    @property
    def over_budget_bytes(self) -> int:
        """Bytes that stay above the budget because nothing else may go; 0 without a budget."""
        left = self.stored_bytes - self.bytes
        return 0 if self.budget_bytes is None else max(left - self.budget_bytes, 0)
