"""Golden outputs of each operator version, as of its first release.

A changed output under an unchanged version would make memos wrong without anyone noticing; here it fails. After
raising an operator's version, or adding an operator, record it with

    python -m tests.transforms.operators.test_operator_goldens

which only ever adds: a recorded version is never written again.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.transforms.adversarial import (
    COMPUTABLE,
    VECTOR_SIZE,
    acceptable_types,
    arrow_column,
    computed,
    operands_for,
    operation,
    python_values,
)
from tests.transforms.operators.parameters import GOLDEN_PARAMS, GOLDEN_TEXTS, aligned
from transforms.operators import REGISTRY, Operator
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted, type_document, type_from_document

#: A file an operator, with every version it ever had.
GOLDENS = Path(__file__).parents[1] / "goldens" / "operators"

_INF, _NAN = math.inf, math.nan
WEIGHTS = [1.0, 0.5, -2.0, 0.0, _NAN, 3.25, _INF]
#: What an artifact holds.
CONSTANTS = ["ab", "Red", "Shoes"]
INPUTS: dict[DType, list[Any]] = {
    DType.BOOL: [True, False, None, True, False, True],
    DType.INT64: [0, -7, None, 2**63 - 1, -(2**63), 42, 2**53 + 1, 1_700_000_000],
    DType.FLOAT32: [0.0, -0.0, None, 1.5, _NAN, _INF, -_INF, -1.0, 3.0e38, 0.10000000149011612],
    DType.FLOAT64: [0.0, None, -0.0, 0.1, _NAN, _INF, -_INF, -1.0, 1e308, 2.5e-17, 9.3e18, -0.25, 41.7],
    DType.STRING: ["Red Shoes", None, "", "ab ab", "ΟΔΟΣ İ", "ﬁne\u3000Ａb\u00a0c", "搜索广告", "e\u0301 -12", "+42",
                   "9223372036854775808", "a rather long text of more than sixty-four bytes, so that every hash is used",
                   "👩‍👧 x"],
    DType.TIMESTAMP: [0, -1, None, 1_763_717_486_123_456, 4_102_444_800_000_000, -62_135_596_800_000_000],
}  # fmt: skip


def _rows(operator: str, column_type: ColumnType, argument: int) -> list[Any]:
    """Twelve events; another argument starts elsewhere, and its lists are longer."""
    values = INPUTS[column_type.dtype]
    if column_type.dtype is DType.STRING:
        values = GOLDEN_TEXTS.get(operator, values)
    known = [value for value in values if value is not None]
    match column_type:
        case Dense():
            return [values[(i * (argument + 1) + argument) % len(values)] for i in range(12)]
        case Vector(size=size):
            return [[known[(i + j * (argument + 1)) % len(known)] for j in range(size)] for i in range(12)]
        case Weighted(dtype=dtype):
            items = _rows(operator, Ragged(dtype), argument)
            return [
                [(item, WEIGHTS[(i + j) % len(WEIGHTS)]) for j, item in enumerate(row)] for i, row in enumerate(items)
            ]
    return [[known[(i + j * (argument + 1)) % len(known)] for j in range((i * (argument + 2)) % 5)] for i in range(12)]


def _cases(operator: Operator) -> list[dict[str, Any]]:
    """Every combination of parameters and argument types of the fewest arguments, and all-equal types of three."""
    cases = []
    for params in GOLDEN_PARAMS.get(operator.name, [{}]):
        bound = operator.bind_params(params)
        fewest = min(len(types) for types in acceptable_types(operator, bound))
        for types in acceptable_types(operator, bound):
            if len(types) == fewest or (len(types) == 3 and len(set(types)) == 1):
                cases.append({"params": params, "types": [type_document(column_type) for column_type in types]})
    return cases


def _output(operator: Operator, case: dict[str, Any]) -> list[Any]:
    types = [type_from_document(document) for document in case["types"]]
    columns = [_rows(operator.name, column_type, i) for i, column_type in enumerate(types)]
    events = [aligned(operator.name, row) for row in zip(*columns, strict=True)]
    arrays = [arrow_column([event[i] for event in events], column_type) for i, column_type in enumerate(types)]
    root = operation(operator.name, operands_for(operator, types), case["params"])
    got = computed(root, arrays, 12, CONSTANTS[:VECTOR_SIZE])
    return [_spelled(value) for value in python_values(got, root.type)]


def _spelled(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_spelled(item) for item in value]
    return value.hex() if isinstance(value, float) else value


def _recorded(name: str) -> dict[str, Any]:
    path = GOLDENS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


@pytest.mark.medium
@pytest.mark.parametrize("operator", COMPUTABLE, ids=lambda operator: operator.name)
def test_output_is_what_this_version_always_gave(operator: Operator) -> None:
    key = f"{operator.name}/{operator.version}"
    recorded = _recorded(operator.name).get(key)
    assert recorded is not None, (
        f"no golden output of {key}: run python -m tests.transforms.operators.test_operator_goldens"
    )
    told = [_without_output(case) for case in recorded]
    missing = [case for case in json.loads(json.dumps(_cases(operator))) if case not in told]
    assert not missing, (
        f"{key} takes more than was recorded: run python -m tests.transforms.operators.test_operator_goldens"
    )
    for case in recorded:
        assert _output(operator, case) == case["output"], f"{key} gives something else than it did: raise its version"


def test_no_golden_is_orphaned() -> None:
    assert {path.stem for path in GOLDENS.iterdir()} <= {operator.name for operator in REGISTRY}


def _without_output(case: dict[str, Any]) -> dict[str, Any]:
    return {"params": case["params"], "types": case["types"]}


def _record_missing() -> list[str]:
    GOLDENS.mkdir(parents=True, exist_ok=True)
    return [operator.name for operator in COMPUTABLE if _record(operator)]


def _record(operator: Operator) -> bool:
    goldens = _recorded(operator.name)
    recorded = goldens.setdefault(f"{operator.name}/{operator.version}", [])
    told = [_without_output(case) for case in recorded]
    new = [case for case in json.loads(json.dumps(_cases(operator))) if case not in told]
    recorded += [{**case, "output": _output(operator, case)} for case in new]
    lines = [
        json.dumps(key) + ": [\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]"
        for key, cases in sorted(goldens.items())
    ]
    if new:
        (GOLDENS / f"{operator.name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return bool(new)


if __name__ == "__main__":
    print("recorded:", ", ".join(_record_missing()) or "nothing new")
