"""User-defined functions as operators; :mod:`transforms.functions` bundles and runs them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache

from transforms.documents import parse_document
from transforms.errors import TypeMismatch
from transforms.operators.declaration import Arg, Example, Imported, Operator, Param, Params, Scalar, Types
from transforms.operators.signatures import ANY
from transforms.types import ColumnType, type_document, type_from_document

_RUN, _TRACED = "transforms.functions.run", "transforms.twins.traced"


@lru_cache(maxsize=1024)
def _type_of(text: str) -> ColumnType:
    return type_from_document(parse_document(text, "column type"))


@lru_cache(maxsize=1024)
def _names_in(text: str) -> frozenset[str] | None:
    """The names in a JSON object; None for other text."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return frozenset(document) if isinstance(document, dict) else None


def _json_with(*names: str) -> Callable[[Scalar], str]:
    """A check for JSON objects that have these names, in each text of a tuple."""

    def check(value: Scalar) -> str:
        texts = value if isinstance(value, tuple) else (value,)
        found = [_names_in(str(text)) for text in texts]
        return (
            "" if all(each is not None and each.issuperset(names) for each in found) else "JSON as Headrace writes it"
        )

    return check


def _without_buckets(column_type: ColumnType) -> dict[str, object]:
    document = type_document(column_type)
    document.pop("buckets", None)
    return document


def _gives(types: Types, params: Params) -> ColumnType:
    takes = params["takes"]
    assert isinstance(takes, tuple)
    expected = [_type_of(str(text)) for text in takes]
    found = [_without_buckets(column_type) for column_type in types]
    if found != [_without_buckets(column_type) for column_type in expected]:
        raise TypeMismatch("a function must be given the types that it was applied to",
                           value=", ".join(map(str, types)), allowed=", ".join(map(str, expected)),
                           next_step="apply the function to the expressions again")  # fmt: skip
    return _type_of(str(params["gives"]))


PYTHON_FUNCTION = Operator(
    name="python_function",
    version=1,
    family="functions",
    summary="Your own function over Arrow arrays, made an operator by hr.op; see functions.md.",
    args=(Arg("columns", dense=ANY, ragged=ANY, weighted=ANY, vector=ANY, variadic=True),),
    result=_gives,
    reference=Imported(_RUN, "one_event"),
    kernel=Imported(_RUN, "python_function"),
    params=(
        Param(
            "bundle",
            str,
            check=_json_with("function", "definitions"),
            doc="the function and all it reaches, written down by hr.op",
        ),
        Param("keywords", str, "{}", check=_json_with(), doc="its parameters that are not at their defaults, as JSON"),
        Param(
            "takes",
            tuple,
            check=_json_with("kind", "dtype"),
            item=str,
            doc="the types of the columns it is given, as JSON each",
        ),
        Param("gives", str, check=_json_with("kind", "dtype"), doc="the type of its result, as JSON"),
    ),
    nulls="see",
    cost_ns=200,
    untwinned="a Python function is not TensorFlow",
    example=Example(
        'hr.op(result="string")(__import__("pyarrow").compute.utf8_reverse)(hr.text("query"))',
        {"query": ["abc", None]},
        ["cba", None],
    ),
)


@lru_cache(maxsize=1024)
def _graph(text: str) -> tuple[tuple[dict[str, object], ...], ColumnType]:
    """The types that a graph takes, and the one it gives."""
    whole = parse_document(text, "traced graph").fields(("type", "inputs"), None)
    takes = [entry.fields(("type",), None).at("type") for entry in whole.at("inputs").items()]
    return tuple(map(_without_buckets, map(type_from_document, takes))), type_from_document(whole.at("type"))


def _graph_gives(types: Types, params: Params) -> ColumnType:
    takes, gives = _graph(str(params["graph"]))
    if [_without_buckets(column_type) for column_type in types] != list(takes):
        raise TypeMismatch(
            "a TensorFlow graph must be given the types that it was traced for",
            value=", ".join(map(str, types)),
            allowed=", ".join(str(type_from_document(document)) for document in takes),
            next_step="trace the function again for these columns",
        )
    return gives


TENSORFLOW_GRAPH = Operator(
    name="tensorflow_graph",
    version=1,
    family="functions",
    summary="One output of a tf.Transform preprocessing_fn, traced by hr.from_preprocessing_fn; see functions.md.",
    args=(Arg("columns", dense=ANY, ragged=ANY, vector=ANY, variadic=True),),
    result=_graph_gives,
    reference=Imported(_TRACED, "one_event"),
    kernel=Imported(_TRACED, "tensorflow_graph"),
    params=(
        Param(
            "graph",
            str,
            check=_json_with("inputs", "type"),
            doc="the canonical graph, which hr.from_preprocessing_fn writes",
        ),
    ),
    nulls="see",
    cost_ns=500,
    twin=Imported(_TRACED, "twin"),
    example=Example(
        'hr.from_preprocessing_fn(lambda inputs: {"it": __import__("tensorflow").strings.lower(inputs["query"])}, '
        '{"query": hr.text("query")})["it"]',
        {"query": ["Red", None]},
        ["red", None],
    ),
)

OPERATORS: tuple[Operator, ...] = (PYTHON_FUNCTION, TENSORFLOW_GRAPH)
