"""Compiling components into one plan, and running it over batches.

The graphs of the components are merged: a node that several of them share runs once. Nodes run in topological order; a
value is freed after its last reader. Operators that read only one dictionary-encoded column run over its distinct values
(:mod:`transforms.execution.coded`). When an operator raises, only the components that need it fail. A plan is immutable
and holds no state of a run, so threads may run it over several batches at once; kernels release the GIL.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from transforms.arrays import Array
from transforms.columns.columns import (
    NUMPY_ELEMENT,
    Column,
    Constants,
    Numbers,
    RaggedItems,
    Strings,
    Vectors,
    WeightedItems,
    cast_to_layout,
    from_arrow,
)
from transforms.columns.positions import check_positions
from transforms.errors import DataError, InputError, InvalidText, OtherRelease, UnknownColumn, nearest
from transforms.execution.coded import Coded, align_codes, coded_from_arrow, decoded
from transforms.execution.fusion import FUSED, fuse
from transforms.execution.operator_costs import OperatorWork, Share, shares_of, work_of_run
from transforms.graphs.artifacts import Artifacts, no_artifacts
from transforms.graphs.graph import Artifact, Literal, Node, Operation, RawColumn, topological
from transforms.kernels.arrow import to_arrow
from transforms.operators import REGISTRY, Operator
from transforms.operators.declaration import Scalar
from transforms.render import expression_text
from transforms.types import ColumnType, Dense, Ragged


@dataclass(frozen=True, slots=True)
class ComponentFailure:
    """The failure of a component: the operator that raised, its expression, and the error's type and text.

    ``exceptions`` are the names of the types, from the error to its first cause.
    """

    operator: str
    expression: str
    error: str
    exceptions: tuple[str, ...] = ()

    @property
    def is_out_of_memory(self) -> bool:
        """Whether Python, numpy or Arrow ran out of memory."""
        return any(name.endswith("MemoryError") for name in self.exceptions)


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The result of one run. Every component is in either ``columns`` or ``failures``, under its key.

    Attributes:
        columns: the outputs.
        failures: the failures.
        node_secs: wall-clock seconds by node identity.
        component_secs: the seconds of a component by itself: all of its nodes, shared ones too, and its conversion to Arrow.
        operators: the work of the operators that did not fail; fused ones are divided.
    """

    columns: dict[str, pa.Array]
    failures: dict[str, ComponentFailure]
    node_secs: dict[str, float]
    component_secs: dict[str, float]
    operators: tuple[OperatorWork, ...] = ()


@dataclass(frozen=True, slots=True)
class StepOfPlan:
    """The description of one step; ``components`` are the keys of those that need it."""

    operator: str
    expression: str
    components: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Step:
    """One node: the steps of its arguments, the shares of its operators, and the values to free after it."""

    node: Node
    args: tuple[int, ...] = ()
    operator: Operator | None = None
    params: Mapping[str, Scalar] = field(default_factory=dict)
    constants: Constants | None = None
    shares: tuple[Share, ...] = ()
    outputs: tuple[str, ...] = ()
    released: tuple[int, ...] = ()


#: The declared nanoseconds per event from which finding the combinations of argument values pays.
_WORTH_COMMON_CODES_NS = 20.0
_ERROR_CHARACTERS = 2_000

_Value = Column | Coded | Literal | ComponentFailure | None


@dataclass(frozen=True, slots=True)
class Plan:
    """Compiled components; see :func:`compile_plan`."""

    steps: tuple[_Step, ...]
    needs: Mapping[str, tuple[str, ...]]

    @property
    def columns(self) -> tuple[RawColumn, ...]:
        """The raw columns that a batch must hold, by name."""
        found = (step.node for step in self.steps if isinstance(step.node, RawColumn))
        return tuple(sorted(found, key=lambda column: (column.name, column.identity)))

    def describe(self, position: int) -> StepOfPlan:
        """The description of the step at ``position``. Raises :class:`IndexError`."""
        node = self.steps[position].node
        needing = tuple(key for key, nodes in self.needs.items() if node.identity in nodes)
        return StepOfPlan(_operator_name(node), expression_text(node), needing)

    def run(
        self,
        batch: pa.Table | pa.RecordBatch,
        on_step: Callable[[int], None] = lambda _: None,
        *,
        checked: bool = False,
    ) -> PlanResult:
        """Run every component over ``batch``: arrays of ``arrow_type`` layout, row i for event i. Deterministic.

        Args:
            on_step: called with the position of each step before it runs.
            checked: whether the raw columns have passed :func:`~transforms.kernels.text_validity.check_array`, as those
                that the warehouse reads have; otherwise they are checked here.

        Raises :class:`UnknownColumn` if the batch must hold each raw column, :class:`~transforms.errors.InvalidText` for text
        that is not UTF-8, and :class:`DataError` if a stored type does not conform or holds a value that the declared
        type cannot. An exception of an operator goes to ``failures`` instead.
        """
        check_positions(batch.num_rows, "rows")
        values: list[_Value] = [None] * len(self.steps)
        columns: dict[str, pa.Array] = {}
        failures: dict[str, ComponentFailure] = {}
        node_secs: dict[str, float] = {}
        output_secs: dict[str, float] = {}
        failed: set[str] = set()
        for position, step in enumerate(self.steps):
            on_step(position)
            begun = time.perf_counter()
            values[position] = value = _evaluate(step, values, batch, checked)
            node_secs[step.node.identity] = time.perf_counter() - begun
            if isinstance(value, ComponentFailure):
                failed.add(step.node.identity)
            if step.outputs:
                begun = time.perf_counter()
                output = _output(step, value, batch.num_rows)
                kept: dict[str, pa.Array] | dict[str, ComponentFailure]
                kept = failures if isinstance(output, ComponentFailure) else columns
                kept.update(dict.fromkeys(step.outputs, output))
                output_secs.update(dict.fromkeys(step.outputs, time.perf_counter() - begun))
            for released in step.released:
                values[released] = None
        component_secs = {
            key: output_secs[key] + sum(node_secs[identity] for identity in nodes) for key, nodes in self.needs.items()
        }
        ran = [step for step in self.steps if step.node.identity not in failed]
        operators = work_of_run(((step.shares, node_secs[step.node.identity]) for step in ran), batch.num_rows)
        return PlanResult(columns, failures, node_secs, component_secs, operators)


def compile_plan(components: Mapping[str, Node], artifacts: Artifacts = no_artifacts, *, fused: bool = True) -> Plan:
    """Compile one plan for several components, by key. Keys may share a component. Artifacts are loaded here, not in a run.

    ``fused`` applies :mod:`transforms.execution.fusion`; the output is the same.

    Raises :class:`OtherRelease` for an operator that does not exist, has another version than the component states, or
    does not take its parameters or give its type: another release made the component.
    """
    for node in topological(components.values()):
        _check(node)
    components = fuse(components) if fused else components
    nodes = list(topological(components.values()))
    position = {node.identity: i for i, node in enumerate(nodes)}
    steps = [_step(node, position, artifacts) for node in nodes]
    for key, root in components.items():
        at = position[root.identity]
        steps[at] = replace(steps[at], outputs=(*steps[at].outputs, key))
    needs = {key: tuple(node.identity for node in topological([root])) for key, root in components.items()}
    return Plan(_with_releases(steps), needs)


def _step(node: Node, position: Mapping[str, int], artifacts: Artifacts) -> _Step:
    if isinstance(node, Artifact):
        held = from_arrow(_checked(artifacts(node.digest)), Dense(node.type.dtype))
        assert isinstance(held, Numbers | Strings), "an artifact holds plain values"
        return _Step(node, constants=Constants(held))
    if not isinstance(node, Operation):
        return _Step(node)
    operator = FUSED[node.op] if node.op in FUSED else REGISTRY[node.op]
    args = tuple(position[arg.identity] for arg in node.operands)
    return _Step(node, args, operator, dict(node.params), shares=shares_of(node))


def _check(node: Node) -> None:
    """Raise :class:`OtherRelease` for an operation that differs in this release."""
    if not isinstance(node, Operation):
        return
    if node.op not in REGISTRY:
        known = nearest(node.op, (operator.name for operator in REGISTRY))
        raise _other_release(node, "an unknown operator", known)
    operator = REGISTRY[node.op]
    if operator.version != node.version:
        raise _other_release(
            node,
            "another version of an operator",
            f"version {operator.version}",
            operator.version,
        )
    try:
        inferred = operator.infer([arg.type for arg in node.operands], operator.bind_params(dict(node.params)))
    except InputError as error:
        raise _other_release(node, "arguments that its operator does not take", str(error).splitlines()[0]) from error
    if inferred != node.type:
        raise OtherRelease("a component must state the type that its operator gives in this release",
                           where=expression_text(node), value=str(node.type), allowed=str(inferred),
                           next_step=_NEXT_STEP)  # fmt: skip


_NEXT_STEP = "start workers of the release that the model was submitted from, or submit the model again from this one"


def _other_release(node: Operation, asked: str, known: str, version: int | None = None) -> OtherRelease:
    """``known`` is what this release has; ``version`` its version of the operator, if any."""
    if version is None or version < node.version:
        next_step = "it comes from a later release: start workers of that one, and stop those of this one"
    else:
        next_step = "it comes from an earlier release: submit the model again, which uses the present version"
    return OtherRelease(f"a component must use operators of this release, got {asked}", where=expression_text(node),
                        value=f"{node.op} version {node.version}", allowed=known, next_step=next_step)  # fmt: skip


def _with_releases(steps: Sequence[_Step]) -> tuple[_Step, ...]:
    """The steps with the values to free after each: those that no later step reads."""
    last_reader = {position: position for position in range(len(steps))}
    for position, step in enumerate(steps):
        last_reader.update(dict.fromkeys(step.args, position))
    released: list[list[int]] = [[] for _ in steps]
    for position, reader in last_reader.items():
        released[reader].append(position)
    return tuple(replace(step, released=tuple(gone)) for step, gone in zip(steps, released, strict=True))


def _evaluate(step: _Step, values: Sequence[_Value], batch: pa.Table | pa.RecordBatch, checked: bool) -> _Value:
    node = step.node
    if isinstance(node, RawColumn):
        return _read(node, batch, checked)
    if isinstance(node, Literal):
        return node
    if step.constants is not None:
        return step.constants
    args: Sequence[_Value] = [values[position] for position in step.args]
    for arg in args:
        if isinstance(arg, ComponentFailure):
            return arg
    assert step.operator is not None, "an operation was compiled without its operator"
    try:
        coded = _over_codes(step, args)
        return _over_rows(step, args, batch.num_rows) if coded is None else coded
    except Exception as error:  # any operator may fail in any way: the failure is the component's result
        return _failure(node, error)


def _over_rows(step: _Step, args: Sequence[_Value], rows: int) -> Column:
    assert step.operator is not None, "the caller has one"
    return apply_kernel(step.operator, [_column(arg, rows) for arg in args], step.params, step.node.type, rows)


def _over_codes(step: _Step, args: Sequence[_Value]) -> Coded | None:
    """The operator over distinct values; None if its arguments are not coded, or if it refuses a value.

    No event may have that value of the dictionary: the operator then runs over the rows.
    """
    assert step.operator is not None, "the caller has one"
    args, codes = _common_codes(args, step.operator.cost_ns)
    if codes is None:
        return None
    rows = _distinct_rows(args)
    columns = [_column(arg, rows, as_coded=True) for arg in args]
    try:
        return Coded(codes, apply_kernel(step.operator, columns, step.params, step.node.type, rows))
    except Exception:  # the run over the rows decides
        return None


def _common_codes(args: Sequence[_Value], cost_ns: float) -> tuple[Sequence[_Value], Array | None]:
    """The arguments and their common codes, if all but literals share them or sharing them pays."""
    coded = [arg for arg in args if isinstance(arg, Coded)]
    if not coded or not all(isinstance(arg, Coded | Literal | Constants) for arg in args):
        return args, None
    if len({id(arg.codes) for arg in coded}) == 1:
        return args, coded[0].codes
    common = align_codes(coded) if cost_ns >= _WORTH_COMMON_CODES_NS else None
    if common is None:
        return args, None
    ahead = iter(common)
    return [next(ahead) if isinstance(arg, Coded) else arg for arg in args], common[0].codes


def _distinct_rows(args: Sequence[_Value]) -> int:
    return next(len(arg.values) for arg in args if isinstance(arg, Coded))


def _column(value: _Value, rows: int, *, as_coded: bool = False) -> Column:
    """A value as a column of ``rows``: a literal repeated, a coded one decoded (or its values if ``as_coded``)."""
    match value:
        case Literal():
            return _constant(value, rows)
        case Coded():
            return value.values if as_coded else decoded(value)
        case None | ComponentFailure():
            raise AssertionError("a value was released before its last reader")
        case _:
            return value


def apply_kernel(
    operator: Operator, args: Sequence[Column], params: Mapping[str, Scalar], result: ColumnType, rows: int
) -> Column:
    """Apply an operator's kernel to columns, with nulls handled as the operator declares.

    ``params`` are bound and ``result`` is what the operator infers. Raises whatever the kernel raises, and
    :class:`DataError` if it returns another number of rows.
    """
    lifted = _lifted(operator, args, result)
    if lifted is not None:
        return _apply_to_items(operator, args, lifted, params, result)
    column = operator.kernel(*args, **params)
    if len(column) != rows:
        raise DataError("a kernel must return as many rows as it is given", value=len(column), allowed=str(rows))
    valid = None
    if operator.nulls == "propagate":
        for arg in args:
            valid = _both(valid, arg.valid if isinstance(arg, Numbers | Strings) else None)
    return _with_nulls(column, valid, result)


def _lifted(operator: Operator, args: Sequence[Column], result: ColumnType) -> int | None:
    """The position of the list that a lifting operator works on item by item; None if there is none."""
    if not operator.lifts or not isinstance(result, Ragged):
        return None
    lists = [i for i, arg in enumerate(args) if isinstance(arg, RaggedItems)]
    return lists[0] if len(lists) == 1 else None


def _apply_to_items(
    operator: Operator, args: Sequence[Column], lifted: int, params: Mapping[str, Scalar], result: ColumnType
) -> Column:
    """The operator over the items of one list; the other arguments are repeated, null results dropped."""
    from transforms.kernels.lists import spread, without_nulls

    lists = args[lifted]
    assert isinstance(lists, RaggedItems), "only a list has items"
    spread_out = [lists.items if i == lifted else spread(arg, lists.offsets) for i, arg in enumerate(args)]
    element = Dense(result.dtype, getattr(result, "buckets", None))
    items = apply_kernel(operator, spread_out, params, element, len(lists.items))
    assert isinstance(items, Numbers | Strings), "only an operator with a dense result works on items"
    return without_nulls(RaggedItems(lists.offsets, items))


def _with_nulls(column: Column, valid: Array | None, result: ColumnType) -> Column:
    """``column`` with null (or an empty list) where ``valid`` is False; null slots hold zero or no bytes."""
    if isinstance(column, RaggedItems | WeightedItems | Vectors | Constants):
        if valid is None or valid.all():
            return column
        from transforms.kernels.lists import emptied

        return emptied(column, valid)
    valid = _both(valid, column.valid)
    if valid is None or valid.all():
        return column if column.valid is None else replace(column, valid=None)
    if isinstance(column, Strings):
        return Strings(column.data, column.starts, np.where(valid, column.ends, column.starts), valid)
    return Numbers(np.where(valid, column.values, np.zeros(1, column.values.dtype)), valid)


def _both(a: Array | None, b: Array | None) -> Array | None:
    if a is None or b is None:
        return b if a is None else a
    both: Array = a & b
    return both


def _checked(array: pa.Array) -> pa.Array:
    from transforms.kernels.text_validity import check_array

    check_array(array)
    return array


def _check_column(name: str, array: pa.Array | pa.ChunkedArray) -> None:
    try:
        _checked(array)
    except InvalidText as error:
        raise InvalidText(error.row, error.text, where=f"column {name}") from None
    except DataError as error:
        error.where = f"column {name}"
        raise


def _read(node: RawColumn, batch: pa.Table | pa.RecordBatch, checked: bool) -> Column | Coded:
    found = batch.schema.get_all_field_indices(node.name)
    if len(found) != 1:
        raise UnknownColumn(
            "the batch must hold each raw column" if not found else "the batch must hold a raw column only once",
            value=node.name,
            allowed=nearest(node.name, batch.schema.names),
        )
    stored = batch.column(found[0])
    if not checked:  # here, not before the first step: the next reader finds the bytes in the cache
        _check_column(node.name, stored)
    try:
        column: Column | Coded | None = coded_from_arrow(stored, node.type)
        if column is None:
            column = from_arrow(cast_to_layout(stored, node.type), node.type)
    except (DataError, pa.ArrowException) as error:
        raise DataError("a raw column cannot be read as its declared type", where=f"column {node.name}: {error}",
                        value=str(stored.type), allowed=str(node.type))  from error  # fmt: skip
    if len(column) != batch.num_rows:
        raise DataError("a raw column must fit into one batch", where=f"column {node.name}",
                        value=batch.num_rows, next_step="use smaller fragments")  # fmt: skip
    return column


def _constant(node: Literal, rows: int) -> Column:
    if not isinstance(node.type, Dense):
        raise InputError("a literal must be one value per event", value=str(node.type))
    if isinstance(node.value, str):
        data = np.frombuffer(node.value.encode(), np.uint8)
        return Strings(data, np.zeros(rows, np.int32), np.full(rows, len(data), np.int32))
    return Numbers(np.full(rows, node.value, NUMPY_ELEMENT[node.type.dtype]))


def _output(step: _Step, value: _Value, rows: int) -> pa.Array | ComponentFailure:
    if isinstance(value, ComponentFailure):
        return value
    try:
        return to_arrow(_column(value, rows), step.node.type)
    except Exception as error:  # such as a text column beyond 2 GiB; the failure is the component's result
        return _failure(step.node, error)


def _failure(node: Node, error: Exception) -> ComponentFailure:
    text = f"{type(error).__name__}: {one_line(error)}"
    return ComponentFailure(_operator_name(node), expression_text(node), text, _exceptions(error))


def _operator_name(node: Node) -> str:
    return node.op if isinstance(node, Operation) else type(node).__name__


def _exceptions(error: BaseException | None) -> tuple[str, ...]:
    return () if error is None else (type(error).__name__, *_exceptions(error.__cause__))


def one_line(error: Exception) -> str:
    """An error as one line: the message, where and the value."""
    text = "; ".join(" ".join(line.split()) for line in str(error).splitlines() if line.strip())
    return text if len(text) <= _ERROR_CHARACTERS else text[: _ERROR_CHARACTERS - 1] + "…"
