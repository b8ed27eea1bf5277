"""The canonical form: what is left of a component when everything that cannot change its output is taken away.

Rules are small named functions from an operation, whose arguments are canonical already, to its replacement or None.
They rely only on laws that hold bit for bit and that the property tests check. Names a user gave never enter a graph;
common subexpressions are one node by construction; nodes nothing reads are simply not reached.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from transforms.errors import InputError
from transforms.graph import Literal, Node, Operation, fold
from transforms.operators import REGISTRY
from transforms.operators.declaration import Law
from transforms.types import ColumnType, Dense, DType

Rule = Callable[[Operation], Node | None]
Value = bool | int | float | str


def canonicalize(root: Node) -> Node:
    """The canonical form of a component. Applying it twice changes nothing. Deterministic in every process.

    Raises :class:`InputError` for an operator that is not registered.
    """
    return fold(root, _canonical_node)


def _canonical_node(node: Node, args: tuple[Node, ...]) -> Node:
    if not isinstance(node, Operation):
        return node
    current: Node = _with_operands(node, args)
    while isinstance(current, Operation):
        replacement = next((new for rule in RULES if (new := rule(current)) is not None), None)
        if replacement is None:
            break
        current = replacement
    return current


def _with_operands(node: Operation, operands: tuple[Node, ...]) -> Operation:
    if operands == node.operands:
        return node  # most nodes are canonical already, and an identity is not cheap
    return Operation(node.type, node.op, node.version, operands, node.params)


def _laws(node: Operation) -> frozenset[Law]:
    return REGISTRY[node.op].laws


def _same_operation(node: Node, other: Operation) -> bool:
    return (
        isinstance(node, Operation)
        and (node.op, node.version, node.params, node.type) == (other.op, other.version, other.params, other.type)
    )  # fmt: skip


def flatten_associative(node: Operation) -> Node | None:
    """``f(f(a, b), c)`` becomes ``f(a, b, c)``.

    Not over the items of a list where f makes something of a null: ``f(list, b)`` drops items that ``f(list, b, c)`` keeps.
    """
    if Law.ASSOCIATIVE not in _laws(node) or not any(_same_operation(arg, node) for arg in node.operands):
        return None
    if REGISTRY[node.op].nulls == "see" and REGISTRY[node.op].lifted([arg.type for arg in node.operands]) is not None:
        return None
    spliced = (arg.args if _same_operation(arg, node) else (arg,) for arg in node.operands)
    return _with_operands(node, tuple(arg for part in spliced for arg in part))


def drop_repeated_arguments(node: Operation) -> Node | None:
    """``f(a, b, a)`` becomes ``f(a, b)`` where repetition means nothing; ``f(a, a)`` keeps both, since f may act on one."""
    if Law.IDEMPOTENT_ARGUMENTS not in _laws(node):
        return None
    distinct = tuple(dict.fromkeys(node.operands))
    kept = distinct if len(distinct) > 1 else distinct * 2
    return _with_operands(node, kept) if len(kept) < len(node.operands) else None


def sort_commutative(node: Operation) -> Node | None:
    """Arguments whose order means nothing stand in the order of their identities."""
    if Law.COMMUTATIVE not in _laws(node):
        return None
    ordered = tuple(sorted(node.operands, key=lambda arg: arg.identity))
    return _with_operands(node, ordered) if ordered != node.operands else None


def collapse_idempotent(node: Operation) -> Node | None:
    """``f(f(a))`` becomes ``f(a)``."""
    if Law.IDEMPOTENT not in _laws(node) or len(node.operands) != 1:
        return None
    return node.operands[0] if _same_operation(node.operands[0], node) else None


def drop_identity(node: Operation) -> Node | None:
    """Operations that return their argument: a cast to the type it has, one thing concatenated, unique over a set."""
    if len(node.operands) != 1:
        return None
    (arg,) = node.operands
    unchanged = node.op in {"cast", "concat"} and node.type == arg.type
    already_distinct = node.op == "unique" and isinstance(arg, Operation) and arg.op in _SET_OPERATORS
    return arg if unchanged or already_distinct else None


_SET_OPERATORS = frozenset({"intersect", "union", "difference"})


def merge_heads(node: Operation) -> Node | None:
    """``head(head(a, m), n)`` becomes ``head(a, min(m, n))``."""
    if node.op != "head":
        return None
    inner = node.operands[0]
    if not isinstance(inner, Operation) or inner.op != "head" or inner.version != node.version:
        return None
    shortest = min(node, inner, key=lambda each: int(_number(dict(each.params)["n"])))
    return Operation(node.type, node.op, node.version, inner.operands, shortest.params)


def _number(value: object) -> float:
    if not isinstance(value, int | float):
        raise InputError("expected a number", value=value)
    return value


def fold_constants(node: Operation) -> Node | None:
    """An operation over literals becomes its result, where a literal can hold it."""
    if not node.operands or not all(isinstance(arg, Literal) for arg in node.operands):
        return None
    if not isinstance(node.type, Dense) or node.type.dtype is DType.TIMESTAMP or node.type.buckets is not None:
        return None
    operator = REGISTRY[node.op]
    if operator.version != node.version:
        return None
    values = [_held(arg.type, arg.value) for arg in node.operands if isinstance(arg, Literal)]
    result = operator.evaluate([arg.type for arg in node.operands], values, dict(node.params))
    return Literal(node.type, _held(node.type, result)) if isinstance(result, bool | int | float | str) else None


def _held(column_type: ColumnType, value: Value) -> Value:
    """``value`` as a column of this type holds it: a kernel sees a float32 rounded, and an integer in a float column as one."""
    match column_type.dtype:
        case DType.FLOAT32:
            with np.errstate(over="ignore"):
                return float(np.float32(value))
        case DType.FLOAT64:
            return float(value)
        case _:
            return value


#: In the order they are tried; each returns None when it does not apply.
RULES: tuple[Rule, ...] = (
    fold_constants,
    drop_identity,
    collapse_idempotent,
    merge_heads,
    flatten_associative,
    drop_repeated_arguments,
    sort_commutative,
)
