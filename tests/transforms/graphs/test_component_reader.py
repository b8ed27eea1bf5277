"""Documents that are read together give what each gives alone."""

from __future__ import annotations

import json
from random import Random

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.support.examples import scaled
from tests.support.mutations import mutated
from tests.transforms.components import INPUTS, TOKENS
from transforms.errors import DataError
from transforms.graphs import graph
from transforms.graphs.canonical import canonicalize
from transforms.graphs.component_reader import ComponentReader
from transforms.graphs.graph import Node, component_document, component_from_document

_TOKENS = (b"true", b"1", b"1.0", b"-0.0", b"0", b'"args"', b"null", b"[]", b"{}", b'"op"', b"NaN", b"[0]", b"2")


def outcome(read: object, document: object) -> str:
    try:
        node = read(document)  # type: ignore[operator]
    except DataError as error:
        return str(error)
    assert isinstance(node, Node)
    return f"{node.identity} {json.dumps(component_document(node))}"


@given(st.lists(st.one_of(INPUTS, TOKENS), min_size=1, max_size=6), st.sampled_from((0, 5, 1000)))
@settings(max_examples=scaled(100))
def test_components_that_share_nodes_are_those_of_their_documents(expressions, kept_nodes):
    reader = ComponentReader(kept_nodes)
    for root in [canonicalize(one.node) for one in expressions] * 2:
        read = reader.read(component_document(root))
        assert read == root
        assert component_document(read) == component_document(root)


@given(st.lists(st.one_of(INPUTS, TOKENS), min_size=1, max_size=3), st.integers(0, 2**32))
@settings(max_examples=scaled(200))
def test_damaged_documents_beside_whole_ones_give_the_errors_of_each_alone(expressions, seed):
    reader, random = ComponentReader(), Random(seed)
    for text in [json.dumps(component_document(canonicalize(one.node))).encode() for one in expressions]:
        for changed in (text, *(mutated(text, random, _TOKENS) for _ in range(8)), text):
            try:
                document = json.loads(changed)
            except ValueError:
                continue
            assert outcome(reader.read, document) == outcome(component_from_document, document)


def test_a_node_is_read_once(monkeypatch):
    read = []
    plain = graph.node_from
    monkeypatch.setattr(
        "transforms.graphs.component_reader.node_from", lambda entry, nodes: read.append(1) or plain(entry, nodes)
    )
    (first, second) = (canonicalize(one.node) for one in _pair())
    reader = ComponentReader()
    assert reader.read(component_document(first)) == first
    before = len(read)
    assert reader.read(component_document(second)) == second
    assert len(read) == before + 1, "they differ in their last node"


def _pair():
    from transforms.expressions.expression import text

    tokens = text("a").lower().unigrams()
    return tokens.hash_buckets(10), tokens.hash_buckets(11)


def test_values_that_are_equal_and_of_other_types_are_other_nodes():
    reader = ComponentReader()
    root = canonicalize(_pair()[0].node)
    whole = component_document(root)
    assert reader.read(whole) == root
    changed = json.loads(json.dumps(whole))
    changed["nodes"][-1]["version"] = True
    assert outcome(reader.read, changed) == outcome(component_from_document, changed)
    assert "version" in outcome(reader.read, changed)
