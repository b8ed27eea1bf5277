"""Constant folding: operations over literals, computed when an expression is built."""

from __future__ import annotations

from collections.abc import Sequence

from transforms.errors import InputError
from transforms.graphs.graph import Literal, Operation
from transforms.operators import REGISTRY
from transforms.types import ColumnType, Dense, DType

Value = bool | int | float | str


def fold_literals(node: Operation) -> Literal | None:
    """The result of an operation over literals as a literal; None where no literal can hold it.

    Also None for an operation that differs in this release, such as one of another version.
    """
    if not node.operands or not isinstance(node.type, Dense) or not is_held(node.type):
        return None
    literals = [arg for arg in node.operands if isinstance(arg, Literal)]
    if len(literals) < len(node.operands) or not _is_of_this_release(node):
        return None
    return result_of(node, literals, node.type)


def result_of(node: Operation, literals: Sequence[Literal], gives: Dense) -> Literal | None:
    """The result of the node's operator for these literals, as a literal of the type ``gives``; None for null."""
    values = [_held(literal.type, literal.value) for literal in literals]
    result = REGISTRY[node.op].evaluate([literal.type for literal in literals], values, dict(node.params))
    return Literal(gives, _held(gives, result)) if isinstance(result, bool | int | float | str) else None


def is_held(column_type: ColumnType) -> bool:
    """Whether a computed value of this type may become a literal."""
    return column_type.dtype is not DType.TIMESTAMP and column_type.buckets is None


def promoted_literal(literal: Literal, dtype: DType) -> Literal:
    """A number as a float64, if that is the common type of an operation's arguments."""
    if dtype is not DType.FLOAT64 or literal.type not in (Dense(DType.INT64), Dense(DType.FLOAT32)):
        return literal
    return Literal(Dense(dtype), _held(Dense(dtype), _held(literal.type, literal.value)))


def _is_of_this_release(node: Operation) -> bool:
    operator = REGISTRY[node.op]
    if operator.version != node.version:
        return False
    try:
        return operator.infer([arg.type for arg in node.operands], operator.bind_params(dict(node.params))) == node.type
    except InputError:  # an untrusted document; a plan refuses it with the reason
        return False


def _held(column_type: ColumnType, value: Value) -> Value:
    """``value`` as a column of this type holds it: rounded to float32, or an integer as a float."""
    match column_type.dtype:
        case DType.FLOAT32:
            import numpy as np  # not loaded where no constant is folded

            with np.errstate(over="ignore"):
                return float(np.float32(value))
        case DType.FLOAT64:
            return float(value)
        case _:
            return value
