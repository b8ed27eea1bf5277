"""The requests of a clean process: describe a rebuilt function, or run it over some rows."""

from __future__ import annotations

import json
import os
import select
import sys

import pyarrow as pa

from transforms.errors import HeadraceError
from transforms.functions.arrow_streams import arrays_of, bytes_of
from transforms.functions.clean_process import Message, write_message
from transforms.functions.description import Line, describe
from transforms.functions.rebuild import Rebuilt, parsed
from transforms.functions.run import call_checked, column_type_of


def main(idle_secs: float) -> None:
    """Serve standard input until it ends or no request comes for ``idle_secs``."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output that a function prints is not an answer
    while select.select([requests], [], [], idle_secs)[0] and (line := requests.readline()):
        request = json.loads(line)
        write_message(answers, *answer(request, requests.read(request["payload_bytes"])))


def answer(request: Message, payload: bytes) -> tuple[Message, bytes]:
    """The answer to a request; ``error`` is the function's exception."""
    actions = {"describe": _describe, "run": _run}
    try:
        return actions[request["do"]](request, payload)
    except HeadraceError as error:
        return {"error": f"{error.what}: {error.value}" if error.value else error.what}, b""
    except Exception as error:  # of any kind: a class's own code runs when it is rebuilt
        return {"error": f"{type(error).__name__}: {error}"}, b""


def _describe(request: Message, payload: bytes) -> tuple[Message, bytes]:
    return {"lines": _lines(request["bundle"], Rebuilt(request["bundle"]))}, b""


def _lines(bundle: str, made: Rebuilt) -> list[Line]:
    return describe(parsed(bundle), made.root, made.objects, made.namespaces, is_rebuilt=True)


def _run(request: Message, payload: bytes) -> tuple[Message, bytes]:
    """The result over parts of the rows in the requested order, and the reached values that the function changed."""
    arrays = arrays_of(payload)
    made = Rebuilt(request["bundle"])
    before = _lines(request["bundle"], made)
    gives = column_type_of(request["gives"])
    found: dict[int, pa.Array] = {}
    for first, end in request["parts"]:
        rows = [array.slice(first, end - first) for array in arrays]
        found[first] = call_checked(made.root, rows, request["bundle"], request["keywords"], gives)
    after = _lines(request["bundle"], made)
    changed = next((old[0] for old, new in zip(before, after, strict=False) if old != new), "")
    if not changed and len(before) != len(after):
        changed = "what it reaches"
    return {"changed": changed}, bytes_of([pa.concat_arrays([found[first] for first in sorted(found)])])
