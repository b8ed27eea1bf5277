"""The operators: one file a family, each operator declared once, all of them in ``REGISTRY``."""

from transforms.operators import (
    arithmetic,
    casting,
    comparisons,
    conditional,
    full_pass,
    functions,
    hashing,
    logic,
    lookup,
    missing,
    number_text,
    numeric,
    patterns,
    ragged,
    ranges,
    sequences,
    sets,
    text,
    timestamps,
    tokens,
    web,
    weighted,
    zones,
)
from transforms.operators.declaration import Arg, Imported, Law, Operator, Param
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
        ragged,
        weighted,
        sequences,
        hashing,
        lookup,
        numeric,
        ranges,
        missing,
        casting,
        number_text,
        arithmetic,
        comparisons,
        logic,
        conditional,
        timestamps,
        zones,
        full_pass,
        functions,
    )
    for operator in family.OPERATORS
)

__all__ = ["REGISTRY", "Arg", "Imported", "Law", "Operator", "Param", "Registry"]
