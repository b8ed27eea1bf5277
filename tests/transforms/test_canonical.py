from __future__ import annotations

import itertools
import math
import struct

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import given, settings

from tests.transforms.components import INPUTS, TOKENS, rebuilt
from transforms.canonical import canonicalize
from transforms.expression import boolean, coalesce, concat, float64, int64, literal, ragged, text
from transforms.fingerprint import fingerprint
from transforms.graph import Literal, Operation, component_document, component_from_document, topological
from transforms.plan import compile_plan

A, B, C = (text(name).unigrams() for name in "abc")


@given(INPUTS)
@settings(max_examples=200)
def test_canonical_form_is_idempotent(expression):
    once = canonicalize(expression.node)
    assert canonicalize(once) == once


@given(INPUTS)
@settings(max_examples=100)
def test_fingerprint_does_not_depend_on_object_identity(expression):
    assert fingerprint(rebuilt(expression.node)) == fingerprint(expression.node)


@given(INPUTS)
@settings(max_examples=100)
def test_document_round_trip_keeps_the_identity(expression):
    root = canonicalize(expression.node)
    assert component_from_document(component_document(root)) == root


@given(TOKENS, TOKENS, TOKENS)
@settings(max_examples=100)
def test_set_operations_ignore_order_grouping_and_repetition(a, b, c):
    assert fingerprint((a & b & c).node) == fingerprint((c & (b & a) & b).node)
    assert fingerprint((a | b | c).node) == fingerprint((c | (b | a) | a).node)


def test_items_that_are_dropped_on_the_way_stay_dropped():
    flags, a, b = ragged("flags", "bool"), boolean("a"), boolean("b")
    batch = pa.table({"flags": [[True, False]] * 3, "a": [None, False, True], "b": pa.array([False, None, None])})
    for expression in (flags & a & b, flags | a | b, flags & (a & b), (flags & a) | b):
        plain, canonical = (compile_plan({"x": node}) for node in (expression.node, canonicalize(expression.node)))
        assert canonical.run(batch).columns["x"].equals(plain.run(batch).columns["x"]), expression
    assert fingerprint((flags & a & b).node) != fingerprint((flags & (a & b)).node)


def test_order_matters_where_it_means_something():
    differing = {fingerprint(concat(*order).node) for order in itertools.permutations([A, B, C])}
    assert len(differing) == 6
    assert fingerprint((A - B).node) != fingerprint((B - A).node)


def test_a_set_of_one_thing_twice_stays_a_set():
    # intersect(a, a) sorts and drops repeats, so it is not a.
    assert fingerprint((A & A).node) != fingerprint(A.node)
    assert fingerprint((A & A & A).node) == fingerprint((A & A).node)


def test_identities_are_dropped():
    n = int64("n")
    assert canonicalize(n.cast("int64").node) == n.node
    assert canonicalize(concat(A).node) == A.node
    assert fingerprint((A & B).unique().node) == fingerprint((A & B).node)
    assert fingerprint(A.head(5).head(3).node) == fingerprint(A.head(3).node)
    assert fingerprint(A.head(3).head(5).node) == fingerprint(A.head(3).node)
    assert fingerprint(text("a").lower().lower().node) == fingerprint(text("a").lower().node)


def test_constants_are_folded():
    folded = canonicalize((literal(2) + literal(3)).node)
    assert isinstance(folded, Literal)
    assert folded.value == 5
    assert fingerprint((int64("n") + (literal(2) + literal(3))).node) == fingerprint((int64("n") + 5).node)


LITERALS = st.recursive(
    st.one_of(
        st.integers(-(2**63), 2**63 - 1).map(literal),
        st.sampled_from([0, 1, 4, 2**53 + 1, 2**62]).map(literal),
        st.floats(width=64).map(literal),
        st.sampled_from([0.1, -0.0, 1e300, 16777217.0]).map(literal),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] + pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] * pair[1]),
        st.tuples(inner, inner).map(lambda pair: coalesce(*pair)),
        st.tuples(inner, st.sampled_from(["float32", "float64", "int64"])).map(lambda pair: pair[0].cast(pair[1])),
    ),
    max_leaves=5,
)


@given(LITERALS)
@settings(max_examples=300)
def test_folding_constants_changes_no_value(constant):
    expression = coalesce(float64("x"), constant)
    batch = pa.table({"x": pa.array([None, 1.5, None], pa.float64())})
    plan = compile_plan({"written": expression.node, "canonical": canonicalize(expression.node)})
    columns = plan.run(batch).columns
    assert columns["written"].buffers()[1].to_pybytes() == columns["canonical"].buffers()[1].to_pybytes()


def test_every_nan_is_one_constant():
    (payload,) = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))
    for constant in (literal(payload), literal(0) + literal(payload)):
        expression = coalesce(float64("x"), constant)
        assert fingerprint(expression.node) == fingerprint(coalesce(float64("x"), literal(math.nan)).node)
        plan = compile_plan({"written": expression.node, "canonical": canonicalize(expression.node)})
        for column in plan.run(pa.table({"x": pa.array([None], pa.float64())})).columns.values():
            assert column.buffers()[1].to_pybytes() == struct.pack("<d", math.nan)


def test_a_rounded_constant_is_not_the_constant():
    assert fingerprint(literal(0.1).cast("float32").cast("float64").node) != fingerprint(literal(0.1).node)


def test_shared_subexpressions_are_one_node():
    lowered = text("a").lower()
    root = canonicalize(concat(lowered.unigrams(), text("a").lower().split("|")).node)
    lowers = [node for node in topological([root]) if isinstance(node, Operation) and node.op == "lower"]
    assert len(lowers) == 1


def test_depth_is_no_limit():
    total = int64("n")
    for _ in range(5_000):
        total = total.scale(2.0, 1.0) if total.type.dtype == "float32" else total.cast("float32").scale(2.0, 1.0)
    assert len(fingerprint(total.node)) == 64
