"""Mutated read solutions and components for :mod:`tests.warehouse.solution.test_document_fuzz`."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

import transforms.expressions.expression as hr
from tests.fuzz.bounded import main
from tests.fuzz.mutations import mutated, mutated_text
from tests.warehouse.scenes import events
from transforms.documents import parse_document
from transforms.execution.plan import compile_plan
from transforms.functions import op
from transforms.graphs.graph import component_document, component_from_document
from transforms.render import expression_text
from warehouse import ReadSolution, Storage, read_fragment

#: A seed of no damage at all.
UNDAMAGED = -1


@op(result="string")
def shouted(text: pa.Array, *, mark: str = "!") -> pa.Array:
    """A function of a user's own, for its bundle."""
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(pc.utf8_upper(text), mark, "")


def components() -> list[Any]:
    """Documents of components of every kind of node, parameter and type."""
    query, title, price = hr.text("query"), hr.text("title"), hr.float32("price")
    made = [
        query.unigrams().hash_buckets(100),
        (query.unigrams() & title.unigrams()).hash_buckets(64, salt="s"),
        price.fill_null(0.5).log1p(),
        price.bucketize([0.5, 1.5, 7.25]),
        query.fill_null("x").substring(0, 3).length() + 3,
        hr.if_else(price > 1.0, query, title).lower(),
        shouted(query, mark="?").length(),
        hr.vector("v", "float32", 3),
        hr.cross(query, title, buckets=50),
    ]
    return [component_document(expression.node) for expression in made]


@cache
def _components() -> list[Any]:
    return components()


def component_trial(seed: int) -> None:
    """Decode a damaged component, print it, compile it, and run it."""
    draws = random.Random(seed)
    document = draws.choice(_components())
    if seed == UNDAMAGED:
        root = component_from_document(document)
    elif draws.random() < 0.5:
        root = component_from_document(mutated(document, draws))
    else:
        root = component_from_document(parse_document(mutated_text(document, draws), "component"))
    expression_text(root)
    plan = compile_plan({"it": root})
    table = events(5)
    if {column.name for column in plan.columns} <= set(table.column_names):
        plan.run(table)


@cache
def _solution(home: str) -> Any:
    return json.loads(Path(home, "solution.json").read_text(encoding="utf-8"))


def solution_trial(home: str) -> Callable[[int], None]:
    """Decode a damaged solution, and read what it says."""
    storage = Storage(home)

    def trial(seed: int) -> None:
        draws = random.Random(seed)
        document = _solution(home)
        if seed == UNDAMAGED:
            solution = ReadSolution.from_document(document)
        elif draws.random() < 0.5:
            solution = ReadSolution.from_document(mutated(document, draws))
        else:
            solution = ReadSolution.from_json(mutated_text(document, draws))
        solution.digest()
        for fragment in solution.fragments:
            names = [*(one.column for one in fragment.overlays), *fragment.levels]
            read_fragment(storage, solution, fragment, columns=names)

    return trial


if __name__ == "__main__":
    main({"component": component_trial, "solution": solution_trial(sys.argv[-1])}, UNDAMAGED)
