"""A backward pass in stages: the gradients of some variables are handed on before those of the next are computed.

TensorFlow runs the operations of a graph in an order of its own choice, which may leave all calls of Python functions to the end. So the
operations that only later groups need wait for the call of the group before; the arithmetic stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from transforms.arrays import Array

#: Takes the number of a group and its gradients, in a thread of TensorFlow. The arrays may change after it returns.
HandOn = Callable[[int, Sequence[Array]], None]

_INPUT = "Placeholder"


def hand_on_in_stages(
    gradients: Sequence[Any], groups: Sequence[Sequence[int]], results: Sequence[Any], hand_on: HandOn
) -> None:
    """Call ``hand_on`` with the gradients of each group, in order, while a graph runs; call it where the graph is traced.

    Args:
        gradients: by variable.
        groups: places of variables, in the order in which the backward pass gives their gradients.
        results: what else the graph computes, after the last group.
    """
    seen: set[Any] = set()
    call: Any = None
    for number, group in enumerate(groups):
        found = [gradients[place] for place in group]
        _wait_for(call, _operations(found, seen))
        call = tf.numpy_function(partial(_call, hand_on, number), found, [])
    _wait_for(call, _operations(results, seen))


def _call(hand_on: HandOn, number: int, *gradients: Array) -> tuple[()]:
    hand_on(number, gradients)
    return ()


def _operations(tensors: Iterable[Any], seen: set[Any]) -> list[Any]:
    """The operations that give ``tensors`` and are not in ``seen``, to which they are added."""
    found, left = [], [tensor.op for tensor in tensors]
    while left:
        operation = left.pop()
        if operation not in seen:
            seen.add(operation)
            found.append(operation)
            left += [one.op for one in operation.inputs]
            left += operation.control_inputs
    return found


def _wait_for(call: Any, stage: Sequence[Any]) -> None:
    """Let the first operations of a stage wait for a call; all others follow them.

    None of a stage is needed by the call, which needs those of the stages before: the edges make no cycle.
    """
    if call is None:
        return
    own = set(stage)
    for operation in stage:
        if operation.type != _INPUT and not any(one.op in own for one in operation.inputs):
            operation._add_control_inputs([call])
