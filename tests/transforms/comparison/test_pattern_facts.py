from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import headrace as hr
from tests.support.examples import scaled
from tests.transforms.components import INPUTS, TOKENS
from transforms.comparison.pattern import Pattern, find
from transforms.comparison.pattern_facts import MOST_CHARACTERS, PatternFacts, node_facts, pattern_facts
from transforms.comparison.pattern_terms import Anything, Call, ColumnTerm, Constant, Term
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Literal, Node, Operation, RawColumn
from transforms.graphs.subgraphs import subgraphs


def facts_of(text: str) -> PatternFacts:
    return pattern_facts(Pattern.parse(text))


def says(facts: PatternFacts, root: Node) -> bool:
    """Whether each needed node is in a component."""
    known = [node_facts(node) for node in subgraphs(root)]
    return all(any(needed <= had for had in known) for needed in facts.nodes)


@st.composite
def terms_of(draw: st.DrawFn, node: Node) -> Term:
    """A term like a node, with less in it or with another value, name or order."""
    if draw(st.integers(0, 3)) == 0:
        return Anything()
    match node:
        case RawColumn(name=name):
            return ColumnTerm(draw(st.sampled_from((name, name, "b"))))
        case Literal(value=value):
            return Constant(draw(st.sampled_from((value, value, 1, 2.0, True))))
        case Operation():
            args = [draw(terms_of(arg)) for arg in node.args]
            if draw(st.integers(0, 4)) == 0:
                args = draw(st.permutations(args))
            further = draw(st.booleans())
            kept = args[: draw(st.integers(0, len(args)))] if further else args
            params = [(name, Constant(draw(st.sampled_from((value, value, 2))))) for name, value in node.params
                      if not isinstance(value, tuple) and draw(st.booleans())]  # fmt: skip
            version = draw(st.sampled_from((None, None, node.version)))
            name = draw(st.sampled_from((node.op, node.op, node.op, None)))
            return Call(name, version, tuple(kept), () if name is None else tuple(params), further)
        case _:
            return Anything()


@given(st.data(), st.lists(st.one_of(INPUTS, TOKENS), min_size=1, max_size=4))
@settings(max_examples=scaled(600))
def test_components_with_a_match_have_the_facts_and_whole_facts_say_where_it_matches(data, expressions) -> None:
    roots = [canonicalize(one.node) for one in expressions]
    like = data.draw(st.sampled_from([node for root in roots for node in subgraphs(root)] or roots))
    pattern = Pattern(data.draw(terms_of(like)))
    facts = pattern_facts(pattern)
    for root in roots:
        is_found = bool(find(pattern, root))
        assert says(facts, root) or not is_found, (pattern.text, facts)
        if facts.is_whole:
            (needed,) = facts.nodes
            assert is_found == any(needed <= node_facts(node) for node in subgraphs(root)), (pattern.text, facts)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("hash_buckets(_, buckets=1000)", {"hash_buckets.buckets=1000"}),
        ("hash_buckets(_, buckets=1000.0)", {"hash_buckets.buckets=1000"}),
        ("unigrams(lower(_))", {"unigrams(*=lower)"}),
        ("lower(query)", {"lower(*=column 'query')"}),
        ("subtract(_, 1.5)", {"subtract(1=value 1.5)"}),
        ("multiply(_, 2)", {"multiply(*=value 2)"}),
        ("intersect(unigrams(_), ...)", {"intersect(*=unigrams)"}),
        ("intersect(unigrams(_), _)", {"intersect(*=unigrams)", "intersect#2"}),
        ("concat(_, unigrams(_))", {"concat(1=unigrams)", "concat#2"}),
    ],
)
def test_one_node_with_these_facts_is_a_match(text: str, nodes: set[str]) -> None:
    assert facts_of(text) == PatternFacts((frozenset(nodes),), is_whole=True)


@pytest.mark.parametrize(
    "text",
    [
        "unigrams(lower(query))",  # two nodes
        "intersect(unigrams(_), lower(_))",  # one argument may be both
        "unigrams(head(_, n=2))",
        "unigrams(_(_))",
        "lower@7(query)",
        "_(lower(query))",
        "equal(_, moment('2026-03-01'))",
    ],
)
def test_graphs_are_read_for_patterns_of_several_nodes(text: str) -> None:
    assert not facts_of(text).is_whole


def test_an_operator_alone_has_no_facts() -> None:
    assert facts_of("lower(_)") == PatternFacts((), is_whole=False)
    assert facts_of("_(_)").nodes == ()
    assert facts_of("query").nodes == ()


def test_a_long_fact_is_as_long_as_a_digest() -> None:
    root = canonicalize((hr.text("query") == "x" * 1000).node)
    assert all(len(fact) <= MOST_CHARACTERS for node in subgraphs(root) for fact in node_facts(node))
    assert says(facts_of(f"equal(_, {'x' * 1000!r})"), root)
    assert not says(facts_of(f"equal(_, {'x' * 999!r})"), root)


def test_texts_that_a_database_does_not_store_are_escaped() -> None:
    root = canonicalize((hr.text("query") == "a\0\n").node)
    assert all(fact.isprintable() for node in subgraphs(root) for fact in node_facts(node))
