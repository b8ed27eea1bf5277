"""Every operator over megabytes of text and lists of 100,000 items: kernel and reference agree."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.transforms.adversarial import (
    COMPUTABLE,
    NASTY_TEXT,
    acceptable_types,
    arrow_column,
    bits,
    computed,
    operands_for,
    operation,
    python_values,
)
from tests.transforms.operators.parameters import GOLDEN_PARAMS
from transforms.operators import Operator
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

TEXT_BYTES, LIST_ITEMS = 1_000_000, 100_000
#: Operators whose result or whose reference grows with the product of their arguments: how much of an extreme they get.
SMALLER: dict[str, float] = {"cross": 0.002, "edit_distance": 0.001}
#: What an artifact holds.
CONSTANTS = ["ab", "Red", "Shoes"]

ITEMS: dict[DType, list[Any]] = {
    DType.BOOL: [True, False, True],
    DType.INT64: [0, -7, 2**63 - 1, -(2**63), 42],
    DType.FLOAT32: [0.0, -0.0, 1.5, math.nan, math.inf, -1.0],
    DType.FLOAT64: [0.1, -0.0, math.nan, -math.inf, 1e308, 41.7],
    DType.STRING: [text for text in NASTY_TEXT if len(text) < 40],
    DType.TIMESTAMP: [0, -1, 1_763_717_486_123_456, 4_102_444_800_000_000],
}


def _text(size_bytes: int) -> str:
    words = "Ab搜索 cd\u3000é👩‍👧 \u200bשלום x://h/p?q=1&r "
    return words * max(1, size_bytes // len(words.encode()))


def _rows(column_type: ColumnType, share: float, position: int) -> list[Any]:
    """An extreme event, then an ordinary and an empty one."""
    items = ITEMS[column_type.dtype]
    long = [items[(i * (position + 1)) % len(items)] for i in range(max(1, int(LIST_ITEMS * share)))]
    match column_type:
        case Dense(dtype=DType.STRING):
            return [_text(int(TEXT_BYTES * share)), "ab cd", None]
        case Dense():
            return [items[-1], items[0], None]
        case Ragged():
            return [long, items[:2], []]
        case Weighted():
            return [[(item, float(i % 7)) for i, item in enumerate(long)], [(items[0], 1.0)], []]
        case Vector(size=size):
            return [(items * size)[:size]] * 3


@pytest.mark.slow
@pytest.mark.parametrize("operator", COMPUTABLE, ids=lambda operator: operator.name)
def test_extreme_events(operator: Operator) -> None:
    params = operator.bind_params(GOLDEN_PARAMS.get(operator.name, [{}])[0])
    share = SMALLER.get(operator.name, 1.0)
    accepted = acceptable_types(operator, params)
    fewest = min(len(types) for types in accepted)
    for types in [types for types in accepted if len(types) == fewest][:3]:
        rows = [_rows(column_type, share, position) for position, column_type in enumerate(types)]
        operands = operands_for(operator, types)
        rows = [
            [CONSTANTS] * 3 if hasattr(operand, "digest") else at for operand, at in zip(operands, rows, strict=True)
        ]
        arrays = [arrow_column(at, column_type) for at, column_type in zip(rows, types, strict=True)]
        root = operation(operator.name, operands, params)
        got = python_values(computed(root, arrays, 3, CONSTANTS), root.type)
        expected = [operator.evaluate(types, event, params) for event in zip(*rows, strict=True)]
        assert bits(got, root.type) == bits(expected, root.type)
