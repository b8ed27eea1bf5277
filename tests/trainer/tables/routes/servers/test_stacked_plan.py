"""Laws of the plan for servers: whole rows, each on one server, evenly, and the first rows of tables apart."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.tables import SGD, Adagrad, TableSpec
from trainer.tables.routes.partitioned.table_parts import TableParts
from trainer.tables.routes.servers.stacked_plan import stacked_plan, width_order

OPTIMIZERS = [Adagrad(0.1, 0.25), Adagrad(0.1, 0.5), SGD(0.5)]
TABLES = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from([1, 4, 8]), st.sampled_from(OPTIMIZERS)), min_size=1, max_size=12
).map(lambda drawn: [TableSpec(f"t{t}", *one) for t, one in enumerate(drawn)])
SERVERS = st.integers(1, 6)


def placed(tables, servers):
    """For each table, of each server the rows that it has, as the engine's parts place them."""
    parts = TableParts(tables, servers, stacked_plan(tables, servers))
    for t, table in enumerate(tables):
        (p,) = parts.of_table(t)
        rows = np.arange(table.vocabulary_size)
        yield table, [rows[parts.parts[p].own_rows(server, rows)[0]] for server in range(servers)]


@given(TABLES)
def test_the_order_has_each_table_once_widths_ascend_and_stacks_are_whole(tables):
    order = width_order(tables)
    assert sorted(order) == list(range(len(tables)))
    assert [tables[t].dim for t in order] == sorted(table.dim for table in tables)
    keys = [(tables[t].dim, tables[t].optimizer) for t in order]
    assert len([k for k in range(1, len(keys)) if keys[k] != keys[k - 1]]) + 1 == len(set(keys))
    for key in set(keys):
        own = [t for t in order if (tables[t].dim, tables[t].optimizer) == key]
        assert own == sorted(own)


@given(TABLES, SERVERS)
def test_every_row_is_on_exactly_one_server(tables, servers):
    for table, rows in placed(tables, servers):
        assert sorted(np.concatenate(rows).tolist()) == list(range(table.vocabulary_size))


@given(TABLES, SERVERS)
def test_the_loads_of_a_stack_differ_by_at_most_one_row(tables, servers):
    """Rows of a stack are spread cyclically, over the borders of its tables."""
    loads = defaultdict(lambda: [0] * servers)
    for table, rows in placed(tables, servers):
        for server, own in enumerate(rows):
            loads[table.dim, table.optimizer][server] += len(own)
    for load in loads.values():
        assert max(load) - min(load) <= 1


@given(TABLES, SERVERS)
def test_row_r_of_a_stack_is_on_server_r_modulo_servers(tables, servers):
    """So first rows of tables that follow each other are on different servers, unless a table has a multiple of their number."""
    by_name = {table.name: rows for table, rows in placed(tables, servers)}
    base = defaultdict(int)
    for t in width_order(tables):
        table = tables[t]
        key = table.dim, table.optimizer
        for server, rows in enumerate(by_name[table.name]):
            assert ((rows + base[key]) % servers == server).all()
        base[key] += table.vocabulary_size


@given(st.integers(2, 6), st.integers(1, 5), st.sampled_from([1, 8]))
def test_the_first_rows_of_tables_are_on_different_servers(servers, rows, dim):
    """The most frequent rows of sorted vocabularies of one size, that is no multiple of the servers."""
    if rows % servers == 0:
        rows += 1
    tables = [TableSpec(f"t{t}", rows, dim, SGD(0.5)) for t in range(2)]
    first = [next(server for server, own in enumerate(one) if 0 in own) for _, one in placed(tables, servers)]
    assert first[0] != first[1]


@given(TABLES, SERVERS)
def test_the_plan_depends_on_rows_and_widths_alone(tables, servers):
    plan = stacked_plan(tables, servers)
    assert [one.name for one in plan.tables] == [table.name for table in tables]
    assert all(len(one.slices) == 1 and one.slices[0].columns == one.columns for one in plan.tables)
    assert stacked_plan([TableSpec(one.name, one.vocabulary_size, one.dim, one.optimizer, "sum") for one in tables], servers) == plan  # fmt: skip
