from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.support.examples import scaled
from tests.transforms.components import INPUTS, TOKENS
from tests.transforms.graphs.test_canonical import LITERALS
from transforms.expressions.expression import boolean, coalesce, float64, maximum, minimum, ragged, text
from transforms.graphs.canonical import canonicalize
from transforms.graphs.fingerprint import fingerprint
from transforms.graphs.graph import Operation, topological
from transforms.graphs.subgraphs import subgraphs

_DENSE_FLAGS = st.recursive(
    st.sampled_from([boolean("a"), boolean("b"), text("c").is_null()]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda flag: ~flag),
    ),
    max_leaves=5,
)
#: One argument may be a list, and the operator is applied to its items.
_LISTED_FLAGS = st.recursive(
    st.just(ragged("flags", "bool")),
    lambda inner: st.one_of(
        st.tuples(inner, _DENSE_FLAGS, _DENSE_FLAGS).map(lambda three: three[0] & (three[1] | three[2]) & three[1]),
        st.tuples(inner, _DENSE_FLAGS).map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda flags: ~flags),
    ),
    max_leaves=3,
)
_FLAGS = st.one_of(_DENSE_FLAGS, _LISTED_FLAGS)
_FOLDED = st.one_of(
    LITERALS.map(lambda constant: coalesce(float64("x"), constant)),
    st.tuples(LITERALS, LITERALS).map(lambda pair: minimum(maximum(float64("x"), pair[0]), pair[1].cast("float64"))),
)


@given(st.one_of(INPUTS, TOKENS, _FLAGS, _FOLDED))
@settings(max_examples=scaled(400))
def test_every_subgraph_of_a_canonical_component_is_canonical(expression):
    root = canonicalize(expression.node)
    for node in topological([root]):
        assert canonicalize(node) == node
        assert fingerprint(node) == node.identity


@given(INPUTS)
@settings(max_examples=scaled(60))
def test_subgraphs_are_the_operations_each_once_and_the_root_last(expression):
    root = canonicalize(expression.node)
    found = subgraphs(root)
    assert len({node.identity for node in found}) == len(found)
    assert {node for node in topological([root]) if isinstance(node, Operation)} == set(found)
    if isinstance(root, Operation):
        assert found[-1] is root


def test_a_column_has_no_subgraphs_and_a_shared_one_is_listed_once():
    assert subgraphs(text("query").node) == ()
    lowered = text("query").lower()
    root = canonicalize((lowered.unigrams() & lowered.split("|")).node)
    assert sorted(node.op for node in subgraphs(root)) == ["intersect", "lower", "split", "unigrams"]
