from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numba
import pytest
from numba import types

from transforms.kernels import compiled
from transforms.kernels.spans import prefix

_FOLDER = Path(compiled.__file__).parent
_UNCOUNTED = {"uncounted", "inlined"}


def functions() -> list[ast.FunctionDef]:
    found = [node for path in _FOLDER.glob("*.py") for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    marks = [(node, {ast.unparse(mark) for mark in node.decorator_list}) for node in found
             if isinstance(node, ast.FunctionDef)]  # fmt: skip
    return [node for node, names in marks if names & _UNCOUNTED]


@pytest.mark.parametrize("function", functions(), ids=lambda function: function.name)
def test_a_function_without_reference_counts_returns_no_array(function: ast.FunctionDef) -> None:
    assert function.returns is not None
    assert "Array" not in ast.unparse(function.returns)
    slices = [node for node in ast.walk(function) if isinstance(node, ast.Return) and isinstance(node.value, ast.Subscript)
              and isinstance(node.value.slice, ast.Slice)]  # fmt: skip
    assert not slices


def test_it_emits_no_reference_counts() -> None:
    function: Any = prefix
    options = {name: value for name, value in function.targetoptions.items() if name != "nopython"}
    again = numba.njit(**options)(function.py_func)
    signature = (types.Array(types.uint8, 1, "C", readonly=True), types.int64, types.int64)
    again.compile(signature)
    assert "NRT_" not in again.inspect_llvm(again.signatures[0])
