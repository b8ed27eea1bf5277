"""An operator with parameters, argument types and rows from hypothesis, for the laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.transforms.adversarial import (
    ELEMENTS,
    NASTY_TEXT,
    VECTOR_SIZE,
    argument_types,
    arrow_column,
    displaced,
    operands_for,
    operation,
    values_of,
)
from tests.transforms.operators.parameters import aligned, params_of
from transforms.graphs.graph import Artifact, Operation
from transforms.operators import Operator
from transforms.types import ColumnType, DType

_TERMS = st.lists(
    st.sampled_from(NASTY_TEXT) | ELEMENTS[DType.STRING], min_size=VECTOR_SIZE, max_size=VECTOR_SIZE, unique=True
)


@dataclass(frozen=True, slots=True)
class Trial:
    """``arrays`` are slices out of longer ones; ``constants`` is what an artifact holds."""

    operator: Operator
    root: Operation
    types: tuple[ColumnType, ...]
    events: Sequence[tuple[Any, ...]]
    arrays: Sequence[pa.Array]
    constants: Sequence[str]

    @property
    def rows(self) -> int:
        return len(self.events)

    def expected(self) -> list[Any]:
        """What the reference gives."""
        params = dict(self.root.params)
        return [self.operator.evaluate(self.types, event, params) for event in self.events]


def drawn_trial(operator: Operator, data: st.DataObject) -> Trial:
    params = operator.bind_params(data.draw(params_of(operator.name)))
    types = data.draw(argument_types(operator, params))
    operands = operands_for(operator, types)
    constants = data.draw(_TERMS)
    values = [
        st.just(constants) if isinstance(operand, Artifact) else values_of(column_type)
        for operand, column_type in zip(operands, types, strict=True)
    ]
    events = [aligned(operator.name, event) for event in data.draw(st.lists(st.tuples(*values), max_size=6))]
    before, after = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 2))
    arrays = []
    for position, column_type in enumerate(types):
        junk = arrow_column([data.draw(values[position])], column_type)
        arrays.append(displaced(arrow_column([event[position] for event in events], column_type), junk, before, after))
    return Trial(operator, operation(operator.name, operands, params), types, events, arrays, constants)
