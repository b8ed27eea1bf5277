"""Random partition plans of all kinds."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from trainer.planning.plan import PartitionPlan, Slice, TablePlan

#: A table's name, rows and columns, and whether its columns may be on different cores.
Table = tuple[str, int, int, bool]

_RANDOM_TABLES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=4).map(
    lambda sizes: [(f"t{k}", rows, columns, True) for k, (rows, columns) in enumerate(sizes)]
)


@st.composite
def table_plans(draw: st.DrawFn, table: Table, cores: int) -> TablePlan:
    """A table plan of any kind."""
    name, rows, columns, may_slice = table
    some_cores = st.lists(st.integers(0, cores - 1), min_size=1, max_size=cores, unique=True).map(tuple)
    if draw(st.integers(0, 3)) == 0:
        return TablePlan(name, rows, columns, (Slice(0, columns, draw(some_cores)),), True)
    cuts = sorted(draw(st.sets(st.integers(1, columns - 1)))) if columns > 1 and may_slice else []
    slices = []
    for first, stop in zip([0, *cuts], [*cuts, columns], strict=True):
        on = draw(some_cores)
        inner = st.lists(st.integers(0, rows), min_size=len(on) - 1, max_size=len(on) - 1)
        slices.append(Slice(first, stop - first, on, (*sorted(draw(inner)), rows) if draw(st.booleans()) else ()))
    return TablePlan(name, rows, columns, tuple(slices))


@st.composite
def plans(draw: st.DrawFn, tables: Sequence[Table] = (), cores: int | None = None) -> PartitionPlan:
    """A plan of ``tables``, or of random ones, sometimes with stacks."""
    tables = tables or draw(_RANDOM_TABLES)
    count = cores or draw(st.integers(1, 5))
    stacks: tuple[tuple[str, ...], ...] = ()
    if draw(st.booleans()):
        names = draw(st.permutations([name for name, *_ in tables]))
        cut = draw(st.integers(0, len(names)))
        stacks = tuple(tuple(part) for part in (names[:cut], names[cut:]) if part)
    return PartitionPlan(count, tuple(draw(table_plans(table, count)) for table in tables), stacks)
