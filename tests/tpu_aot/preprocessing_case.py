"""The features of the test of host preprocessing, for its two processes."""

from __future__ import annotations

from trainer.tables import SGD, FeatureSpec, TableSpec

EVENTS, SEED = 16, 5
STACK = "one_three_two"


def features() -> list[FeatureSpec]:
    """Tables of one stack, one of them shared; every combiner, and a sequence."""
    one = TableSpec("one", 1000, 8, SGD(0.1), "sum")
    two = TableSpec("two", 500, 7, SGD(0.1), "mean")
    three = TableSpec("three", 300, 5, SGD(0.1), "sqrtn")
    return [
        FeatureSpec("a", one),
        FeatureSpec("b", two),
        FeatureSpec("c", one),
        FeatureSpec("d", three),
        FeatureSpec("e", two, 3),
    ]
