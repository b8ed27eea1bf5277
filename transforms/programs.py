"""Operators whose parameters are whole programs, as people read them: a name, and a version that the text gives it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from transforms.encoding import digest


def program_params(op: str, params: Mapping[str, object]) -> list[str] | None:
    """What stands for the parameters in a printed expression; None for an operator whose parameters are plain."""
    match op:
        case "python_function":
            bundle = str(params["bundle"])
            given = json.loads(str(params["keywords"])).items()
            return [f"{_name(bundle)} v-{digest(bundle)[:8]}", *(f"{key}={_spelled(value)}" for key, value in given)]
        case "tensorflow_graph":
            return [f"graph v-{digest(params['graph'])[:8]}"]
        case _:
            return None


def _name(bundle: str) -> str:
    document = json.loads(bundle)
    ((kind, content),) = document["function"].items()
    return str(document["definitions"][content]["name"] if kind == "definition" else content[-1])


def _spelled(value: object) -> str:
    if not isinstance(value, dict):
        return repr(value)
    ((kind, content),) = value.items()
    if kind == "float":
        return repr(float("nan") if content == "nan" else float.fromhex(content))
    return f"({', '.join(map(_spelled, content))})"
