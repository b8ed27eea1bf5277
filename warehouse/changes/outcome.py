"""What a change did, or with ``dry_run`` would do, and what has to be computed again because of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from transforms.graphs.graph import Node, raw_columns
from transforms.render import expression_text
from warehouse.config import WarehouseConfig
from warehouse.matching.match import Action
from warehouse.matching.plan_context import Market
from warehouse.matching.submit import blocks
from warehouse.matching.survey import survey
from warehouse.models.models import all_models, stored_inputs
from warehouse.tables.manifests import PlacedFragment, current_fragments, get_table
from warehouse.tables.table import Fragment
from warehouse.tables.versions import TableChangeKind


@dataclass(frozen=True, slots=True)
class Recompute:
    """A component of live models whose memos do not hold for the new version: ``memos`` of them, ``rows`` rows.

    ``inputs``: the names that ``models`` give it as an input; none where it is only a part of inputs.
    """

    fingerprint: str
    expression: str
    inputs: tuple[str, ...]
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
    kind: TableChangeKind
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
class AffectedFragment:
    """A fragment before a change (None: it is new), and after it where it will stand."""

    before: Fragment | None
    after: PlacedFragment


def find_recomputes(
    connection: Connection, config: WarehouseConfig, table: str, affected: Sequence[AffectedFragment], now: float
) -> tuple[Recompute, ...]:
    """What live models over ``table`` will queue because of a change, by component, most rows first.

    Each model is asked under its own policy; what it missed before in columns that did not change is not counted.
    """
    if not affected:
        return ()
    changed = [_changed_columns(one) for one in affected]
    placed = tuple(one.after for one in affected)
    market = Market(connection, config, get_table(connection, table), current_fragments(connection, table), now)
    memos: dict[str, dict[str, int]] = {}
    models: dict[str, set[str]] = {}
    names: dict[str, set[str]] = {}
    roots: dict[str, Node] = {}
    for model in all_models(connection, live=True):
        if model.table != table:
            continue
        inputs, keeps, first = stored_inputs(connection, model.id), market.keeps(model), 0
        for item in inputs:
            names.setdefault(item.fingerprint, set()).add(item.name)
        for first, last in blocks(len(placed), len(inputs)):
            block = placed[first:last]
            found = survey(connection, inputs, block, keeps, requeue_evicted=False)
            for fingerprint, matches in found.matches.items():
                root = found.graph.operations[fingerprint]
                read = {column.name for column in raw_columns(root)}
                for position, one in matches.items():
                    if one.action in (Action.QUEUE, Action.WAIT) and not read.isdisjoint(changed[first + position]):
                        roots[fingerprint] = root
                        models.setdefault(fingerprint, set()).add(model.name)
                        memos.setdefault(fingerprint, {})[one.wanted.memo_key] = block[position].fragment.rows
            first += len(block)
    recomputes = (
        _recompute(roots[fingerprint], names.get(fingerprint, set()), models[fingerprint], rows)
        for fingerprint, rows in memos.items()
    )
    return tuple(sorted(recomputes, key=lambda one: (-one.rows, one.expression)))


def _recompute(root: Node, names: set[str], models: set[str], memos: Mapping[str, int]) -> Recompute:
    columns = tuple(sorted({column.name for column in raw_columns(root)}))
    return Recompute(root.identity, expression_text(root, 100), tuple(sorted(names)), columns, tuple(sorted(models)),
                     len(memos), sum(memos.values()))  # fmt: skip


def _changed_columns(one: AffectedFragment) -> set[str]:
    """The columns whose values differ: of a fragment that is new, all."""
    before, after = {} if one.before is None else one.before.digests, one.after.fragment.digests
    return {column for column in before.keys() | after.keys() if before.get(column) != after.get(column)}
