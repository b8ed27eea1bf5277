"""The reference page of the operators, from their declarations. Its examples need TensorFlow."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from types import FunctionType

import headrace
from transforms.errors import TypeMismatch
from transforms.expressions.expression import Expr
from transforms.graphs.graph import Operation, raw_columns, topological
from transforms.operators import REGISTRY, Arg, Operator, Param
from transforms.operators.declaration import Example, Scalar
from transforms.operators.full_pass import PREPROCESSING_OUTPUT
from transforms.types import ColumnType, Dense, DType, Ragged, Vector, Weighted

_SYMBOLS = {
    "__add__": "x + y", "__sub__": "x - y", "__mul__": "x * y", "__truediv__": "x / y", "__and__": "x & y", "__or__": "x | y",
    "__invert__": "~x", "__eq__": "x == y", "__ne__": "x != y", "__lt__": "x < y", "__le__": "x <= y", "__gt__": "x > y",
    "__ge__": "x >= y", "__mod__": "x % y", "__floordiv__": "x // y", "__neg__": "-x", "__abs__": "abs(x)", "__xor__": "x ^ y",
    "__getitem__": "x[y]", "__pow__": "x ** y",
}  # fmt: skip
#: Operators that no method applies by name.
_WRITTEN_OTHERWISE = {
    "python_function": "hr.op(result=...)(function)(x, ...)",
    "preprocessing_output": "hr.from_preprocessing_fn(..., over=...)",
    "tensorflow_graph": "hr.from_preprocessing_fn(...)",
    "vocabulary_lookup": "replaces vocabulary_ids after an analysis",
}
_KINDS = ("Dense", "Ragged", "Weighted", "Vector", "artifact")
#: Values of required parameters for an operator without an example.
_ANY: Mapping[object, Scalar] = {str: "", int: 2, float: 1.0, tuple: ()}
_CELL_MAX = 90
_SIZE = 3  # of vectors, when result types are inferred

HEAD = """# Operators

This page lists the operators of expressions. `make reference` generates it from the declarations; do not edit it.

Every operator has a version, which is part of the fingerprint: an operator with another output has another version.
Unless an entry states otherwise:

* **Null.** A null in any `Dense` argument makes the result null, a list empty, a vector zeros. Items of lists are never
  null. The entry of an operator that **sees nulls** states their effect.
* **Lists.** "Also item by item" means that one of the `Dense` arguments may be a list: the operator applies to each item
  with the row's other values, and items with a null result are left out.
* **int64.** `x + y`, `x - y`, `x * y`, `-x` and `abs(x)` of int64 wrap around at 64 bits, in kernels and in TensorFlow:
  2**63 - 1 plus 1 is -2**63, without an error. Cast large numbers to float64 first, as `x / y` and operations of int64
  with a float do. A cast of a float or text that int64 cannot hold is null.
* **Moments.** Next to a timestamp, a date, a `datetime` or ISO 8601 text is a constant timestamp: `time >= "2026-03-01"`, or
  `hr.moment("2026-03-01T09:00+01:00")` alone. A moment without an offset is UTC; after `in_zone` it is wall-clock time,
  and an offset is refused. Equal moments are one constant with one fingerprint.
* **NaN.** There is one NaN: columns are read, and results are written, with the quiet NaN for every NaN.
* **Laws** define the canonical form: the grouping, order and repetition of arguments that they allow do not change the
  fingerprint, nor does the order of numbers of several types.
* **TensorFlow.** The operator has a twin, an implementation in TensorFlow with equal bits, so a SavedModel can serve it.
* **Cost** is an estimate for one event on one core; measurements replace it.

In the examples every entry of a list is one event, and `hr` is `import headrace as hr`.
"""


def operators_page(operators: Iterable[Operator] = REGISTRY) -> str:
    """The page as Markdown: a table of contents, then the operators by family, as they are declared."""
    families: dict[str, list[Operator]] = {}
    for operator in operators:
        families.setdefault(operator.family, []).append(operator)
    parts = [HEAD, _contents(families)]
    for family, members in families.items():
        parts.append(f"## {_title(family)}\n")
        parts += [_entry(operator) for operator in members]
    return "\n".join(parts)


def _title(family: str) -> str:
    return f"{family.capitalize()} operators"


def _contents(families: Mapping[str, Sequence[Operator]]) -> str:
    lines = ["| family | operators |", "|---|---|"]
    for family, members in families.items():
        links = ", ".join(f"[{operator.name}](#{operator.name})" for operator in members)
        lines.append(f"| [{family}](#{_title(family).lower().replace(' ', '-')}) | {links} |")
    return "\n".join(lines) + "\n"


def _entry(operator: Operator) -> str:
    written = " or ".join(f"`{form}`" for form in forms(operator.name))
    lines = [
        f"### {operator.name}",
        "",
        _linked(operator.summary),
        "",
        f"* **Written** {written}",
        f"* **Takes** {_takes(operator)}. **Gives** {_gives(operator)}",
    ]
    if operator.params:
        lines.append("* **Parameters**")
        lines += [f"    * {_param(param)}" for param in operator.params]
    lines += [f"* {_facts(operator)}", ""]
    if operator.example is not None:
        lines += [*_example(operator.example), ""]
    return "\n".join(lines)


def _linked(text: str) -> str:
    return re.sub(r"\b[a-z-]+\.md\b", r"[\g<0>](\g<0>)", text)


def _takes(operator: Operator) -> str:
    taken = ", ".join(f"`{arg.name}{'...' if arg.variadic else ''}` {_types_of(arg)}" for arg in operator.args)
    return taken + ("; also item by item" if operator.lifts else "")


def _types_of(arg: Arg) -> str:
    groups = (arg.dense, arg.ragged, arg.weighted, arg.vector, arg.constants)
    kinds = [(kind, _dtypes(dtypes)) for kind, dtypes in zip(_KINDS, groups, strict=True) if dtypes]
    if len({dtypes for _, dtypes in kinds}) == 1:
        return f"{' or '.join(kind for kind, _ in kinds)} of {kinds[0][1]}"
    return " or ".join(f"{kind} of {dtypes}" for kind, dtypes in kinds)


def _dtypes(dtypes: Iterable[DType]) -> str:
    found = set(dtypes)
    return "any type" if found == set(DType) else ", ".join(dtype.value for dtype in DType if dtype in found)


def _param(param: Param) -> str:
    default = "required" if param.default is None else f"`{_default(param.default)}` if left out"
    return f"`{param.name}` ({param.kind_name.replace('tuple', 'list')}, {default}): {param.doc}"


def _facts(operator: Operator) -> str:
    laws = sorted(operator.laws)
    facts = [
        f"version {operator.version}",
        f"about {operator.cost_ns:g} ns",
        *([f"laws: {', '.join(laws)}"] if laws else []),
        *(["**sees nulls**"] if operator.nulls == "see" else []),
        "TensorFlow twin" if operator.twin else f"no TensorFlow twin: {operator.untwinned.rstrip('.') or 'not yet'}",
    ]
    return " · ".join(facts)


def _gives(operator: Operator) -> str:
    """The result type: one type, the first argument's, or all types over every combination of argument types."""
    if operator.family == "functions" or operator.name == PREPROCESSING_OUTPUT.name:
        return "the result type of the function"
    results = dict(_signatures(operator))
    distinct = list(dict.fromkeys(_plain(result) for result in results.values()))
    if len(distinct) == 1:
        return f"`{distinct[0]}`"
    if results and all(_plain(types[0]) == _plain(result) for types, result in results.items()):
        return "the type of the first argument"
    return ", ".join(f"`{result}`" for result in sorted(distinct))


def _signatures(operator: Operator) -> Iterator[tuple[tuple[ColumnType, ...], ColumnType]]:
    params = _some_params(operator)
    for types in itertools.product(*(_accepted(arg) for arg in operator.args)):
        try:
            yield types, operator.infer(types, params)
        except TypeMismatch:
            continue


def _accepted(arg: Arg) -> list[ColumnType]:
    types: list[ColumnType] = [kind(dtype) for kind in (Dense, Ragged, Weighted) for dtype in DType]
    return [at for at in [*types, *(Vector(dtype, _SIZE) for dtype in DType)] if arg.takes(at)]


def _some_params(operator: Operator) -> Mapping[str, Scalar]:
    """The parameters of the example, else any: types may depend on them."""
    if operator.example is not None:
        for node in topological([_expression(operator.example.expression).node]):
            if isinstance(node, Operation) and node.op == operator.name:
                return dict(node.params)
    return {param.name: _ANY[param.kind] if param.default is None else param.default for param in operator.params}


def _plain(column_type: ColumnType) -> str:
    """A type with ``n`` for sizes, which depend on parameters or arguments."""
    text = re.sub(r"buckets=\d+", "buckets=n", str(column_type))
    return re.sub(r", \d+\]", ", n]", text)


def _example(example: Example) -> list[str]:
    expression = _expression(example.expression)
    types = {column.name: column.type for column in raw_columns(expression.node)}
    columns = [[_cell(value, types[name]) for value in values] for name, values in example.columns.items()]
    columns.append([_cell(value, expression.type) for value in example.gives])
    rows = [f"| {' | '.join(row)} |" for row in zip(*columns, strict=True)]
    heads = [*(f"{name}: `{types[name]}`" for name in example.columns), f"gives: `{expression.type}`"]
    return ["```python", example.expression, "```", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows]


@cache
def _expression(written: str) -> Expr:
    expression: Expr = eval(written, {"hr": headrace})  # trusted: declared with the operator
    return expression


def _cell(value: object, column_type: ColumnType) -> str:
    text = _spelled(value, column_type.dtype)
    text = text if len(text) <= _CELL_MAX else text[: _CELL_MAX - 1] + "…"
    ticks = "``" if "`" in text else "`"
    return f"{ticks}{text}{ticks}".replace("|", "\\|")


def _spelled(value: object, dtype: DType) -> str:
    match value:
        case None:
            return "null"
        case list():
            return f"[{', '.join(_spelled(item, dtype) for item in value)}]"
        case tuple():
            return f"{_spelled(value[0], dtype)}: {value[1]:g}"
        case str() | bool():
            return json.dumps(value, ensure_ascii=False)
        case int() if dtype is DType.TIMESTAMP:
            return (
                (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)).isoformat(" ").removesuffix("+00:00")
            )
        case _:
            return repr(value)


def forms(name: str) -> list[str]:
    """The methods, symbols and functions that apply an operator; empty if there is none."""
    return [_WRITTEN_OTHERWISE[name]] if name in _WRITTEN_OTHERWISE else list(_forms_by_operator().get(name, ()))


@cache
def _forms_by_operator() -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    methods = {name: getattr(Expr, name) for name in dir(Expr)}
    functions = {f"hr.{name}": getattr(headrace, name) for name in headrace.__all__}
    for name, function in [*methods.items(), *functions.items()]:
        if isinstance(function, FunctionType):
            for operator in _applied_by(function):
                found.setdefault(operator, []).append(_form(name, function))
    return {operator: list(dict.fromkeys(form for form in written if form)) for operator, written in found.items()}


def _applied_by(function: FunctionType) -> list[str]:
    """The operators that a function's code applies, as the first argument of a call."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError):
        return []  # a generated method, such as __init__ of a dataclass
    firsts = (node.args[0] for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    values = (at.value for first in firsts for at in ast.walk(first) if isinstance(at, ast.Constant))
    return [value for value in values if isinstance(value, str) and value in REGISTRY]


def _form(name: str, function: FunctionType) -> str:
    if name.startswith("__"):
        return _SYMBOLS.get(name, "")
    parameters = [at for at in inspect.signature(function).parameters.values() if at.name != "self"]
    written: list[str] = []
    for at in parameters:
        if at.kind is at.KEYWORD_ONLY and not any(text.startswith("*") for text in written):
            written.append("*")
        star = "*" if at.kind is at.VAR_POSITIONAL else "**" if at.kind is at.VAR_KEYWORD else ""
        written.append(star + at.name + ("" if at.default is at.empty else f"={_default(at.default)}"))
    return f"{name if name.startswith('hr.') else f'x.{name}'}({', '.join(written)})"


def _default(value: object) -> str:
    if isinstance(value, tuple) and len(value) > 3:
        return f"({_default(value[0])}, ... {len(value)} in all)"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
