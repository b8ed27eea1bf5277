"""Hypothesis strategies for components."""

from __future__ import annotations

import hypothesis.strategies as st

from transforms.expressions.expression import Expr, coalesce, concat, cross, float32, if_else, int64, text, timestamp
from transforms.graphs.graph import Literal, Node, Operation, fold

TEXTS = st.sampled_from([text(name) for name in ("a", "b", "c")])
TOKENS = st.recursive(
    st.one_of(TEXTS.map(Expr.unigrams), TEXTS.map(lambda t: t.split("|")), TEXTS.map(lambda t: t.lower().unigrams())),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] - pair[1]),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: concat(*parts)),
        st.tuples(inner, st.integers(1, 4)).map(lambda pair: pair[0].head(pair[1])),
        inner.map(Expr.unique),
        inner.map(lambda tokens: tokens.ngrams(2)),
    ),
    max_leaves=6,
)
INTEGERS = st.recursive(
    st.one_of(st.sampled_from([int64("n"), int64("m"), timestamp("t").hour_of_day()]), TOKENS.map(Expr.count)),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, st.integers(-3, 3)).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, inner).map(
            lambda pair: if_else(pair[0] > pair[1], pair[0].cast("int64"), pair[1].cast("int64"))
        ),
    ),
    max_leaves=4,
)
FLOATS = st.one_of(
    st.just(float32("x").fill_null(0).log1p()),
    INTEGERS.map(lambda n: n.cast("float32").clip(-10.0, 10.0)),
    st.just(coalesce(float32("x"), float32("y"))),
)
INPUTS = st.one_of(
    TOKENS.map(lambda tokens: tokens.hash_buckets(97)),
    INTEGERS,
    FLOATS,
    st.tuples(TEXTS, INTEGERS).map(lambda pair: cross(pair[0], pair[1].cast("int64"), buckets=31)),
)


def rebuilt(root: Node) -> Node:
    """The same component made of new objects, as another process would hold it."""

    def combine(node: Node, args: tuple[Node, ...]) -> Node:
        match node:
            case Operation():
                return Operation(node.type, node.op, node.version, args, node.params)
            case Literal():
                return Literal(node.type, node.value)
            case _:
                return type(node)(node.type, node.name)  # type: ignore[attr-defined,call-arg]

    return fold(root, combine)
