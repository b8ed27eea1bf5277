"""Read a fragment by a solution: load its memos and compute the rest. Needs no catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from transforms.analysis.target import Target
from transforms.columns.arrays import one_array
from transforms.columns.columns import cast_to_layout
from transforms.errors import DataError
from transforms.execution.plan import Plan, compile_plan
from transforms.graphs.graph import Node, Operation, RawColumn, fold, raw_columns
from transforms.graphs.subgraphs import subgraphs
from warehouse.errors import MemoDamaged
from warehouse.files.artifacts import ArtifactSource
from warehouse.files.column_files import MemoRef
from warehouse.files.memo_file import read_memo_file
from warehouse.solution.parts import SolutionFragment
from warehouse.solution.solution import ReadSolution
from warehouse.storage.storage import Storage
from warehouse.tables.overlays import live_mask
from warehouse.tables.raw import read_raw
from warehouse.tables.table import Fragment, memo_key

#: The name of the label's column in what :func:`read_fragment` returns.
LABEL = "__label__"
#: The column with the stored event of each row.
ROW = "__row__"
#: The column of :func:`read_labels` that is true for events that are not deleted.
LIVE = "__live__"

#: Called as ``on_damage(memo, path of its file, error)`` for a damaged memo, before it is computed instead. ``memo`` is its
#: key, or of a merged fragment, whose columns' digests the solution does not have, the component's fingerprint.
OnDamage = Callable[[str, str, MemoDamaged], None]


def read_fragment(
    storage: Storage,
    solution: ReadSolution,
    fragment: SolutionFragment,
    *,
    columns: Sequence[str] = (),
    on_damage: OnDamage | None = None,
    rows: bool = False,
) -> pa.Table:
    """The inputs and labels of one fragment; row i is its i-th event that is not deleted.

    Columns: the inputs, in the solution's order and in the Arrow layout of their types; the label, stored or computed, as
    :data:`LABEL`, of several labels a struct with a field for each; the extra raw ``columns``; and with ``rows`` the stored event of each row as :data:`ROW`. Missing or damaged
    memos are computed from the raw columns, with the same result. Raises :class:`DataError` if a component fails, and
    what :func:`read_raw` raises.
    """
    loaded, damaged = _load_memos(storage, solution, fragment, solution.plans[fragment.plan].loads)
    roots = {item.name: item.root for item in solution.inputs}
    if on_damage is not None and damaged:
        graph = {node.identity: node for root in roots.values() for node in subgraphs(root)}
        for fingerprint, (path, error) in damaged.items():
            names = (column.name for column in raw_columns(graph[fingerprint]))
            own = fragment.window is None
            on_damage(memo_key(fingerprint, fragment.digests, names) if own else fingerprint, path, error)
    labels = _label_components(solution.target)
    missing = {name: root for name, root in roots.items() if root.identity not in loaded}
    computed = _joined({**missing, **labels}, loaded)
    memoized = {f"{_MEMO}{fingerprint}": array for fingerprint, array in loaded.items()}
    needed = {column.name for root in computed.values() for column in raw_columns(root)}
    plain = {*_plain_labels(solution.target), *columns}
    raw = read_raw(storage, fragment, sorted({*needed, *plain} - memoized.keys()), coded=sorted(needed - plain))
    source = raw
    for name in sorted(needed & memoized.keys()):
        source = source.append_column(name, memoized[name])
    values = _compute(computed, source, fragment, ArtifactSource(storage.home))
    arrays = [values[name] if name in values else loaded[root.identity] for name, root in roots.items()]
    arrays.append(_labels(solution.target, raw, values))
    arrays += [raw.column(name) for name in columns]
    table = pa.table(arrays, names=[*roots, LABEL, *columns])
    if rows:
        table = table.append_column(ROW, pa.array(np.arange(fragment.rows)))
    live = live_mask(storage, fragment)
    return table if live is None else table.filter(live)


def read_labels(
    storage: Storage, solution: ReadSolution, fragment: SolutionFragment, *, columns: Sequence[str] = ()
) -> pa.Table:
    """The labels of *all* stored events of a fragment, also deleted ones, and the raw ``columns``; no inputs.

    Labels are the column :data:`LABEL`, of several labels a struct with a field for each; :data:`LIVE` is true for events that are not deleted. Raises what
    :func:`read_fragment` raises.
    """
    target = solution.target
    raw = read_raw(storage, fragment, sorted({*target.columns, *columns}))
    computed = _compute(_label_components(target), raw, fragment, ArtifactSource(storage.home))
    labels = _labels(target, raw, computed)
    live = live_mask(storage, fragment)
    mask = pa.array(np.ones(fragment.rows, bool)) if live is None else live
    return pa.table([labels, mask, *(raw.column(name) for name in columns)], names=[LABEL, LIVE, *columns])


def _label_components(target: Target) -> dict[str, Node]:
    """The labels that are expressions, by their keys in a plan."""
    return {_label_key(name): one.component for name, one in target.each if one.component is not None}


def _plain_labels(target: Target) -> list[str]:
    """The raw columns that are labels as they are stored."""
    return [one.label for _, one in target.each if one.component is None]


def _label_key(name: str) -> str:
    return f"{LABEL}{name}"


def _labels(target: Target, raw: pa.Table, computed: Mapping[str, pa.Array]) -> pa.Array | pa.ChunkedArray:
    """The column :data:`LABEL`."""
    found = [
        raw.column(one.label) if one.component is None else computed[_label_key(name)] for name, one in target.each
    ]
    if not target.tasks:
        return found[0]
    return pa.StructArray.from_arrays([one_array(each) for each in found], [name for name, _ in target.tasks])


#: The prefix of a raw column that replaces a memoized subgraph, before its fingerprint.
_MEMO = "memo:"


def _joined(roots: Mapping[str, Node], loaded: Collection[str]) -> dict[str, Node]:
    """The components with every loaded subgraph replaced by a raw column."""
    return {name: _substituted(root, loaded) for name, root in roots.items()} if loaded else dict(roots)


def _substituted(root: Node, loaded: Collection[str]) -> Node:
    def combine(node: Node, args: tuple[Node, ...]) -> Node:
        if node.identity in loaded:
            return RawColumn(node.type, f"{_MEMO}{node.identity}")
        return replace(node, operands=args) if isinstance(node, Operation) and args != node.operands else node

    return fold(root, combine)


_Damaged = dict[str, tuple[str, MemoDamaged]]


def _load_memos(
    storage: Storage, solution: ReadSolution, fragment: SolutionFragment, loads: Mapping[str, int]
) -> tuple[dict[str, pa.Array], _Damaged]:
    """The intact memos by fingerprint, and the errors of the others. One read per file."""
    by_file: dict[int, list[str]] = {}
    for fingerprint, slot in loads.items():
        by_file.setdefault(slot, []).append(fingerprint)
    loaded: dict[str, pa.Array] = {}
    damaged: _Damaged = {}
    for slot, fingerprints in by_file.items():
        _load_file(storage, solution, fragment, fragment.files[slot], fingerprints, loaded, damaged)
    return loaded, damaged


def _load_file(
    storage: Storage,
    solution: ReadSolution,
    fragment: SolutionFragment,
    file: MemoRef,
    fingerprints: Sequence[str],
    loaded: dict[str, pa.Array],
    damaged: _Damaged,
) -> None:
    """Read one file's columns into ``loaded``; after an error one by one, so that only damaged ones are lost."""
    try:
        loaded.update(_read_file(storage, solution, fragment, file, fingerprints))
    except MemoDamaged as error:
        if len(fingerprints) == 1:
            damaged[fingerprints[0]] = (file.path, error)
            return
        for fingerprint in fingerprints:
            _load_file(storage, solution, fragment, file, [fingerprint], loaded, damaged)


def _read_file(
    storage: Storage, solution: ReadSolution, fragment: SolutionFragment, file: MemoRef, fingerprints: Sequence[str]
) -> Mapping[str, pa.Array]:
    window = fragment.window
    if window is None:
        return _read_columns(storage, file, fingerprints, fragment.rows)

    def load() -> Mapping[str, pa.Array]:
        return _read_columns(storage, file, fingerprints, window.rows)

    key = (str(storage.home), file.path, file.checksum, tuple(fingerprints))
    columns = solution.loaded.get(fragment.files, key, load)
    return {name: array.slice(window.first_row, fragment.rows) for name, array in columns.items()}


def _read_columns(storage: Storage, file: MemoRef, fingerprints: Sequence[str], rows: int) -> dict[str, pa.Array]:
    columns = read_memo_file(storage, file.path, fingerprints, file.checksum, rows=rows)
    for array in columns.values():
        if len(array) != rows:
            raise MemoDamaged(
                "a memo must have the rows of its fragment", where=file.path, value=len(array), allowed=str(rows)
            )
    return columns


def _compute(
    components: Mapping[str, Node], raw: pa.Table, fragment: Fragment, artifacts: ArtifactSource
) -> dict[str, pa.Array]:
    values = {
        name: cast_to_layout(raw.column(root.name), root.type)
        for name, root in components.items()
        if isinstance(root, RawColumn)
    }
    graphs = {name: root for name, root in components.items() if name not in values}
    if graphs:
        plan = _compiled(tuple(graphs.items()), artifacts)
        result = plan.run(raw.select([column.name for column in plan.columns]), checked=True)
        for name, failure in result.failures.items():
            raise DataError(f"operator {failure.operator} failed", where=f"{_place(name)}, {fragment.path}",
                            value=failure.error, next_step="repair the data or the expression")  # fmt: skip
        values.update({name: result.columns[name] for name in graphs})
    return values


def _place(name: str) -> str:
    """The place of a component in an error."""
    return f"label {name.removeprefix(LABEL)}".rstrip() if name.startswith(LABEL) else f"input {name}"


@lru_cache(maxsize=16)
def _compiled(components: tuple[tuple[str, Node], ...], artifacts: ArtifactSource) -> Plan:
    """A compiled plan, shared by fragments with the same plan."""
    return compile_plan(dict(components), artifacts)
