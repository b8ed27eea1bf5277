"""Read what a solution says: raw columns, memoized columns, or columns computed on the spot. Needs no catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from transforms.columns import conform
from transforms.errors import DataError
from transforms.graph import Node, RawColumn, component_from_document, raw_columns
from transforms.plan import Artifacts, compile_plan
from transforms.types import arrow_type
from warehouse.artifacts import ArtifactSource
from warehouse.digests import column_digest
from warehouse.errors import ChangedData, MemoDamaged
from warehouse.memo_file import read_memo_columns
from warehouse.parquet_files import read_columns
from warehouse.solution import Read, ReadSolution, SolutionFragment
from warehouse.storage import Storage
from warehouse.table import Fragment, memo_key

#: The name of the label's column in what :func:`read_fragment` returns.
LABEL = "__label__"

#: Called as ``on_damage(memo key, read, error)`` for a memo that did not verify, before it is computed instead.
OnDamage = Callable[[str, Read, MemoDamaged], None]


def read_raw(
    storage: Storage, fragment: Fragment, columns: Sequence[str], verify: bool = True, *, coded: Sequence[str] = ()
) -> pa.Table:
    """The named raw columns of a fragment, as they are stored; text named in ``coded`` may come as a dictionary, which
    a plan computes faster from, to the same result.

    With ``verify`` their digests are compared with the manifest's. Raises :class:`ChangedData` for a file that no
    longer holds what was registered, :class:`~warehouse.errors.CorruptFile` and
    :class:`~transforms.errors.UnknownColumn`.
    """
    table = read_columns(storage, fragment, columns, coded)
    if table.num_rows != fragment.rows:
        raise _changed(fragment, "rows", table.num_rows, fragment.rows)
    if verify:
        for name in columns:
            found = column_digest(table.column(name))
            if found != fragment.digests.get(name):
                raise _changed(fragment, f"column {name}", found, fragment.digests.get(name))
    return table


def _changed(fragment: Fragment, what: str, found: object, registered: object) -> ChangedData:
    return ChangedData("the file changed since it was registered", where=f"{fragment.path}, {what}", value=found,
                       allowed=str(registered), next_step="register the table again: headrace table add")  # fmt: skip


def read_fragment(
    storage: Storage,
    solution: ReadSolution,
    fragment: SolutionFragment,
    *,
    columns: Sequence[str] = (),
    on_damage: OnDamage | None = None,
) -> pa.Table:
    """Everything a trainer needs of one fragment; row i is event i.

    One column per input, in the solution's order and in the Arrow layout of its type, then the label as stored under
    :data:`LABEL`, then the extra raw ``columns`` under their own names. Memos that are missing or do not verify are
    computed from the raw columns instead, with the same result. Raises :class:`DataError` when a component fails.
    """
    roots = {item.name: component_from_document(item.component) for item in solution.inputs}
    loaded, damaged = _load_memos(storage, fragment)
    if on_damage is not None:
        fingerprints = {item.name: item.fingerprint for item in solution.inputs}
        for name, error in damaged.items():
            names = (column.name for column in raw_columns(roots[name]))
            on_damage(memo_key(fingerprints[name], fragment.digests, names), fragment.reads[name], error)
    components = {name: root for name, root in roots.items() if name not in loaded}
    needed = {column.name for root in components.values() for column in raw_columns(root)}
    plain = {solution.label, *columns}
    raw = read_raw(storage, fragment, sorted({*needed, *plain}), coded=sorted(needed - plain))
    values = {**loaded, **_compute(components, raw, fragment, ArtifactSource(storage.home))}
    arrays = [values[item.name] for item in solution.inputs]
    arrays += [raw.column(name) for name in (solution.label, *columns)]
    return pa.table(arrays, names=[*(item.name for item in solution.inputs), LABEL, *columns])


def _load_memos(storage: Storage, fragment: SolutionFragment) -> tuple[dict[str, pa.Array], dict[str, MemoDamaged]]:
    """The inputs whose memos verify, and what is wrong with the others by input. One read per file."""
    by_file: dict[str, list[str]] = {}
    for name, read in fragment.reads.items():
        if read.action == "load":
            by_file.setdefault(read.file, []).append(name)
    loaded: dict[str, pa.Array] = {}
    damaged: dict[str, MemoDamaged] = {}
    for file, names in by_file.items():
        _load_file(storage, fragment, file, names, loaded, damaged)
    return loaded, damaged


def _load_file(
    storage: Storage,
    fragment: SolutionFragment,
    file: str,
    names: Sequence[str],
    loaded: dict[str, pa.Array],
    damaged: dict[str, MemoDamaged],
) -> None:
    """Read one file's columns into ``loaded``; if that fails, one by one, so that only the bad ones are given up."""
    checksums = {fragment.reads[name].column: fragment.reads[name].checksum for name in names}
    try:
        columns = read_memo_columns(storage, file, checksums)
        loaded.update({name: _of_rows(columns[fragment.reads[name].column], fragment, file) for name in names})
    except MemoDamaged as error:
        if len(names) == 1:
            damaged[names[0]] = error
            return
        for name in names:
            _load_file(storage, fragment, file, [name], loaded, damaged)


def _of_rows(array: pa.Array, fragment: SolutionFragment, file: str) -> pa.Array:
    if len(array) != fragment.rows:
        raise MemoDamaged("a memo has other rows than its fragment", where=file, value=len(array),
                          allowed=str(fragment.rows))  # fmt: skip
    return array


def _compute(
    components: Mapping[str, Node], raw: pa.Table, fragment: Fragment, artifacts: Artifacts
) -> dict[str, pa.Array]:
    values = {
        name: conform(raw.column(root.name), root.type)
        for name, root in components.items()
        if isinstance(root, RawColumn)
    }
    graphs = {name: root for name, root in components.items() if name not in values}
    if graphs:
        plan = compile_plan(graphs, artifacts)
        result = plan.run(raw.select([column.name for column in plan.columns]))
        for name, failure in result.failures.items():
            raise DataError(f"operator {failure.operator} failed", where=f"input {name}, {fragment.path}",
                            value=failure.error, next_step="repair the data or the expression")  # fmt: skip
        values.update({name: result.columns[name] for name in graphs})
    return {name: array.cast(arrow_type(components[name].type)) for name, array in values.items()}
