"""Parameters of the operators of transforms/operators/functions.py.

The bundles are written out, not made: they are of no Python and no package in particular, and they hold the format still.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st


def _bundle(name: str, body: str, *arguments: str, **names: object) -> str:
    definition = {
        "name": name,
        "source": f"def {name}({', '.join(arguments)}):\n    return {body}",
        "free": {},
        "names": {"pc": {"module": ["pyarrow.compute"]}, **names},
        "defaults": [],
        "keyword_defaults": {},
    }
    document = {
        "format": "headrace.function/1",
        "function": {"definition": 0},
        "definitions": [definition],
        "packages": {},
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _type(kind: str, dtype: str, **more: int) -> str:
    return json.dumps({"kind": kind, "dtype": dtype, **more}, sort_keys=True)


_KNOWN = _bundle("known", "pc.and_(pc.is_valid(first), pc.is_valid(second))", "first", "second")
_REVERSED = _bundle("reversed_text", "pc.utf8_reverse(values)", "values")
_PIECES = _bundle("pieces", "pc.split_pattern(pc.fill_null(values, ''), sep)", "values", "sep")
_NEGATED = _bundle("negated", "pc.negate(values)", "values")

_CASES: list[dict[str, Any]] = [
    {
        "bundle": _KNOWN,
        "takes": (_type("dense", "int64"), _type("weighted", "string")),
        "gives": _type("dense", "bool"),
    },
    {"bundle": _REVERSED, "takes": (_type("dense", "string"),), "gives": _type("dense", "string")},
    {"bundle": _NEGATED, "takes": (_type("dense", "float32"),), "gives": _type("dense", "float64")},
    {
        "bundle": _PIECES,
        "keywords": '{"sep": "a"}',
        "takes": (_type("dense", "string"),),
        "gives": _type("ragged", "string"),
    },
    {
        "bundle": _bundle("same", "values", "values"),
        "takes": (_type("vector", "timestamp", size=3),),
        "gives": _type("vector", "timestamp", size=3),
    },
]


def _graph(inputs: list[tuple[str, str]], nodes: list[dict[str, Any]], way: str, gives: str, *output: str) -> str:
    document = {
        "format": "headrace.tensorflow_graph/1",
        "inputs": [{"as": each, "type": json.loads(column_type)} for each, column_type in inputs],
        "nodes": nodes,
        "functions": {},
        "initializers": [],
        "output": list(output),
        "as": way,
        "type": json.loads(gives),
        "packages": {},
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def _node(op: str, *inputs: str, **attributes: Any) -> dict[str, Any]:
    return {"op": op, "attr": attributes, "input": list(inputs)}


_TWO = {"dtype": "DT_FLOAT", "floatVal": [2.0], "tensorShape": {}}
_FLOAT = {"type": "DT_FLOAT"}
_GRAPHS = [
    _graph([("dense", _type("dense", "string"))], [_node("StringLower", "in0_0:0"),
           _node("StringToHashBucketFast", "n0:0", num_buckets={"i": "1000"})], "dense", _type("dense", "int64"), "n1:0"),
    _graph([("dense", _type("dense", "float32")), ("dense", _type("dense", "float32"))],
           [_node("Const", dtype=_FLOAT, value={"tensor": _TWO}), _node("Mul", "in0_0:0", "n0:0", T=_FLOAT),
            _node("AddV2", "n1:0", "in1_0:0", T=_FLOAT)], "dense", _type("dense", "float32"), "n2:0"),
    _graph([("ragged", _type("ragged", "string"))], [_node("StringUpper", "in0_0:0")], "ragged",
           _type("ragged", "string"), "n0:0", "in0_1:0"),
    _graph([("sparse", _type("dense", "int64"))], [], "sparse", _type("ragged", "int64"), "in0_0:0", "in0_1:0", "in0_2:0"),
    _graph([("sparse", _type("ragged", "float64"))], [_node("Neg", "in0_1:0", T={"type": "DT_DOUBLE"})], "sparse",
           _type("ragged", "float64"), "in0_0:0", "n0:0", "in0_2:0"),
    _graph([("dense", _type("vector", "int64", size=3))], [_node("Neg", "in0_0:0", T={"type": "DT_INT64"})], "dense",
           _type("vector", "int64", size=3), "n0:0"),
]  # fmt: skip
_GRAPH_CASES: list[dict[str, Any]] = [{"graph": graph} for graph in _GRAPHS]

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "python_function": st.sampled_from(_CASES),
    "tensorflow_graph": st.sampled_from(_GRAPH_CASES),
}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {"python_function": _CASES, "tensorflow_graph": _GRAPH_CASES}
