"""A network as a program: operations over buffers of one row an event, and the weights that they use. Pure.

The rows of a buffer are the events of a batch; an operation reads some columns of one buffer and writes some columns of another. The backward
pass runs the operations from the last to the first. So one compiled loop (:mod:`~trainer.model.compiled.kernels`) trains every network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from transforms.arrays import Array


class Code(IntEnum):
    """The kinds of operations; the columns of :data:`Operation` that each uses are in :class:`ProgramBuilder`."""

    TAKE = 0
    DENSE = 1
    COPY = 2
    PAIRS = 3
    CROSS = 4
    TIMES_VECTOR = 5
    VECTOR = 6
    ACTIVATE = 7
    DROP = 8


class Activation(IntEnum):
    """The activations of hidden layers, as Keras has them."""

    NONE = 0
    RELU = 1
    LEAKY_RELU = 2
    SILU = 3
    GELU = 4


#: The activations whose derivative their result shows, so that a dense layer applies them in place.
IN_PLACE = (Activation.NONE, Activation.RELU, Activation.LEAKY_RELU)

#: The columns of a program's table of operations.
CODE, SOURCE, SOURCE_COLUMN, SOURCE_WIDTH, TARGET, TARGET_COLUMN, TARGET_WIDTH, WEIGHT, BIAS, KIND, IS_FIRST, OTHER = range(12)  # fmt: skip
_COLUMNS = 12


@dataclass(frozen=True, slots=True)
class Variable:
    """A trained variable in its initial state.

    Attributes:
        values: float32 of its shape.
    """

    values: Array


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of a program, by its number."""

    number: int
    width: int


@dataclass(frozen=True, slots=True)
class Part:
    """Some columns of a buffer."""

    buffer: Buffer
    column: int
    width: int


@dataclass(frozen=True, slots=True)
class DropMask:
    """A dropout of a program.

    Attributes:
        seed: of its random state.
        share: of the values that become zero.
        width: of its buffer.
        column: its first column among the masks of all dropouts.
    """

    seed: int
    share: float
    width: int
    column: int


@dataclass(frozen=True, eq=False)
class Program:
    """The operations of a network.

    Attributes:
        operations: int64 [operations, 12], see :data:`CODE` and the columns after it.
        widths: of the buffers, int64. The first one holds the numbers of an event, scaled.
        has_gradient: of the buffers, whether their gradient is computed, bool.
        is_cleared: of the buffers, whether their gradient begins as zeros, since no operation writes all of it first, bool.
        logits: the buffer of the logits, or -1 for a model without a network.
        taken: the columns of the activations.
        variables: the trained ones, in the order of checkpoints.
        offsets: of each variable in the vector of all weights.
        drops: the dropouts, in the order of checkpoints.
    """

    operations: Array
    widths: Array
    has_gradient: Array
    is_cleared: Array
    logits: int
    taken: int
    variables: tuple[Variable, ...]
    offsets: tuple[int, ...]
    drops: tuple[DropMask, ...]


@dataclass
class ProgramBuilder:
    """Collects the operations of a network in their order, and its variables in the order in which they are made."""

    numbers: int
    _widths: list[int] = field(default_factory=list)
    _gradients: list[bool] = field(default_factory=list)
    _rows: list[list[int]] = field(default_factory=list)
    _variables: list[Variable] = field(default_factory=list)
    _drops: list[DropMask] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.number_buffer = self._buffer(self.numbers, has_gradient=False)

    def _buffer(self, width: int, *, has_gradient: bool = True) -> Buffer:
        self._widths.append(width)
        self._gradients.append(has_gradient)
        return Buffer(len(self._widths) - 1, width)

    def buffer(self, width: int) -> Buffer:
        """A new buffer, whose parts operations write."""
        return self._buffer(width)

    def variable(self, values: Array) -> int:
        """A new variable; its number."""
        self._variables.append(Variable(np.ascontiguousarray(values, np.float32)))
        return len(self._variables) - 1

    def take(self, column: int, target: Part) -> None:
        """Copy activations from ``column`` on."""
        self._add(Code.TAKE, None, target, source_column=column)

    def dense(self, source: Part, target: Part, kernel: int, bias: int, activation: Activation) -> None:
        """A dense layer; ``bias``: -1 for none."""
        if activation in IN_PLACE:
            self._add(Code.DENSE, source, target, weight=kernel, bias=bias, kind=activation)
            return
        before = self.buffer(target.width)
        self._add(Code.DENSE, source, whole(before), weight=kernel, bias=bias, kind=Activation.NONE)
        self._add(Code.ACTIVATE, whole(before), target, kind=activation)

    def copy(self, source: Part, target: Part) -> None:
        """Copy columns."""
        self._add(Code.COPY, source, target)

    def pairs(self, vectors: Buffer, dim: int, target: Part) -> None:
        """The dot products of all unordered pairs of an event's vectors: pair (i, j) with j < i at place i (i - 1) / 2 + j."""
        self._add(Code.PAIRS, whole(vectors), target, kind=dim)

    def cross(self, first: Buffer, product: Buffer, crossed: Buffer) -> Buffer:
        """``first * product + crossed``."""
        found = self.buffer(first.width)
        self._add(Code.CROSS, whole(product), whole(found), kind=first.number, other=crossed.number)
        return found

    def times_vector(self, number: int, vector: int, target: Part) -> None:
        """A number of each event times a trained vector."""
        self._add(Code.TIMES_VECTOR, None, target, source_column=number, weight=vector)

    def vector(self, vector: int, target: Part) -> None:
        """A trained vector for each event."""
        self._add(Code.VECTOR, None, target, weight=vector)

    def drop(self, source: Buffer, seed: int, share: float) -> Buffer:
        """The source, some of whose values are zero in training."""
        column = sum(one.width for one in self._drops)
        self._drops.append(DropMask(seed, share, source.width, column))
        target = self.buffer(source.width)
        self._add(Code.DROP, whole(source), whole(target), kind=column)
        return target

    def _add(
        self,
        code: Code,
        source: Part | None,
        target: Part,
        *,
        source_column: int = 0,
        weight: int = -1,
        bias: int = -1,
        kind: int = 0,
        other: int = -1,
    ) -> None:
        number, column, width = (
            (-1, source_column, 0) if source is None else (source.buffer.number, source.column, source.width)
        )
        self._rows.append([code, number, column, width, target.buffer.number, target.column, target.width,
                           weight, bias, kind, 0, other])  # fmt: skip

    def finish(self, logits: Buffer | None, taken: int, order: Sequence[int]) -> Program:
        """The program; ``taken``: the columns of the activations; ``order``: the numbers of the variables in the order of checkpoints."""
        variables = [self._variables[number] for number in order]
        sizes = [one.values.size for one in variables]
        offsets = [0, *np.cumsum(sizes).tolist()]
        place = {number: offsets[k] for k, number in enumerate(order)}
        rows = np.array(self._rows, np.int64).reshape(-1, _COLUMNS)
        for column in (WEIGHT, BIAS):
            rows[:, column] = [place[number] if number >= 0 else -1 for number in rows[:, column].tolist()]
        return Program(
            operations=rows,
            widths=np.array(self._widths, np.int64),
            has_gradient=np.array(self._gradients, bool),
            is_cleared=_mark_first(rows, self._widths),
            logits=-1 if logits is None else logits.number,
            taken=taken,
            variables=tuple(variables),
            offsets=tuple(offsets),
            drops=tuple(self._drops),
        )


def _mark_first(rows: Array, widths: Sequence[int]) -> Array:
    """Mark the operations that write a gradient first, where the others add to it; the buffers whose gradients must begin as zeros."""
    seen, cleared = np.zeros(len(widths), bool), np.zeros(len(widths), bool)
    for row in rows[::-1]:
        if row[CODE] == Code.CROSS:
            # Its two other sources are added to. Of the first layer both are one buffer.
            for number in (int(row[KIND]), int(row[OTHER])):
                cleared[number] |= not seen[number]
                seen[number] = True
        source = int(row[SOURCE])
        if source < 0 or seen[source]:
            continue
        seen[source] = True
        is_whole = row[SOURCE_WIDTH] == widths[source]
        row[IS_FIRST] = is_whole
        cleared[source] |= not is_whole
    return cleared


def whole(buffer: Buffer) -> Part:
    """All columns of a buffer."""
    return Part(buffer, 0, buffer.width)
