"""Operators whose parameters are programs or tables, as text: a name, and a version by their content."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from transforms.graphs.encoding import digest

Constant = bool | int | float | str | None | tuple["Constant", ...]

#: The operators, each with the parameter that is the program; for a time zone the changes of its clock.
PROGRAMS = {"python_function": "bundle", "tensorflow_graph": "graph", "in_zone": "starts"}
#: Those whose printed parameters are named by the user.
OWN_KEYWORDS = frozenset({"python_function", "tensorflow_graph"})


def program_params(op: str, params: Mapping[str, object]) -> list[str] | None:
    """The text in place of the parameters in a printed expression; None for an operator with plain parameters."""
    match op:
        case "python_function":
            bundle = str(params["bundle"])
            given = program_keywords(op, params).items()
            return [f"{_name(bundle)} v-{digest(bundle)[:8]}", *(f"{key}={_spelled(value)}" for key, value in given)]
        case "tensorflow_graph":
            return [f"graph v-{digest(params['graph'])[:8]}"]
        case "in_zone":
            changes = [params["starts"], params["offsets_secs"]]
            return [f"clock v-{digest(changes)[:8]}", f"zone={params['zone']!r}"]
        case _:
            return None


def program_keywords(op: str, params: Mapping[str, object]) -> dict[str, Constant]:
    """The other parameters that a pattern may name: constants, or tuples of them.

    For a user's function, those that are not at its defaults.
    """
    if op == "in_zone":
        return {name: cast(Constant, value) for name, value in params.items()}
    if op != "python_function":
        return {}
    return {name: _constant(document) for name, document in json.loads(str(params["keywords"])).items()}


def _name(bundle: str) -> str:
    document = json.loads(bundle)
    ((kind, content),) = document["function"].items()
    return str(document["definitions"][content]["name"] if kind == "definition" else content[-1])


def _constant(document: Any) -> Constant:
    if not isinstance(document, dict):
        return cast(Constant, document)
    ((kind, content),) = document.items()
    if kind == "float":
        return math.nan if content == "nan" else float.fromhex(content)
    return tuple(map(_constant, content))


def _spelled(value: Constant) -> str:
    return f"({', '.join(map(_spelled, value))})" if isinstance(value, tuple) else repr(value)
