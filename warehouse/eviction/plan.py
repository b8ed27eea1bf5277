"""Requests and plans of evictions. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from transforms.errors import InputError
from warehouse.search.query import ComponentQuery


@dataclass(frozen=True, kw_only=True)
class EvictionRequest:
    """The memos to evict: all that fulfil every condition; with a budget, only as many as needed.

    Attributes:
        query: Conditions on their components; its ``table`` also holds for the memos.
        start: Their partitions start at or after it; of a memo of a merged fragment, all of them.
        end: Their partitions start before it; of a memo of a merged fragment, all of them.
        written_before: They were computed before, in epoch seconds.
        written_after: They were computed at or after, in epoch seconds.
        budget_bytes: The bytes that all ready memos of the warehouse may take afterwards.
        unpaid: Only memos of the adaptive policy that are not worth their storage any more.
    """

    query: ComponentQuery = field(default_factory=ComponentQuery)
    start: datetime | None = None
    end: datetime | None = None
    written_before: float | None = None
    written_after: float | None = None
    budget_bytes: int | None = None
    unpaid: bool = False

    def __post_init__(self) -> None:
        """Raises :class:`InputError` without a condition or a budget."""
        others = (self.start, self.end, self.written_before, self.written_after, self.budget_bytes)
        if self.unpaid and self.budget_bytes is not None:
            raise InputError("an eviction of unpaid memos must have no budget", where="budget", value=self.budget_bytes)
        if self.query.is_empty and not self.unpaid and all(other is None for other in others):
            raise InputError("an eviction must have a condition or a budget", where="eviction",
                             next_step="headrace graphs evict --help")  # fmt: skip
        if self.budget_bytes is not None and self.budget_bytes < 0:
            raise InputError("budget must be >= 0", where="budget", value=self.budget_bytes, allowed="0 bytes or more")

    @property
    def text(self) -> str:
        """The request as text; tombstones keep it."""
        said = [] if self.query.is_empty else [self.query.text]
        said += [f"partitions from {_minute(self.start)}"] if self.start is not None else []
        said += [f"partitions before {_minute(self.end)}"] if self.end is not None else []
        said += [f"computed since {_minute(self.written_after)}"] if self.written_after is not None else []
        said += [f"computed before {_minute(self.written_before)}"] if self.written_before is not None else []
        said += [f"a budget of {self.budget_bytes:,} B"] if self.budget_bytes is not None else []
        said += ["storage that is not worth its price"] if self.unpaid else []
        return ", ".join(said)


def _minute(moment: datetime | float) -> str:
    found = moment if isinstance(moment, datetime) else datetime.fromtimestamp(moment, UTC)
    return f"{found:%Y-%m-%d %H:%M}"


class ReadyMemo(NamedTuple):
    """A ready memo; ``file`` and ``fragment`` are the catalog rows of its file and of its fragment.

    ``partition``: of a merged fragment, the first one. ``created_at``: when it was first requested; ``changed_at``: when it
    became ready; both in epoch seconds.
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
    fragment: int


@dataclass(frozen=True)
class PinnedComponents:
    """Components that an eviction skips because the job ``holder`` has pinned them."""

    holder: str
    components: int


@dataclass(frozen=True)
class EvictionPlan:
    """The effect of an eviction.

    Attributes:
        id: The identity of the evicted memos: equal ids mean equal memos.
        done: Whether it was done, not only planned.
        request: The request as text.
        components: The number of components.
        memos: The number of memos.
        rows: Rows of the memos.
        bytes: Bytes of the memos in their files.
        secs: Computing seconds of the memos.
        files_deleted: Files without other memos, which ``gc`` deletes.
        deleted_bytes: Bytes of those files.
        files_rewritten: Files with other memos.
        dead_bytes: Bytes of evicted memos in them, which stay until compaction.
        models: The live models that read the components.
        needed_memos: Memos that those models compute again, at a read or after a submission.
        needed_secs: Computing seconds of those memos.
        pinned: Jobs whose pins protect memos.
        pinned_memos: Memos that fulfil the request but stay because of pins.
        stored_bytes: Bytes of all ready memos before the eviction.
        budget_bytes: The requested budget, if any.
        eviction: The number of the eviction, once it is done, by which it can be undone; None if nothing was evicted.
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
    eviction: int | None = None

    @property
    def over_budget_bytes(self) -> int:
        """Bytes above the budget that no other memo can free; 0 without a budget."""
        left = self.stored_bytes - self.bytes
        return 0 if self.budget_bytes is None else max(left - self.budget_bytes, 0)
