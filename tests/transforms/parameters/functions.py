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

PARAMS: dict[str, st.SearchStrategy[dict[str, Any]]] = {"python_function": st.sampled_from(_CASES)}

GOLDEN_PARAMS: dict[str, list[dict[str, Any]]] = {"python_function": _CASES}
