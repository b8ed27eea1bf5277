"""A matching decision about one input over one fragment, with its reason as a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from transforms.errors import listed
from warehouse.matching.causes import Cause
from warehouse.matching.match import MemoAction, MemoMatch
from warehouse.models.models import StoredInput
from warehouse.solution.parts import Action
from warehouse.tables.table import Fragment

ReasonCode = Literal[
    "ready", "raw", "never_seen", "operator_version", "data_changed", "evicted", "pending", "running", "failed",
    "dropped", "not_kept", "not_joined",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of one input over one fragment, by how it is obtained: CPU seconds over the horizon.

    Infinite if it cannot be obtained in this way. ``requests``: expected requests, this one included.
    """

    load_secs: float
    compute_secs: float
    keep_secs: float
    requests: float


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one input over one fragment.

    Attributes:
        input: The input's name.
        fingerprint: Its component.
        partition: The fragment's partition; of a merged fragment its first.
        fragment_id: The fragment.
        rows: The fragment's rows.
        hit: Nothing has to be computed: there is a ready memo, or the input is a raw column.
        state: The memo's state, such as ``READY``; ``""`` without a memo.
        reason_code: ``pending`` if another model queued the memo; the cause of the miss if this model did.
        reason: The same as a sentence.
        action: How a read solution obtains it at the least cost; ``wait``: it cannot before a joined column is computed.
        costs: The costs of the alternatives, if requested.
        last_partition: The last partition of a merged fragment.
        start: The first second of the partition.
    """

    input: str
    fingerprint: str
    partition: str
    fragment_id: str
    rows: int
    hit: bool
    state: str
    reason_code: ReasonCode
    reason: str
    action: Action | Literal["wait"] = "compute"
    costs: Costs | None = None
    last_partition: str = ""
    start: datetime | None = None


def raw_decision(item: StoredInput, partition: str, fragment: Fragment) -> Decision:
    """The decision about a raw column, which has no memo."""
    return Decision(item.name, item.fingerprint, partition, fragment.fragment_id, fragment.rows, True, "", "raw",
                    "a raw column, read as it is stored", "raw")  # fmt: skip


def ready_decision(item: StoredInput, partition: str, fragment: Fragment) -> Decision:
    """The decision about an input with a ready memo."""
    return Decision(
        item.name, item.fingerprint, partition, fragment.fragment_id, fragment.rows, True, "READY", "ready", "memoized"
    )


def unjoined_decision(item: StoredInput, partition: str, fragment: Fragment, columns: Iterable[str]) -> Decision:
    """The decision about an input that reads joined columns without values."""
    reason = f"waits for {listed(sorted(columns))}, which headrace work computes"
    return Decision(item.name, item.fingerprint, partition, fragment.fragment_id, fragment.rows, False, "", "not_joined", reason, "wait")  # fmt: skip


def unkept_decision(item: StoredInput, partition: str, fragment: Fragment, policy: str) -> Decision:
    """The decision about an input of which the policy keeps no memo."""
    return Decision(item.name, item.fingerprint, partition, fragment.fragment_id, fragment.rows, False, "", "not_kept",
                    _NOT_KEPT.get(policy, f"policy {policy} keeps no memo of it"))  # fmt: skip


_NOT_KEPT = {
    "adaptive": "not kept",
    "none": "not kept: the policy is none",
}


def match_decision(item: StoredInput, found: MemoMatch, cause: Cause | None, mine: frozenset[int]) -> Decision:
    """The decision for a match; ``cause`` of a missing memo, ``mine``: the rows of this model's versions."""
    code, reason = _reason(found, cause, mine)
    placed = found.request.placed
    state = found.record.state if found.record else ""
    return Decision(item.name, item.fingerprint, placed.partition, placed.fragment.fragment_id, placed.fragment.rows,
                    found.action is MemoAction.LOAD, str(state), code, reason)  # fmt: skip


_LATER: dict[str, tuple[ReasonCode, str]] = {"RUNNING": ("running", "being computed"), "PENDING": ("pending", "queued")}


def _reason(found: MemoMatch, cause: Cause | None, mine: frozenset[int]) -> tuple[ReasonCode, str]:
    record = found.record
    if found.action is MemoAction.LOAD:
        return "ready", "memoized"
    if cause is not None:
        return cause.code, cause.text
    if record is None:
        return "pending", "queued already: another input, or another copy of this data, needs the same values"
    if found.action is MemoAction.QUARANTINED:
        moment = datetime.fromtimestamp(record.changed_at, UTC)
        return "failed", f"failed on {moment:%Y-%m-%d} and is quarantined: {record.cause}"
    if found.action is MemoAction.DROPPED:
        moment = datetime.fromtimestamp(record.changed_at, UTC)
        return "dropped", f"dropped on {moment:%Y-%m-%d} {record.cause}; headrace tasks retry queues it again"
    code, text = _LATER[record.state]
    if record.queued_by in mine and code == "pending":
        return _own_code(record.cause_code), f"{record.cause}; queued"
    return code, f"{text} already for another model ({record.cause})" if record.queued_by not in mine else text


def _own_code(code: str) -> ReasonCode:
    known: tuple[ReasonCode, ...] = ("never_seen", "operator_version", "data_changed", "evicted")
    return next((one for one in known if one == code), "pending")
