from __future__ import annotations

import itertools

from hypothesis import given, settings

from tests.transforms.components import INPUTS, TOKENS, rebuilt
from transforms.canonical import canonicalize
from transforms.expression import concat, int64, literal, text
from transforms.fingerprint import fingerprint
from transforms.graph import Literal, Operation, component_document, component_from_document, topological

A, B, C = (text(name).unigrams() for name in "abc")


@given(INPUTS)
@settings(max_examples=200, deadline=None)
def test_canonical_form_is_idempotent(expression):
    once = canonicalize(expression.node)
    assert canonicalize(once) == once


@given(INPUTS)
@settings(max_examples=100, deadline=None)
def test_fingerprint_does_not_depend_on_object_identity(expression):
    assert fingerprint(rebuilt(expression.node)) == fingerprint(expression.node)


@given(INPUTS)
@settings(max_examples=100, deadline=None)
def test_document_round_trip_keeps_the_identity(expression):
    root = canonicalize(expression.node)
    assert component_from_document(component_document(root)) == root


@given(TOKENS, TOKENS, TOKENS)
@settings(max_examples=100, deadline=None)
def test_set_operations_ignore_order_grouping_and_repetition(a, b, c):
    assert fingerprint((a & b & c).node) == fingerprint((c & (b & a) & b).node)
    assert fingerprint((a | b | c).node) == fingerprint((c | (b | a) | a).node)


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
