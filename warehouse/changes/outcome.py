"""What a change did, or with ``dry_run`` would do, and what has to be computed again because of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from transforms.render import expression_text
from warehouse.matching import memo_key
from warehouse.memos import find_memos
from warehouse.models import StoredInput, all_models, stored_inputs
from warehouse.table import Fragment
from warehouse.table_versions import ChangeKind
from warehouse.task_states import MemoState


@dataclass(frozen=True, slots=True)
class Recompute:
    """A component of live models whose memos do not hold for the new version: ``memos`` of them, ``rows`` rows."""

    fingerprint: str
    expression: str
    columns: tuple[str, ...]
    models: tuple[str, ...]
    memos: int
    rows: int


@dataclass(frozen=True)
class Change:
    """``rows``: events that came (append), were named (overlay, fix) or are retracted now and were not before (delete).

    ``fragments`` and ``partitions`` are those that the new version sees otherwise. ``version`` is the table's, after
    the change; nothing changed where ``changed`` is false. ``unknown_keys``: keys that no event has. ``notes``: what
    else a person should know.
    """

    table: str
    kind: ChangeKind
    version: int
    changed: bool
    dry_run: bool
    rows: int
    fragments: int
    partitions: tuple[str, ...]
    columns: tuple[str, ...]
    added_columns: tuple[str, ...]
    unknown_keys: int
    notes: tuple[str, ...]
    recompute: tuple[Recompute, ...]


@dataclass(frozen=True, slots=True)
class Touched:
    """A fragment before a change (None: it is new) and after it."""

    before: Fragment | None
    after: Fragment


def find_recomputes(connection: Connection, table: str, touched: Sequence[Touched]) -> tuple[Recompute, ...]:
    """What live models over ``table`` would have to compute that no memo holds, by component, most rows first."""
    components, models = _live_components(connection, table)
    wanted: dict[str, list[tuple[str, int]]] = {}
    for one in touched:
        changed = _changed_columns(one)
        for fingerprint, item in components.items():
            if changed is None or changed.intersection(item.columns):
                key = memo_key(fingerprint, one.after.digests, item.columns)
                wanted.setdefault(fingerprint, []).append((key, one.after.rows))
    memos = find_memos(connection, (key for pairs in wanted.values() for key, _ in pairs))
    ready = {key for key, memo in memos.items() if memo.state == MemoState.READY}
    found = []
    for fingerprint, pairs in wanted.items():
        missing = {key: rows for key, rows in pairs if key not in ready}
        if missing:
            item = components[fingerprint]
            found.append(Recompute(fingerprint, expression_text(item.component, 100), tuple(sorted(set(item.columns))),
                                   tuple(sorted(models[fingerprint])), len(missing), sum(missing.values())))  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.rows, one.expression)))


def _changed_columns(one: Touched) -> set[str] | None:
    """The columns whose values differ; None for a fragment that is new: all of them."""
    if one.before is None:
        return None
    before, after = one.before.digests, one.after.digests
    return {column for column in before.keys() | after.keys() if before.get(column) != after.get(column)}


def _live_components(connection: Connection, table: str) -> tuple[dict[str, StoredInput], dict[str, set[str]]]:
    """Memoized components that live models over a table read, and those models' names, by fingerprint."""
    components: dict[str, StoredInput] = {}
    models: dict[str, set[str]] = {}
    for model in all_models(connection, live=True):
        if model.table != table:
            continue
        for item in _memoized(stored_inputs(connection, model.id)):
            components[item.fingerprint] = item
            models.setdefault(item.fingerprint, set()).add(model.name)
    return components, models


def _memoized(inputs: Iterable[StoredInput]) -> Iterable[StoredInput]:
    return (item for item in inputs if not item.is_raw)
