"""Operations of registered operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transforms.graphs.graph import Node, Operation
from transforms.operators import REGISTRY


def operation(name: str, operands: Sequence[Node], params: Mapping[str, object]) -> Operation:
    """The operator ``name`` over ``operands``, with bound parameters and the inferred type.

    Raises :class:`~transforms.errors.TypeMismatch` for an operand it does not take and
    :class:`~transforms.errors.InputError` for a wrong parameter.
    """
    operator = REGISTRY[name]
    bound = operator.bind_params(params)
    result = operator.infer([operand.type for operand in operands], bound)
    return Operation(result, name, operator.version, tuple(operands), tuple(sorted(bound.items())))
