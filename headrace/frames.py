"""Evaluates expressions on a data frame, without a warehouse: the values that a model's inputs would have.

    hr.try_(hr.text("query").unigrams().hash_buckets(1000), frame)
    hr.try_(model, frame)

The kernels are those that fill the warehouse, so the values have its bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transforms.errors import DataError, HeadraceError, InputError, TypeMismatch, UnknownColumn, nearest
from transforms.expressions.expression import Expr
from transforms.expressions.model import Model

if TYPE_CHECKING:
    import pyarrow as pa

    from transforms.graphs.graph import Node, RawColumn
    from transforms.joins.definition import JoinDefinition

_FRAMES = "a pandas or Polars DataFrame, a pyarrow Table or RecordBatch, or a mapping of names to columns"


def try_(
    features: Expr | Model | Mapping[str, Expr],
    frame: Any,
    *,
    tables: Mapping[str, Any] | None = None,
    time: str = "time",
) -> Any:
    """The values of an expression, of the inputs of a model, or of several expressions by name, on the rows of a frame.

    Args:
        features: an expression, a :class:`Model`, or a mapping of names to expressions.
        frame: a pandas or Polars ``DataFrame``, a ``pyarrow.Table`` or ``RecordBatch``, or a mapping of names to lists or arrays. Columns that no
            expression reads are left alone, and the label of a model is not computed.
        tables: the rows of the tables of joined columns by name, each as a frame.
        time: the column of the times of the frame and of the tables, for joined columns.

    Returns what the frame is made of: of an expression a ``Series`` or a ``pyarrow.Array``, and else a ``DataFrame`` or a ``pyarrow.Table``; for a
    mapping those of pyarrow. A pandas result has the index of the frame. Deterministic.

    Raises :class:`~transforms.errors.UnknownColumn` for a column that the frame lacks, :class:`~transforms.errors.DataError` for one whose type or
    values are not those that are declared, and for an operator that fails, and :class:`~transforms.errors.InputError` for a full pass, such as a vocabulary, which
    needs a table.

    >>> try_(text("query").lower(), {"query": ["Red Shoes", None]}).to_pylist()
    ['red shoes', None]
    """
    components = _components(features)
    source = _source_of(frame)
    table = _read(source, components, _joined(source, components, tables or {}, time))
    columns = _computed(components, table)
    return source.column(columns[""]) if isinstance(features, Expr) else source.frame(columns)


def _components(features: object) -> dict[str, Node]:
    """Graphs in canonical form by name; that of a single expression under the empty one."""
    from transforms.graphs.canonical import CanonicalForms

    if isinstance(features, Model):
        if not features.inputs:
            raise InputError("a model must have inputs to be tried", where=f"model {features.name}",
                             next_step="add inputs with model.input(name, expression)")  # fmt: skip
        return {name: one.component for name, one in features.inputs.items()}
    given: Mapping[Any, object] = features if isinstance(features, Mapping) else {"": features}
    forms, found = CanonicalForms(), {}
    for name, one in given.items():
        if not isinstance(one, Expr) or not isinstance(name, str):
            raise TypeMismatch("features must be expressions", where=f"features[{name!r}]" if isinstance(features, Mapping) else "features",
                               value=type(one).__name__, allowed="an expression, a hr.Model, or a mapping of names to expressions",
                               next_step='start from a column, as in hr.text("query")')  # fmt: skip
        found[name] = forms.of(one.node)
    if not found:
        raise InputError("features must hold an expression", value={})
    return found


@dataclass(frozen=True)
class _Source:
    """A frame: its columns by name, and how results are returned.

    Attributes:
        names: of all columns.
        read: some columns, by name, as a table.
        column: what is returned for one array.
        frame: what is returned for several, by name.
    """

    names: Sequence[str]
    read: Callable[[list[str]], pa.Table]
    column: Callable[[pa.Array], Any]
    frame: Callable[[dict[str, pa.Array]], Any]


def _source_of(frame: Any) -> _Source:
    """What a frame is. Libraries that the caller has not imported are not imported."""
    import pyarrow as pa

    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        return _of_pandas(frame)
    if polars is not None and isinstance(frame, polars.DataFrame):
        return _Source(
            frame.columns,
            lambda names: frame.select(names).to_arrow(),
            polars.from_arrow,
            lambda arrays: polars.from_arrow(_table(arrays)),
        )
    if isinstance(frame, (pa.Table, pa.RecordBatch)):
        return _Source(frame.schema.names, lambda names: _arrow_columns(frame, names), _itself, _table)
    if isinstance(frame, Mapping):
        return _Source([*frame], lambda names: _arrays(pa, {name: frame[name] for name in names}), _itself, _table)
    raise InputError("a frame must be tabular data", where="frame", value=type(frame).__name__, allowed=_FRAMES)


def _of_pandas(frame: Any) -> _Source:
    import pyarrow as pa

    def read(names: list[str]) -> pa.Table:
        found = {}
        for name in names:
            series = frame[name]
            if series.ndim != 1:
                raise InputError("the columns of a frame must have different names", where="frame", value=name)
            found[name] = series
        return _arrays(pa, found)

    def column(array: pa.Array) -> Any:
        series = array.to_pandas()
        series.index = frame.index
        return series

    def whole(arrays: dict[str, pa.Array]) -> Any:
        made = _table(arrays).to_pandas()
        made.index = frame.index
        return made

    return _Source([one for one in frame.columns if isinstance(one, str)], read, column, whole)


def _arrow_columns(frame: pa.Table | pa.RecordBatch, names: list[str]) -> pa.Table:
    for name in names:
        if frame.schema.names.count(name) > 1:
            raise InputError("the columns of a frame must have different names", where="frame", value=name)
    return _table({name: frame.column(name) for name in names})


def _arrays(pa: Any, columns: Mapping[str, Any]) -> pa.Table:
    """Columns of Python or numpy values as a table; not-a-number of pandas is null, as pyarrow reads it."""
    found = {}
    for name, values in columns.items():
        if isinstance(values, (str, bytes)):
            raise DataError("a column must be a list or an array of values", where=f"column {name}", value=values[:80],
                            next_step=f"write [{values[:20]!r}] for one row")  # fmt: skip
        try:
            found[name] = pa.array(values, from_pandas=hasattr(values, "iloc"))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            raise DataError("the values of a column must have one type", where=f"column {name}", value=str(error)[:200],
                            next_step="convert the column, such as with astype or cast") from error  # fmt: skip
    lengths = {name: len(one) for name, one in found.items()}
    if len(set(lengths.values())) > 1:
        raise DataError("the columns of a frame must have equally many rows", where="frame", value=lengths)
    return _table(found)


def _table(columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """As ``pyarrow.table``, which imports pandas."""
    import pyarrow as pa

    return pa.Table.from_arrays([*columns.values()], names=[*columns])


def _itself(array: pa.Array) -> pa.Array:
    return array


def _joined(source: _Source, components: Mapping[str, Node], tables: Mapping[str, Any], time: str) -> dict[str, pa.Array]:  # fmt: skip
    """The joined columns that the expressions read and the frame does not have, by name."""
    from transforms.joins.column import joined_columns_of
    from transforms.joins.columns_read import columns_read
    from transforms.joins.evaluation import joined_columns

    by_table: dict[str, dict[str, JoinDefinition]] = {}
    for name, one in joined_columns_of(components.values()).items():
        if name not in source.names:
            by_table.setdefault(one.table, {})[name] = one
    found: dict[str, pa.Array] = {}
    for table, definitions in by_table.items():
        if table not in tables:
            raise InputError("a joined column must have the rows of its table to be tried", where="tables", value=table, allowed=nearest(table, tables),
                             next_step=f"hr.try_(features, frame, tables={{{table!r}: ROWS}}, time={time!r})")  # fmt: skip
        own, other = (
            frozenset({time}).union(*each) for each in zip(*map(columns_read, definitions.values()), strict=True)
        )
        sides = _columns(source, own, "frame"), _columns(_source_of(tables[table]), other, f"table {table}")
        found |= joined_columns(definitions, sides[0], time, sides[1], time)
    return found


def _columns(source: _Source, names: Iterable[str], where: str) -> pa.Table:
    for name in names:
        if name not in source.names:
            raise UnknownColumn("the frame must have the columns that expressions read", where=where, value=name,
                                allowed=nearest(name, source.names))  # fmt: skip
    return source.read(sorted(names))


def _read(source: _Source, components: Mapping[str, Node], joined: Mapping[str, pa.Array]) -> pa.Table:
    """The columns that the expressions read, of types that can be read as declared, and those that are joined."""
    from transforms.columns.columns import is_castable
    from transforms.graphs.graph import RawColumn, topological

    wanted = [
        node for node in topological(components.values()) if isinstance(node, RawColumn) and node.name not in joined
    ]
    if not wanted and not joined:
        raise InputError("an expression must read a column to be tried", next_step='start from a column, as in hr.text("query")')  # fmt: skip
    table = _typed(_columns(source, {node.name for node in wanted}, "frame"), wanted)
    for node in wanted:
        stored = table.schema.field(node.name).type
        if not is_castable(stored, node.type):
            raise DataError("a column must have a type that can be read as its declared one without loss", where=f"column {node.name}",
                            value=str(stored), allowed=str(node.type), next_step=_remedy(node, stored))  # fmt: skip
    return _table({**dict(zip(table.column_names, table.columns, strict=True)), **joined})


def _typed(table: pa.Table, wanted: Sequence[RawColumn]) -> pa.Table:
    """Columns of nulls alone, and empty ones, have no type of their own: they get the declared one."""
    import pyarrow as pa

    from transforms.columns.arrow_types import arrow_type

    declared = {node.name: arrow_type(node.type) for node in reversed(wanted)}
    columns = dict(zip(table.schema.names, table.columns, strict=True))
    return _table({
        name: pa.nulls(len(column), declared[name]) if pa.types.is_null(column.type) else column for name, column in columns.items()
    })  # fmt: skip


def _remedy(node: RawColumn, stored: pa.DataType) -> str:
    """What to write in place of a declaration, or of a column."""
    from transforms.columns.columns import is_castable
    from transforms.types import Dense, DType

    names = {DType.STRING: "text", DType.BOOL: "boolean"}
    fitting = next((one for one in DType if is_castable(stored, Dense(one))), None)
    declared = "" if fitting is None else f"declare hr.{names.get(fitting, fitting.value)}({node.name!r}), or "
    return f"{declared}convert the column to {node.type}"


def _computed(components: Mapping[str, Node], table: pa.Table) -> dict[str, pa.Array]:
    """The arrays of all components, in their order."""
    from transforms.columns.columns import cast_to_layout
    from transforms.execution.plan import compile_plan
    from transforms.graphs.graph import RawColumn

    _refuse_full_passes(components.values())
    raw = {name: node for name, node in components.items() if isinstance(node, RawColumn)}
    plan = compile_plan({name: node for name, node in components.items() if name not in raw})
    result = plan.run(table)
    for name, failure in result.failures.items():
        raise DataError(f"an operator must not fail: {failure.operator}", where=f"input {name}" if name else "the expression",
                        value=failure.error, allowed=failure.expression)  # fmt: skip
    found = {}
    for name in components:
        if name not in raw:
            found[name] = result.columns[name]
            continue
        node = raw[name]
        try:
            found[name] = _one_array(cast_to_layout(table.column(node.name), node.type))
        except HeadraceError as error:
            error.where = error.where or f"column {node.name}"
            raise
    return found


def _refuse_full_passes(roots: Iterable[Node]) -> None:
    from transforms.analysis.full_pass import is_full_pass
    from transforms.graphs.graph import topological
    from transforms.render import expression_text

    for node in topological(roots):
        if is_full_pass(node):
            raise InputError("a full pass must be run over a table, not over a frame", value=expression_text(node, 100),
                             next_step="headrace table add, then headrace analyze with the model's file")  # fmt: skip


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
