"""A budget is shared out among groups of tables: none has more than it can use, and what it cannot use is lent."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trainer.errors import ConfigError
from trainer.options.pruning import GroupOptions
from trainer.planning.row_groups import RowGroup, SharingTable, chosen_groups, groups_of_host, row_groups

tables = st.lists(st.tuples(st.integers(1, 500), st.sampled_from([1, 4, 16])), min_size=1, max_size=8).map(
    lambda drawn: [SharingTable(f"t{k}", rows, columns, "sgd") for k, (rows, columns) in enumerate(drawn)]
)


@given(tables, st.floats(0.01, 1.0))
def test_groups_share_the_budget(drawn, budget):
    whole = sum(one.rows * one.columns for one in drawn)
    try:
        groups = row_groups(drawn, budget)
    except ConfigError:
        assert budget * whole < max(one.columns for one in drawn) * len(drawn) * 2
        return
    assert sorted(t for group in groups for t in group.tables) == list(range(len(drawn)))
    used = 0
    for group in groups:
        columns = {drawn[t].columns for t in group.tables}
        assert len(columns) == 1
        assert len(group.tables) <= group.rows <= sum(drawn[t].rows for t in group.tables)
        used += group.rows * columns.pop()
    assert used <= budget * whole + 1e-3
    widest = max(one.columns for one in drawn)
    assert used >= min(budget * whole, whole) - len(groups) * widest, "nothing that a group could use is left"


@given(tables)
def test_the_whole_budget_is_a_row_for_every_id(drawn):
    groups = row_groups(drawn, 1.0)
    assert [group.rows for group in groups] == [sum(drawn[t].rows for t in group.tables) for group in groups]


@given(tables, st.floats(0.01, 1.0), st.integers(1, 8))
def test_hosts_share_the_places_of_a_group_by_their_rows(drawn, budget, hosts):
    """As many as the group has in all, none without a place, and with the whole budget one for each row."""
    rows_on = [[(one.rows - host + hosts - 1) // hosts for one in drawn] for host in range(hosts)]
    try:
        groups = row_groups(drawn, budget)
        of_hosts = [groups_of_host(groups, rows_on, host) for host in range(hosts)]
    except ConfigError:
        assume(False)
    for group in groups:
        rows = [sum(own[t] for t in group.tables) for own in rows_on]
        places = []
        for own, of_host in zip(rows_on, of_hosts, strict=True):
            here = tuple(t for t in group.tables if own[t])
            elsewhere = tuple(t for t in group.tables if not own[t])
            found = {one.tables: one.rows for one in of_host if set(one.tables) <= set(group.tables)}
            assert found.keys() == {one for one in (here, elsewhere) if one}
            assert found.get(elsewhere, 1) == 1
            places.append(found.get(here, 0))
        assert sum(places) == group.rows
        for count, size in zip(places, rows, strict=True):
            assert bool(count) == bool(size)
            assert count <= size
            assert abs(count - group.rows * size / sum(rows)) <= 1


def test_a_host_has_a_place():
    with pytest.raises(ConfigError, match="at least one for each host") as raised:
        groups_of_host([RowGroup((0,), 3)], [[5]] * 4, 0)
    assert (raised.value.value, raised.value.allowed) == (3, ">= 4")


def test_tables_that_are_elsewhere_are_in_groups_apart():
    """In their order, of which some tables are chosen with their positions among these."""
    groups = RowGroup((0, 2), 6), RowGroup((1, 3), 4)
    here = groups_of_host(groups, [[4, 0, 4, 8], [4, 8, 0, 0]], 0)
    assert here == (RowGroup((0, 2), 4), RowGroup((3,), 2), RowGroup((1,), 1))
    assert chosen_groups(here, (2, 3)) == (RowGroup((0,), 4), RowGroup((1,), 2))
    assert chosen_groups(here, (0, 1)) == (RowGroup((0,), 4), RowGroup((1,), 1))


def test_shares_are_by_tables_times_width_and_what_is_left_is_lent():
    """A group of one small table gives most of its share to the two others."""
    drawn = [
        SharingTable("small", 10, 16, 0),
        SharingTable("a", 1000, 4, 0),
        SharingTable("b", 1000, 4, 0),
        SharingTable("c", 1000, 8, 0),
    ]
    groups = {group.tables: group.rows for group in row_groups(drawn, 0.5)}
    floats = 0.5 * (160 + 8000 + 8000) - 160
    assert groups == {(0,): 10, (1, 2): int(floats / 2 / 4), (3,): int(floats / 2 / 8)}


@pytest.mark.medium
@given(tables, st.integers(1, 50))
def test_a_group_may_state_its_rows(drawn, rows):
    assume(len({one.columns for one in drawn}) == 1)
    assume(sum(one.rows for one in drawn) >= rows >= len(drawn))
    given_groups = [GroupOptions(tuple(one.name for one in drawn), rows)]
    assert row_groups(drawn, 0.5, given_groups) == (RowGroup(tuple(range(len(drawn))), rows),)


def test_tables_of_other_optimizers_are_another_group():
    drawn = [SharingTable("a", 10, 4, "sgd"), SharingTable("b", 10, 4, "adam"), SharingTable("c", 10, 4, "sgd")]
    assert [group.tables for group in row_groups(drawn, 1.0)] == [(0, 2), (1,)]
    with pytest.raises(ConfigError, match="one width and one optimizer"):
        row_groups(drawn, 1.0, [GroupOptions(("a", "b")), GroupOptions(("c",))])
