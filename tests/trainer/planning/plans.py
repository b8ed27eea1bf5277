"""Random partition plans."""

from __future__ import annotations

from hypothesis import strategies as st

from trainer.planning.plan import PartitionPlan, Slice, TablePlan


@st.composite
def slices(draw, rows, columns, cores):
    cuts = sorted(draw(st.sets(st.integers(1, columns - 1), max_size=2))) if columns > 1 else []
    found = []
    for first, end in zip([0, *cuts], [*cuts, columns], strict=True):
        order = draw(st.permutations(range(cores)))
        chosen = tuple(order[: draw(st.integers(1, cores))])
        ends = ()
        if draw(st.booleans()):
            inner = sorted(draw(st.lists(st.integers(0, rows), min_size=len(chosen) - 1, max_size=len(chosen) - 1)))
            ends = (*inner, rows)
        found.append(Slice(first, end - first, chosen, ends))
    return tuple(found)


@st.composite
def plans(draw, tables=None, most_cores=5):
    """Plans of ``tables``, each a name, rows and columns; by default of random ones."""
    cores = draw(st.integers(1, most_cores))
    if tables is None:
        sizes = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 12)), min_size=1, max_size=4))
        tables = [(f"t{k}", rows, columns) for k, (rows, columns) in enumerate(sizes)]
    found = []
    for name, rows, columns in tables:
        if draw(st.integers(0, 4)) == 0:
            held = tuple(draw(st.permutations(range(cores)))[: draw(st.integers(1, cores))])
            found.append(TablePlan(name, rows, columns, (Slice(0, columns, held),), is_replicated=True))
        else:
            found.append(TablePlan(name, rows, columns, draw(slices(rows, columns, cores))))
    names = [table.name for table in found]
    stacks = draw(st.sampled_from([(), (tuple(names),), tuple((name,) for name in names)]))
    return PartitionPlan(cores, tuple(found), stacks)
