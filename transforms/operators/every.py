"""All operators, by name."""

from __future__ import annotations

from transforms.operators import (
    arithmetic,
    casting,
    comparisons,
    conditional,
    full_pass,
    functions,
    hashing,
    lists,
    logic,
    lookup,
    missing,
    number_text,
    numbers,
    patterns,
    ranges,
    sequences,
    sets,
    text,
    times,
    tokens,
    web,
    weighted,
    zones,
)
from transforms.operators.registry import Registry

#: Every operator that exists, by name.
REGISTRY = Registry(
    operator
    for family in (
        text,
        tokens,
        patterns,
        web,
        sets,
        lists,
        weighted,
        sequences,
        hashing,
        lookup,
        numbers,
        ranges,
        missing,
        casting,
        number_text,
        arithmetic,
        comparisons,
        logic,
        conditional,
        times,
        zones,
        full_pass,
        functions,
    )
    for operator in family.OPERATORS
)
