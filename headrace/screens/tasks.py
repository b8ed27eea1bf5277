"""Screens of ``headrace tasks``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Group, RenderableType

from headrace.screens.json_fields import fields_of
from headrace.screens.listing import Listing
from headrace.screens.shown import Shown
from headrace.terminal.grid import facts, grid
from headrace.terminal.units import count_text, many, moment, time_text

if TYPE_CHECKING:
    import pyarrow as pa

    from warehouse.quarantine.changes import QuarantineChange
    from warehouse.quarantine.listing import TaskGroup, TaskRow, Waiting

#: The most characters of a value and of an error in the text; the JSON has all.
_VALUE_CHARACTERS, _ERROR_CHARACTERS = 60, 240
_MOST_EVENTS, _MOST_GROUPS, _MOST_RANGES = 20, 20, 4


@dataclass(frozen=True, slots=True, repr=False)
class GroupsScreen(Listing):
    """The quarantine by group, from ``offset`` on. ``request``: the conditions as text."""

    rows_field: ClassVar[str] = "groups"
    columns: ClassVar[tuple[str, ...]] = (
        "fingerprint",
        "expression",
        "kind",
        "operator",
        "exception",
        "error",
        "tasks",
        "states",
        "tables",
        "partitions",
        "failed_at",
        "example",
        "models",
        "clients",
    )

    request: str
    groups: tuple[TaskGroup, ...]
    offset: int
    more: bool

    def json_fields(self) -> dict[str, Any]:
        """The fields, with the groups as :func:`_group_fields`."""
        return {**fields_of(self), "groups": [_group_fields(group) for group in self.groups]}

    def render(self) -> RenderableType:
        """One line per group, and the next step."""
        if not self.groups:
            return _nothing(self.request, self.offset)
        more = [f"there are more: --offset {self.offset + len(self.groups)}"] if self.more else []
        return Group(_groups(self.groups), "", *more, "next: headrace tasks show EXAMPLE")


def _nothing(request: str, offset: int) -> str:
    from warehouse.quarantine.query import EVERYTHING

    said = f"nothing from --offset {offset} on" if offset else "no task failed"
    return said if request == EVERYTHING else f"{said}: {request}"


def _groups(groups: Sequence[TaskGroup]) -> RenderableType:
    rows = (
        (g.fingerprint[:12], ", ".join(f"{count_text(count)} {state}" for state, count in _states(g).items()),
         count_text(g.partitions), g.operator or "-", g.exception or g.kind or "-", ", ".join(_models(g)) or "-",
         time_text(moment(g.failed_at or None)), str(g.example))
        for g in groups
    )  # fmt: skip
    columns = ("component", "tasks", "partitions>", "operator", "failed with", "models*", "last failed", "example>")
    return Group(grid(columns, rows), "", _errors((g.error, g.example) for g in groups))


def _group_fields(group: TaskGroup) -> dict[str, Any]:
    """The fields of a group, with its states and models as text, and the clients of the models."""
    return {
        **fields_of(group),
        "states": _states(group),
        "failed_at": moment(group.failed_at or None),
        "models": _models(group),
        "clients": sorted({one.client for one in group.models}),
    }


def _states(group: TaskGroup) -> dict[str, int]:
    from warehouse.quarantine.query import OPEN_STATES
    from warehouse.scheduling.task_states import TaskState

    return {state.lower(): group.states[state] for state in (*OPEN_STATES, TaskState.DROPPED) if state in group.states}


def _models(group: TaskGroup) -> list[str]:
    return [f"{one.model} v{one.version}" for one in group.models]


def _task_fields(task: TaskRow) -> dict[str, Any]:
    """The fields of a task; ``id`` is first."""
    return {
        "id": task.task_id,
        **fields_of(task, "task_id"),
        "state": task.state.lower(),
        "failed_at": moment(task.failed_at),
        "next_at": moment(task.next_at),
    }


def _errors(errors: Iterable[tuple[str, int]]) -> RenderableType:
    """Each error once, with its tasks."""
    tasks: dict[str, list[int]] = {}
    for error, task in errors:
        tasks.setdefault(_cut(error, _ERROR_CHARACTERS), []).append(task)
    return facts((f"task {_ranges(of)}" if len(of) == 1 else f"tasks {_ranges(of)}", error or "no attempt failed since it was queued")
                 for error, of in tasks.items())  # fmt: skip


def _ranges(numbers: Sequence[int]) -> str:
    """3, 4, 5 and 9 as ``3-5, 9``; only the first ranges if there are many."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges[:_MOST_RANGES])
    more = sum(last - first + 1 for first, last in ranges[_MOST_RANGES:])
    return shown + (f" and {count_text(more)} more" if more else "")


@dataclass(frozen=True, slots=True, repr=False)
class TasksScreen(Listing):
    """The quarantine by task, from ``offset`` on. ``request``: the conditions as text."""

    rows_field: ClassVar[str] = "tasks"
    columns: ClassVar[tuple[str, ...]] = (
        "id",
        "state",
        "fingerprint",
        "expression",
        "table",
        "partition",
        "kind",
        "operator",
        "exception",
        "error",
        "attempts",
        "losses",
        "failed_at",
        "next_at",
    )

    request: str
    tasks: tuple[TaskRow, ...]
    offset: int
    more: bool

    def json_fields(self) -> dict[str, Any]:
        """The fields, with the tasks as :func:`_task_fields`."""
        return {**fields_of(self), "tasks": [_task_fields(task) for task in self.tasks]}

    def render(self) -> RenderableType:
        """One line per task."""
        if not self.tasks:
            return _nothing(self.request, self.offset)
        rows = (
            (str(t.task_id), t.state.lower(), t.fingerprint[:12], t.table, t.partition, t.operator or "-", t.exception or t.kind or "-",
             f"{t.attempts}" + (f" ({t.losses} lost)" if t.losses else ""), time_text(moment(t.failed_at)))
            for t in self.tasks
        )  # fmt: skip
        columns = ("task>", "state", "component", "table", "partition", "operator", "failed with", "attempts", "last failed")  # fmt: skip
        more = [f"there are more: --offset {self.offset + len(self.tasks)}"] if self.more else []
        errors = _errors((t.error, t.task_id) for t in self.tasks)
        return Group(grid(columns, rows), "", errors, "", *more, "next: headrace tasks show TASK")


@dataclass(frozen=True, slots=True, repr=False)
class ChangeScreen(Shown):
    """A retry or drop of tasks, done or planned."""

    change: QuarantineChange

    def json_fields(self) -> dict[str, Any]:
        """The fields of the change; ``action`` is the command that makes it."""
        groups = [_group_fields(group) for group in self.change.groups]
        return {"action": self._action, **fields_of(self.change, "event"), "groups": groups}

    @property
    def _action(self) -> str:
        return "drop" if self.change.event == "drop" else "retry"

    def render(self) -> RenderableType:
        """The tasks, those that do not change, and the next step."""
        change = self.change
        verb = {"retry": ("would queue again", "queued again"), "drop": ("would drop", "dropped")}[self._action][
            change.done
        ]
        left = [
            f"{many(count, 'task')} {said}"
            for count, said in (
                (change.left_leased, "more: a worker has them now"),
                (change.left_unwanted, "more that no live model waits for: headrace tasks drop forgets them"),
                (change.left_dropped, "more that were dropped: add --state dropped, or give their numbers"),
            )
            if count
        ]
        if not change.tasks:
            return Group(f"nothing to {self._action}: {change.request}", *left)
        more = len(change.groups) - _MOST_GROUPS
        tail = [f"and {many(more, 'line')} more: --json lists them all"] if more > 0 else []
        head = f"{verb} {many(change.tasks, 'task')}: {change.request}"
        return Group(_groups(change.groups[:_MOST_GROUPS]), *tail, "", head, *left, self._next())

    def _next(self) -> str:
        if not self.change.done:
            return "nothing was changed; next: the same command with --yes"
        if self._action == "retry":
            return "next: headrace work --until-idle"
        return "readers compute the columns now; headrace tasks retry restores the tasks"


@dataclass(frozen=True, slots=True, repr=False)
class TaskScreen(Shown):
    """One task.

    Attributes:
        component: the whole expression.
        expression: the part of it that failed.
        events: rows of the fragment on which it fails; empty if no sample is stored.
        sample: their values of the raw columns that the component reads, in the same order.
        alike: the number of other failed tasks of the component.
    """

    id: int
    state: str
    fingerprint: str
    component: str
    models: tuple[Waiting, ...]
    table: str
    partition: str
    fragment: str
    file: str
    rows: int
    attempts: int
    max_attempts: int
    losses: int
    max_losses: int
    created_at: datetime | None
    kind: str
    error: str
    exception: str
    operator: str
    expression: str
    failed_at: datetime | None
    failed_worker: str | None
    next_at: datetime | None
    holder: str | None
    lease_until: datetime | None
    dropped_at: datetime | None
    dropped_why: str | None
    events: tuple[int, ...]
    sample: tuple[dict[str, Any], ...]
    sample_file: str | None
    alike: int

    def render(self) -> RenderableType:
        """The task, its failure, the sample as a table, and the next step."""
        parts: list[RenderableType] = [facts([*self._place(), *self._standing(), *self._failure()])]
        if self.sample:
            parts += ["", self._sample_table()]
            if len(self.sample) > _MOST_EVENTS:
                parts.append(f"and {many(len(self.sample) - _MOST_EVENTS, 'event')} more: --sample FILE writes all")
        if self.sample_file:
            parts.append(f"written to {self.sample_file}")
        return Group(*parts, "", f"next: {self._next()}")

    def _place(self) -> list[tuple[str, str]]:
        models = ", ".join(f"{one.model} v{one.version} ({one.client}, priority {one.priority})" for one in self.models)
        return [
            ("task", str(self.id)),
            ("component", f"{self.fingerprint[:12]}  {self.component}"),
            ("models", models or "none"),
            ("table", f"{self.table}, {self.partition}"),
            ("fragment", f"{self.fragment[:12]}, {many(self.rows, 'row')}, {self.file}"),
        ]

    def _standing(self) -> list[tuple[str, str]]:
        state = {
            "failed": "failed, quarantined",
            "queued": f"queued, next attempt not before {self.next_at:%Y-%m-%d %H:%M:%S}" if self.next_at else "queued",
            "leased": f"leased by {self.holder} until {self.lease_until:%Y-%m-%d %H:%M:%S}"
            if self.lease_until
            else "leased",
            "dropped": f"dropped on {time_text(self.dropped_at)} {self.dropped_why}",
        }.get(self.state, self.state)
        counted = f"{self.attempts - self.losses} of {self.max_attempts}"
        lost = f", and {self.losses} of {self.max_losses} lost workers" if self.losses else ""
        alike = [("others", f"{many(self.alike, 'more task')} of this component failed")] if self.alike else []
        return [("state", state), ("attempts", counted + lost), *alike]

    def _failure(self) -> list[tuple[str, str]]:
        if not self.kind:
            return [("failure", "no attempt failed since it was queued")]
        by = f" by {self.failed_worker}" if self.failed_worker else ""
        pairs = [("failed", f"{time_text(self.failed_at)}{by}: {self.kind}"), ("error", self.error)]
        pairs += [("operator", self.operator)] if self.operator else []
        pairs += [("expression", self.expression)] if self.expression else []
        return pairs + ([("events", _numbers(self.events))] if self.events else [])

    def _sample_table(self) -> RenderableType:
        columns = list(self.sample[0])
        rows = (
            (count_text(number), *(_cut(_text(row[column]), _VALUE_CHARACTERS) for column in columns))
            for number, row in list(zip(self.events, self.sample, strict=True))[:_MOST_EVENTS]
        )
        return grid(("event>", *(f"{column}*" for column in columns)), rows)

    def _next(self) -> str:
        if self.state == "done":
            return f"headrace graphs show {self.fingerprint[:12]}"
        if self.state == "dropped":
            return f"headrace tasks retry {self.id} queues it again"
        if self.state == "queued":
            return f"headrace work computes it; headrace tasks drop {self.id} --why REASON drops it"
        if self.state == "leased":
            return f"wait for the worker; headrace tasks drop {self.id} --why REASON drops it"
        return f"headrace tasks retry {self.id} after the cause is fixed; headrace tasks drop {self.id} --why REASON drops it"


def sample_values(rows: pa.Table) -> tuple[dict[str, Any], ...]:
    """Events as JSON values; times, bytes and NaN are text."""
    from warehouse.queue.failures import readable_rows

    return tuple({name: _plain(value) for name, value in row.items()} for row in readable_rows(rows))


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _numbers(events: Sequence[int]) -> str:
    shown = ", ".join(count_text(number) for number in events[:_MOST_EVENTS])
    return shown + (f" and {count_text(len(events) - _MOST_EVENTS)} more" if len(events) > _MOST_EVENTS else "")
