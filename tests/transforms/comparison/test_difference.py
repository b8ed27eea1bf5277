from __future__ import annotations

import json
import random

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given, settings

import headrace as hr
from tests.support.examples import scaled
from tests.transforms.adversarial import operation
from tests.transforms.components import INPUTS, TOKENS, rebuilt
from transforms.comparison.alignment import WORK_MAX, Alignment, is_commutative
from transforms.comparison.difference import GraphChange, GraphChangeKind, difference, distance, nearest_component
from transforms.expressions.expression import Expr
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Artifact, Literal, Node, Operation, RawColumn, fold, topological
from transforms.types import Dense, DType, Vector

QUERY, TITLE = hr.text("query"), hr.text("title")
PRICE = hr.float32("price")


def between(before: Expr, after: Expr) -> tuple[str, ...]:
    return difference(canonicalize(before.node), canonicalize(after.node)).sentences


def test_every_kind_of_change_is_one_sentence_that_names_both_sides():
    tokens = QUERY.unigrams()
    old = Operation(tokens.node.type, "unigrams", 7, tokens.node.args)
    cases = [
        (tokens.hash_buckets(1000), tokens.hash_buckets(100), "hash_buckets: buckets 100 instead of 1000"),
        (tokens, QUERY.lower().unigrams(), "lower() inserted around column query"),
        (QUERY.lower().unigrams(), tokens, "lower() removed around column query"),
        (tokens, tokens.ngrams(2), "ngrams(n=2) inserted around unigrams(query)"),
        (tokens, hr.concat(TITLE.unigrams(), tokens), "concat(unigrams(title), _) inserted around unigrams(query)"),
        (tokens, TITLE.unigrams(), "column title instead of query in unigrams(title)"),
        (hr.int64("n").fill_null(0), hr.int64("n").fill_null(1), "fill_null: value 1 instead of 0"),
        (PRICE + 1, PRICE + 2, "literal 2.0 instead of 1.0 in add(2.0, price)"),
        (PRICE.floor(), PRICE.ceil(), "ceil instead of floor in ceil(price)"),
        (Expr(old), tokens, "unigrams: version 1 instead of 7"),
        (hr.column("n", "int64").is_null(), hr.column("n", "bool").is_null(),
         "column n: Dense[bool] instead of Dense[int64]"),
        (hr.concat(tokens, TITLE.split("|")), hr.concat(tokens, tokens, TITLE.split("|")),
         "concat: argument unigrams(query) added"),
        (tokens & TITLE.unigrams() & QUERY.split("|"), TITLE.unigrams() & tokens,
         "intersect: argument split(query, sep='|') removed"),
        (tokens.hash_buckets(10), PRICE.log1p(), "log1p(price) instead of hash_buckets(unigrams(query), buckets=10)"),
        (hr.text("a").lower(), hr.text("a b").lower(), "column column('a b') instead of a in lower(column('a b'))"),
    ]  # fmt: skip
    for before, after, sentence in cases:
        assert between(before, after) == (sentence,)


def test_differences_of_artifacts_types_and_argument_order_are_reported():
    terms = [Artifact(Vector(DType.STRING, 3), digest * 32) for digest in ("ab", "cd")]
    before, after = (operation("vocabulary_lookup", [QUERY.node, each], {"oov_buckets": 1}) for each in terms)
    [change] = difference(before, after).changes
    assert change.kind is GraphChangeKind.ARTIFACT
    assert change.sentence.startswith("artifact cdcdcdcdcdcd instead of abababababab in vocabulary_lookup(query, ")
    narrow, wide = (Operation(Dense(dtype), "abs", 1, (PRICE.node,)) for dtype in ("float32", "float64"))
    assert difference(narrow, wide).sentences == ("abs: result Dense[float64] instead of Dense[float32]",)
    x, y = hr.float64("x").node, hr.float64("y").node
    one, other = (Operation(x.type, "add", 1, args) for args in ((x, y), (y, x)))
    [change] = difference(one, other).changes
    assert change.kind is GraphChangeKind.ORDER
    assert change.sentence == "add: arguments (y, x) instead of (x, y)"
    assert difference(Literal(Dense("float32"), 1.0), Literal(Dense("float64"), 1.0)).sentences == (
        "literal 1.0 (Dense[float64]) instead of 1.0 (Dense[float32])",
    )


def test_values_that_are_too_long_to_show_have_different_texts():
    before, after = QUERY.replace("x" * 200 + "a", ""), QUERY.replace("x" * 200 + "b", "")
    [change] = difference(before.node, after.node).changes
    assert change.before != change.after
    assert change.before in change.sentence
    assert change.after in change.sentence
    assert len(change.sentence) < 250


def test_change_of_a_shared_node_is_one_change():
    def twice(tokens: Expr) -> Expr:
        return hr.concat(tokens.ngrams(2), tokens.head(3), tokens).hash_buckets(10)

    assert between(twice(QUERY.unigrams()), twice(QUERY.lower().unigrams())) == (
        "lower() inserted around column query",
    )
    assert between(twice(QUERY.unigrams()), twice(QUERY.split("|"))) == (
        "split instead of unigrams in ngrams(split(query, sep='|'), n=2)",
    )


def test_document_is_json_with_both_sides_and_the_sentence():
    before, after = QUERY.unigrams().hash_buckets(1000).node, QUERY.lower().unigrams().hash_buckets(100).node
    document = json.loads(json.dumps(difference(before, after).to_document()))
    assert document["before"] == before.identity
    assert document["after"] == after.identity
    assert document["distance"] == 2.0
    assert document["changes"] == [
        {"kind": "parameter", "where": "hash_buckets(unigrams(lower(query)), buckets=100)", "operator": "hash_buckets",
         "name": "buckets", "before": "1000", "after": "100", "weight": 1,
         "sentence": "hash_buckets: buckets 100 instead of 1000"},
        {"kind": "inserted", "where": "column query", "operator": "lower", "name": None, "before": None,
         "after": "lower()", "weight": 1, "sentence": "lower() inserted around column query"},
    ]  # fmt: skip


@given(INPUTS)
@settings(max_examples=scaled(60))
def test_equal_components_do_not_differ(expression):
    found = difference(expression.node, rebuilt(expression.node))
    assert found.changes == ()
    assert found.distance == 0


@given(INPUTS, INPUTS)
@settings(max_examples=scaled(200))
def test_unequal_components_differ_and_equally_far_both_ways(one, other):
    one, other = canonicalize(one.node), canonicalize(other.node)
    assume(one != other)
    there, back = difference(one, other), difference(other, one)
    assert there.changes
    assert there.distance == back.distance > 0
    assert len(there.changes) == len(back.changes)
    for change in (*there.changes, *back.changes):
        assert change.before in change.sentence
        assert change.after in change.sentence
        assert change.before != change.after
    assert there == difference(rebuilt(one), rebuilt(other))


def _edited(root: Node, place: str, make) -> Node:
    """``root`` with what ``make`` gives of the node ``place`` in its place, wherever it is read. Types are left as they are."""

    def combine(node: Node, args: tuple[Node, ...]) -> Node:
        new = Operation(node.type, node.op, node.version, args, node.params) if isinstance(node, Operation) else node
        return make(new) if node.identity == place else new

    return fold(root, combine)


def _another_parameter(node: Operation, which: int) -> Operation:
    name, value = node.params[which % len(node.params)]
    changed = not value if isinstance(value, bool) else f"{value}?" if isinstance(value, str) else value + 1
    return Operation(
        node.type, node.op, node.version, node.operands, tuple(sorted({**dict(node.params), name: changed}.items()))
    )


@given(st.one_of(INPUTS, TOKENS), st.data())
@settings(max_examples=scaled(300))
def test_a_single_edit_is_exactly_that_one_change(expression, data):
    root = canonicalize(expression.node)
    nodes = list(topological([root]))
    edits: list[tuple[GraphChangeKind, Node, str]] = []
    for node in nodes:
        edits.append((GraphChangeKind.INSERTED, node, "wrapper"))
        if isinstance(node, RawColumn):
            edits.append((GraphChangeKind.COLUMN, node, "another"))
        if isinstance(node, Operation):
            edits.append((GraphChangeKind.VERSION, node, node.op))
            edits += [(GraphChangeKind.PARAMETER, node, node.op)] if node.params else []
    kind, node, operator = data.draw(st.sampled_from(edits))
    which = data.draw(st.integers(0, 5))

    def make(now: Node) -> Node:
        match kind, now:
            case GraphChangeKind.INSERTED, _:
                return Operation(now.type, "wrapper", 1, (now,))
            case GraphChangeKind.COLUMN, _:
                return RawColumn(now.type, "another")
            case GraphChangeKind.VERSION, Operation():
                return Operation(now.type, now.op, now.version + 1, now.operands, now.params)
            case _, Operation():
                return _another_parameter(now, which)
            case _:
                raise AssertionError(kind)

    after = _edited(root, node.identity, make)
    [change] = difference(root, after).changes
    assert change.kind is kind
    assert (change.operator or change.name) == operator
    assert change.weight == 1
    [back] = difference(after, root).changes
    assert back.weight == 1
    assert back.kind is (GraphChangeKind.REMOVED if kind is GraphChangeKind.INSERTED else kind)


def test_an_edit_of_a_shared_node_is_found_where_a_wrong_pair_of_arguments_has_the_lower_bound():
    lowered = QUERY.lower().unigrams()
    root = canonicalize(((QUERY.unigrams() | lowered) & (lowered | lowered)).hash_buckets(97).node)
    after = _edited(root, QUERY.lower().node.identity, lambda now: Operation(now.type, "wrapper", 1, (now,)))
    assert difference(root, after).sentences == ("wrapper() inserted around lower(query)",)


def test_nearest_is_the_one_that_differs_least_and_ties_are_settled():
    target = QUERY.lower().unigrams().hash_buckets(100).node
    candidates = {
        "far": PRICE.log1p().node,
        "near": QUERY.unigrams().hash_buckets(100).node,
        "also near": QUERY.lower().unigrams().hash_buckets(10).node,
        "two": QUERY.unigrams().hash_buckets(10).node,
    }
    found = nearest_component(target, candidates.items())
    assert found is not None
    assert found.name == "also near"
    assert found.component == candidates["also near"]
    assert found.difference.sentences == ("hash_buckets: buckets 100 instead of 10",)
    assert nearest_component(target, reversed(candidates.items())) == found
    assert nearest_component(target, [("it", target)]).difference.changes == ()
    assert nearest_component(target, []) is None


@given(INPUTS, st.lists(INPUTS, min_size=1, max_size=5))
@settings(max_examples=scaled(60))
def test_nearest_is_no_farther_than_any_candidate(target, expressions):
    candidates = [(str(i), canonicalize(each.node)) for i, each in enumerate(expressions)]
    root = canonicalize(target.node)
    found = nearest_component(root, candidates)
    assert found.difference.distance == min(distance(node, root) for _, node in candidates)


_NUMBER = Dense(DType.FLOAT64)


def _op(name: str, *args: Node, **params: int) -> Operation:
    return Operation(_NUMBER, name, 1, args, tuple(params.items()))


def _tangle(count: int, seed: int, changed: frozenset[int] = frozenset(), wide: int = 3) -> Node:
    """``count`` operations over what the forty before them gave."""
    choose = random.Random(seed)
    nodes: list[Node] = [RawColumn(_NUMBER, f"c{i}") for i in range(10)]
    for i in range(count):
        name = choose.choice(["abs", "floor", "add", "multiply", "subtract", "coalesce", "minimum"])
        args = [
            choose.choice(nodes[-40:])
            for _ in range({"abs": 1, "floor": 1, "coalesce": wide, "minimum": wide}.get(name, 2))
        ]
        if is_commutative(name):
            args.sort(key=lambda node: node.identity)
        v = choose.randrange(3)
        nodes.append(_op(name, *args, v=99 if i in changed else v))
    rest = nodes[-60:]
    while len(rest) > 1:
        rest = [_op("concat", *rest[i : i + 6]) for i in range(0, len(rest), 6)]
    return rest[0]


def _ladder(depth: int, wrapped: frozenset[int] = frozenset(), names: tuple[str, str] = ("add", "multiply")) -> Node:
    """Each rung reads the two below it: as a tree it has exponentially many nodes."""
    below, node = RawColumn(_NUMBER, "x"), RawColumn(_NUMBER, "y")
    for i in range(depth):
        args = [below, node]
        if is_commutative(names[i % 2]):
            args.sort(key=lambda each: each.identity)
        rung: Node = _op(names[i % 2], *args)
        below, node = node, _op("abs", rung) if i in wrapped else rung
    return node


@pytest.mark.parametrize("names", [("add", "multiply"), ("subtract", "divide")])
def test_two_thousand_shared_nodes_with_three_changes(names):
    before, after = _ladder(2000, names=names), _ladder(2000, frozenset({3, 900, 1990}), names)
    assert [change.kind for change in difference(before, after).changes] == [GraphChangeKind.INSERTED] * 3
    assert Alignment(before, after).work < WORK_MAX / 4


def test_changes_strewn_over_a_large_graph_are_found_one_by_one():
    before, after = _tangle(2000, 1), _tangle(2000, 1, frozenset(range(0, 2000, 100)))
    found = difference(before, after)
    assert {change.kind for change in found.changes} == {GraphChangeKind.PARAMETER}
    assert 10 < found.distance <= 20
    assert Alignment(before, after).work < WORK_MAX / 4


@pytest.mark.parametrize("wide", [3, 6, 14])
def test_search_in_graphs_that_have_little_in_common_is_bounded(wide):
    before, after = (_tangle(1000, seed, wide=wide) for seed in (1, 2))
    assert WORK_MAX < Alignment(before, after).work < 1.5 * WORK_MAX


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([0, 200, 2_000, WORK_MAX]))
@settings(max_examples=scaled(150))
def test_laws_hold_however_little_work_is_allowed(one, other, count, work_max):
    before, after = _tangle(count, one), _tangle(count, other)
    there, back = (difference(*pair, work_max=work_max) for pair in ((before, after), (after, before)))
    assert bool(there.changes) == (before != after)
    assert there.distance == back.distance
    for change in (*there.changes, *back.changes):
        assert change.before in change.sentence
        assert change.after in change.sentence


def test_many_arguments_are_matched():
    columns = [_op("abs", RawColumn(_NUMBER, f"c{i}")) for i in range(300)]
    listed = difference(_op("concat", *columns[:-1]), _op("concat", *columns[:100], *columns[101:]))
    assert sorted(change.kind for change in listed.changes) == [
        GraphChangeKind.ARGUMENT_ADDED,
        GraphChangeKind.ARGUMENT_REMOVED,
    ]
    as_set = difference(_op("minimum", *columns[:-1]), _op("minimum", *columns[1:]))
    assert as_set.sentences == ("column c299 instead of c0 in abs(c299)",)
    others = [_op("abs", RawColumn(_NUMBER, f"d{i}")) for i in range(20)]
    assert {change.kind for change in difference(_op("minimum", *columns[:20]), _op("minimum", *others)).changes} == {
        GraphChangeKind.COLUMN
    }


def test_small_sets_are_paired_at_least_cost():
    x, y, z = (RawColumn(_NUMBER, name) for name in "xyz")
    before = _op("minimum", _op("abs", x), _op("floor", y), z)
    after = _op("minimum", _op("floor", _op("sqrt", y)), z, _op("abs", x, v=1))
    assert sorted(difference(before, after).sentences) == [
        "abs: v 1 instead of nothing",
        "sqrt() inserted around column y",
    ]


def test_changes_are_values():
    assert GraphChange(GraphChangeKind.VERSION, "", "1", "2", "f") == GraphChange(
        GraphChangeKind.VERSION, "", "1", "2", "f"
    )
