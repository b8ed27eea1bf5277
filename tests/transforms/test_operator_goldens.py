"""Golden outputs: what each operator version gave when it was first released, for all time.

A changed output under an unchanged version would make memos wrong without anyone noticing; here it fails. After
raising an operator's version, or adding an operator, record it with

    python -m tests.transforms.test_operator_goldens

which only ever adds: a recorded version is never written again.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.transforms.adversarial import acceptable_types, arrow_column, columns_for, computed, operation, python_values
from transforms.operators import REGISTRY, Operator
from transforms.types import ColumnType, DType, Ragged, type_document, type_from_document

GOLDENS = Path(__file__).parent / "goldens" / "operators.json"

PARAMS: dict[str, list[dict[str, Any]]] = {
    "split": [{"sep": " "}, {"sep": "ab"}],
    "ngrams": [{"n": 1, "joiner": " "}, {"n": 2, "joiner": " "}, {"n": 3, "joiner": "·"}],
    "char_ngrams": [{"n": 1}, {"n": 3}],
    "head": [{"n": 2}],
    "hash_buckets": [{"buckets": 1000}, {"buckets": 2**63 - 1, "salt": "né"}],
    "cross": [{"buckets": 1_000_003}],
    "clip": [{"low": -1.0, "high": 2.0}, {}],
    "scale": [{"factor": 0.1, "offset": 0.3}],
    "bucketize": [{"boundaries": (-1.0, 0.0, 0.1, 3.0)}],
    "fill_null": [{"value": 3}, {"value": 0.5}, {"value": "none"}, {"value": True}],
    "cast": [{"dtype": dtype.value} for dtype in DType],
}

_INF, _NAN = math.inf, math.nan
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


def _rows(column_type: ColumnType, argument: int) -> list[Any]:
    """Twelve events; another argument starts elsewhere, and its lists are longer."""
    values = INPUTS[column_type.dtype]
    at = [values[(i * (argument + 1) + argument) % len(values)] for i in range(12)]
    if not isinstance(column_type, Ragged):
        return at
    known = [value for value in values if value is not None]
    return [[known[(i + j * (argument + 1)) % len(known)] for j in range((i * (argument + 2)) % 5)] for i in range(12)]


def _cases(operator: Operator) -> list[dict[str, Any]]:
    """Every combination of parameters and argument types of the fewest arguments, and all-equal types of three."""
    cases = []
    for params in PARAMS.get(operator.name, [{}]):
        bound = operator.bind_params(params)
        fewest = min(len(types) for types in acceptable_types(operator, bound))
        for types in acceptable_types(operator, bound):
            if len(types) == fewest or (len(types) == 3 and len(set(types)) == 1):
                cases.append({"params": params, "types": [type_document(column_type) for column_type in types]})
    return cases


def _output(operator: Operator, case: dict[str, Any]) -> list[Any]:
    types = [type_from_document(document) for document in case["types"]]
    arrays = [arrow_column(_rows(column_type, i), column_type) for i, column_type in enumerate(types)]
    root = operation(operator.name, columns_for(types), case["params"])
    return [_spelled(value) for value in python_values(computed(root, arrays, 12), root.type)]


def _spelled(value: Any) -> Any:
    if isinstance(value, list):
        return [_spelled(item) for item in value]
    return value.hex() if isinstance(value, float) else value


def _recorded() -> dict[str, Any]:
    return json.loads(GOLDENS.read_text(encoding="utf-8")) if GOLDENS.exists() else {}


@pytest.mark.parametrize("operator", list(REGISTRY), ids=lambda operator: operator.name)
def test_output_is_what_this_version_always_gave(operator: Operator) -> None:
    key = f"{operator.name}/{operator.version}"
    recorded = _recorded().get(key)
    assert recorded is not None, f"no golden output of {key}: run python -m tests.transforms.test_operator_goldens"
    assert [{"params": case["params"], "types": case["types"]} for case in recorded] == json.loads(
        json.dumps(_cases(operator))
    ), f"the cases of {key} changed"
    for case in recorded:
        assert _output(operator, case) == case["output"], f"{key} gives something else than it did: raise its version"


def test_no_golden_is_orphaned() -> None:
    assert {key.partition("/")[0] for key in _recorded()} <= {operator.name for operator in REGISTRY}


def _record_missing() -> list[str]:
    goldens = _recorded()
    missing = [operator for operator in REGISTRY if f"{operator.name}/{operator.version}" not in goldens]
    for operator in missing:
        cases = _cases(operator)
        goldens[f"{operator.name}/{operator.version}"] = [{**case, "output": _output(operator, case)} for case in cases]
    GOLDENS.parent.mkdir(exist_ok=True)
    lines = [
        json.dumps(key) + ": [\n" + ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "\n]"
        for key, cases in sorted(goldens.items())
    ]
    GOLDENS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return [operator.name for operator in missing]


if __name__ == "__main__":
    print("recorded:", ", ".join(_record_missing()) or "nothing new")
