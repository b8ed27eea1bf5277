"""Groups of tables that share the rows of a budget, and how many rows each group has. Pure.

AdaEmbed (Lai et al., OSDI 2023, section 5): the budget is divided among groups by features times width; what a group cannot use is lent to the others.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from trainer.errors import ConfigError
from trainer.options.pruning import GroupOptions


@dataclass(frozen=True, slots=True)
class SharingTable:
    """A table that shares rows: its name, its rows and columns; ``kind``: what tables of one group have in common."""

    name: str
    rows: int
    columns: int
    kind: Hashable


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Tables that share ``rows`` rows, at most as many as they have together; ``tables``: their positions."""

    tables: tuple[int, ...]
    rows: int


def row_groups(
    tables: Sequence[SharingTable], budget: float, given: Sequence[GroupOptions] = ()
) -> tuple[RowGroup, ...]:
    """The groups of all tables, in the order of their first ones.

    Args:
        tables: the tables.
        budget: the share of the weights of all tables that groups without a number of rows have together.
        given: the groups; none: tables of one kind are a group.

    Raises :class:`ConfigError` for groups that overlap or leave a table out, for tables of several kinds in a group, and for a budget below
    a row a table.
    """
    members = _given(tables, given) if given else _by_kind(tables)
    asked = [one.rows for one in given] or [0] * len(members)
    most = [sum(tables[t].rows for t in own) for own in members]
    widths = [tables[own[0]].columns for own in members]
    open_groups = [g for g, rows in enumerate(asked) if not rows]
    floats = budget * sum(tables[t].rows * tables[t].columns for g in open_groups for t in members[g])
    shares = _shares(
        [most[g] * widths[g] for g in open_groups], [len(members[g]) * widths[g] for g in open_groups], floats
    )
    rows = [min(asked[g], most[g]) for g in range(len(members))]
    for g, share in zip(open_groups, shares, strict=True):
        rows[g] = min(int(share / widths[g] + 1e-6), most[g])
    for own, count in zip(members, rows, strict=True):
        if count < len(own):
            named = ", ".join(tables[t].name for t in own[:4]) + (", …" if len(own) > 4 else "")
            raise ConfigError("the rows of a group must be at least one for each of its tables", where=f"pruning, tables {named}", value=count,
                              allowed=f">= {len(own)}", next_step="raise pruning.budget, or the rows of this group")  # fmt: skip
    return tuple(
        RowGroup(tuple(own), count) for own, count in sorted(zip(members, rows, strict=True), key=lambda one: one[0][0])
    )


def renumbered(groups: Sequence[RowGroup], order: Sequence[int]) -> tuple[RowGroup, ...]:
    """The same groups, in their order, of tables in another ``order``, of which each has the position that a table had."""
    position = {t: place for place, t in enumerate(order)}
    return tuple(RowGroup(tuple(sorted(position[t] for t in one.tables)), one.rows) for one in groups)


def groups_of_host(groups: Sequence[RowGroup], rows_on: Sequence[Sequence[int]], host: int) -> tuple[RowGroup, ...]:
    """The groups of one host's rows: each has as large a share of the places of its group as of its rows.

    The places of all hosts are those of the groups. Tables without rows on the host are in groups apart, so that neither the number of a group's
    rows nor a sample of them depends on tables that are elsewhere. ``rows_on``: by host, the rows of each table that it has. Raises
    :class:`ConfigError` for a group of which a host with rows would have no place.
    """
    found: list[RowGroup] = []
    for group in groups:
        sizes = [sum(own[t] for t in group.tables) for own in rows_on]
        ends = [group.rows * sum(sizes[: k + 1]) // max(sum(sizes), 1) for k in range(len(sizes))]
        places = [end - first for first, end in zip([0, *ends], ends, strict=False)]
        if any(size and not own for size, own in zip(sizes, places, strict=True)):
            raise ConfigError("the rows of a group must be at least one for each host, or server", where="pruning", value=group.rows,
                              allowed=f">= {len(sizes)}", next_step="raise pruning.budget, or the rows of this group, or take fewer hosts or servers")  # fmt: skip
        found += _on_host(group, rows_on[host], places[host])
    return tuple(found)


def shared_groups_of_host(
    groups: Sequence[RowGroup], rows_on: Sequence[Sequence[int]], host: int
) -> tuple[RowGroup, ...]:
    """As :func:`groups_of_host`, of groups whose places all hosts share: any of its rows may win one.

    So each has the places of all hosts, at most one for each row of the host.
    """
    found: list[RowGroup] = []
    for group in groups:
        found += _on_host(group, rows_on[host], min(group.rows, sum(rows_on[host][t] for t in group.tables)))
    return tuple(found)


def _on_host(group: RowGroup, rows: Sequence[int], places: int) -> list[RowGroup]:
    """The group of a host's rows, and one of the tables of which it has none, which have a row that is never read."""
    here = tuple(t for t in group.tables if rows[t])
    elsewhere = tuple(t for t in group.tables if not rows[t])
    return [RowGroup(own, count) for own, count in ((here, places), (elsewhere, 1)) if own]


def chosen_groups(groups: Sequence[RowGroup], chosen: Sequence[int]) -> tuple[RowGroup, ...]:
    """The groups with tables among the ``chosen`` ones, as groups of these alone, in their order and by their positions there."""
    position = {t: place for place, t in enumerate(chosen)}
    own = [RowGroup(tuple(position[t] for t in one.tables if t in position), one.rows) for one in groups]
    return tuple(one for one in own if one.tables)


def _by_kind(tables: Sequence[SharingTable]) -> list[list[int]]:
    found: dict[tuple[int, Hashable], list[int]] = {}
    for t, table in enumerate(tables):
        found.setdefault((table.columns, table.kind), []).append(t)
    return list(found.values())


def _given(tables: Sequence[SharingTable], given: Sequence[GroupOptions]) -> list[list[int]]:
    position = {table.name: t for t, table in enumerate(tables)}
    found, seen = [], set[str]()
    for group in given:
        for name in group.tables:
            if name not in position:
                raise ConfigError(
                    "pruning.groups must name tables of the model that are not hashed",
                    value=name,
                    allowed=", ".join(position),
                )
            if name in seen:
                raise ConfigError(
                    "a table must be in one group of pruning.groups",
                    where=f"table {name}",
                    value="several groups",
                    allowed="1 group",
                )
            seen.add(name)
        own = sorted(position[name] for name in group.tables)
        kinds = {(tables[t].columns, tables[t].kind) for t in own}
        if len(kinds) > 1:
            raise ConfigError("the tables of a group must have one width and one optimizer", where=f"pruning.groups, {', '.join(group.tables[:4])}",
                              value=f"{len(kinds)} kinds of tables", allowed="1")  # fmt: skip
        found.append(own)
    if missing := [name for name in position if name not in seen]:
        raise ConfigError("pruning.groups must name every table that is not hashed", where="pruning.groups", value=f"without {', '.join(missing[:4])}",
                          allowed=", ".join(position))  # fmt: skip
    return found


def _shares(most: Sequence[float], keys: Sequence[float], total: float) -> list[float]:
    """``total`` divided in proportion to ``keys``, but at most ``most`` each: what is above goes to the others."""
    shares, left, open_ = [0.0] * len(most), total, set(range(len(most)))
    while open_:
        unit = left / sum(keys[g] for g in open_)
        full = {g for g in open_ if keys[g] * unit >= most[g]}
        for g in full or open_:
            shares[g] = min(keys[g] * unit, float(most[g]))
        if not full:
            break
        left -= sum(shares[g] for g in full)
        open_ -= full
    return shares
