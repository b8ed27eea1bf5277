from __future__ import annotations

import itertools
import math
from pathlib import Path

import hypothesis.strategies as st
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

import headrace as hr
from tests.support.examples import scaled
from tests.transforms.adversarial import COMPUTABLE, acceptable_types, operands_for, operation
from tests.transforms.components import INPUTS, TOKENS
from tests.transforms.operators.parameters import GOLDEN_PARAMS
from transforms.comparison.pattern import Pattern, PatternFinder, find
from transforms.comparison.pattern_parser import NESTING_MAX
from transforms.comparison.pattern_terms import (
    Anything,
    ArtifactDigest,
    Call,
    ColumnTerm,
    Constant,
    Fingerprint,
    Several,
    Term,
)
from transforms.errors import InputError
from transforms.expressions.expression import Expr
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Artifact, Literal, Node, Operation, RawColumn, topological
from transforms.operators import REGISTRY, Operator
from transforms.render import expression_text
from transforms.types import Dense, DType, Vector

QUERY, TITLE, PRICE = hr.text("query"), hr.text("title"), hr.float32("price")
OVERLAP = canonicalize((QUERY.lower().unigrams() & TITLE.unigrams()).hash_buckets(1000).node)


def matches(text: str, expression: Expr | Node) -> bool:
    return Pattern.parse(text).matches(canonicalize(expression if isinstance(expression, Node) else expression.node))


def found(text: str, root: Node = OVERLAP) -> list[str]:
    return [expression_text(node) for node in find(Pattern.parse(text), root)]


@pytest.mark.medium
@pytest.mark.parametrize("operator", COMPUTABLE, ids=lambda operator: operator.name)
def test_what_is_printed_of_an_operator_is_a_pattern_of_it(operator: Operator) -> None:
    for params in GOLDEN_PARAMS.get(operator.name, [{}]):
        for types in itertools.islice(acceptable_types(operator, operator.bind_params(params)), 6):
            operands = operands_for(operator, types)
            operands = [Artifact(node.type, "ab" * 32) if isinstance(node, Artifact) else node for node in operands]
            root = operation(operator.name, operands, params)
            pattern = Pattern.parse(expression_text(root, limit=100_000))
            assert pattern.matches(root), pattern
            assert Pattern.parse(pattern.text) == pattern
            others = [RawColumn(node.type, "another") if isinstance(node, RawColumn) else node for node in operands]
            if any(isinstance(node, RawColumn) for node in operands):
                assert not pattern.matches(operation(operator.name, others, params)), pattern


@given(st.one_of(INPUTS, TOKENS))
@settings(max_examples=scaled(150))
def test_what_is_printed_of_a_component_is_a_pattern_of_it(expression):
    root = canonicalize(expression.node)
    pattern = Pattern.parse(expression_text(root, limit=100_000))
    assert pattern.matches(root)
    nodes = list(topological([root]))
    assert pattern.operators == {node.op for node in nodes if isinstance(node, Operation)}
    assert pattern.columns == {node.name for node in nodes if isinstance(node, RawColumn)}


def test_what_is_printed_of_a_full_pass_operator_is_a_pattern_of_it():
    week = hr.between("2026-01-01", "2026-01-08")
    for expression in (QUERY.vocabulary_ids(over=week, top_k=3), PRICE.quantile_buckets(4, over=week)):
        assert matches(expression_text(expression.node), expression)


def test_calls_match_operators_arguments_and_the_parameters_that_are_named():
    tokens = QUERY.unigrams().hash_buckets(1000, salt="a")
    assert matches("hash_buckets(unigrams(query))", tokens)
    assert matches("hash_buckets(_, buckets=1000)", tokens)
    assert matches("hash_buckets(_, buckets=_, salt='a')", tokens)
    assert not matches("hash_buckets(_, buckets=100)", tokens)
    assert not matches("hash_buckets(_, salt='')", tokens)
    assert not matches("hash_buckets(unigrams(title))", tokens)
    assert matches("_(unigrams(_))", tokens)
    assert matches("_(..., buckets=1000)", tokens)
    assert not matches("_(_, _)", tokens)
    assert not matches("_(..., n=2)", tokens)
    assert matches("_", tokens)


def test_further_arguments_may_follow():
    listed = hr.concat(QUERY.unigrams(), TITLE.unigrams(), QUERY.split("|"))
    assert matches("concat(unigrams(query), ...)", listed)
    assert matches("concat(...)", listed)
    assert matches("concat(unigrams(query), unigrams(title), split(query), ...)", listed)
    assert not matches("concat(unigrams(title), ...)", listed)
    assert not matches("concat(unigrams(query), unigrams(title))", listed)
    assert not matches("concat(_, _, _, _, ...)", listed)


def test_arguments_whose_order_means_nothing_match_in_any_order():
    parts = [QUERY.unigrams(), QUERY.lower().unigrams(), TITLE.unigrams()]
    root = canonicalize((parts[0] & parts[1] & parts[2]).node)
    texts = ["unigrams(_)", "unigrams(lower(_))", "unigrams(title)"]
    for order in itertools.permutations(texts):
        assert matches(f"intersect({', '.join(order)})", root)
        assert matches(f"intersect({', '.join(order[:2])}, ...)", root)
        assert not matches(f"intersect({', '.join(order[:2])})", root)
    assert not matches("intersect(unigrams(title), unigrams(title), _)", root)  # each needs an argument of its own
    assert not matches("intersect(unigrams(title), unigrams(title), ...)", root)
    assert not matches("subtract(2.0, price)", PRICE - 2)


def test_columns_literals_artifacts_and_fingerprints():
    assert found("query") == ["query"]
    weird = hr.text("weird name").lower()
    assert matches("lower(column('weird name'))", weird)
    assert expression_text(weird.node) == "lower(column('weird name'))"
    for name in (
        "_",
        "and",
        "nan",
        "True",
        "None",
        "column",
        "artifact",
        "a,b",
        "搜索",
        "ﬁn",
        "fin",
        "a\nb",
        "1st",
        "@ab12",
    ):
        assert matches(expression_text(hr.text(name).node), hr.text(name)), name
        assert not matches(expression_text(hr.text(name).node), hr.text("other"))
    assert not matches("ﬁn", hr.text("fin"))  # no normal form: these are two columns
    assert matches("add(_, 1)", PRICE + 1)
    assert matches("add(1.0, price)", PRICE + 1)
    assert not matches("add(_, True)", PRICE + 1)
    assert matches("coalesce(_, nan)", hr.coalesce(PRICE, math.nan))
    assert matches("multiply(price, -inf)", PRICE * -math.inf)
    assert not matches("multiply(price, inf)", PRICE * -math.inf)
    assert matches("if_else(_, 'it\\'s', \"\")", hr.if_else(hr.boolean("b"), "it's", ""))
    lowered = QUERY.lower().node
    assert matches(f"unigrams(@{lowered.identity[:8]})", QUERY.lower().unigrams())
    assert matches(f"@{lowered.identity}", lowered)
    assert found(f"@{OVERLAP.identity[:10].upper()}") == [expression_text(OVERLAP)]
    terms = Artifact(Vector(DType.STRING, 3), "3e30" * 16)
    known = operation("vocabulary_lookup", [QUERY.node, terms], {"oov_buckets": 1})
    assert Pattern.parse("vocabulary_lookup(query, artifact 3e303e)").matches(known)
    assert not Pattern.parse("vocabulary_lookup(query, artifact 3e303f)").matches(known)


def test_versions_are_written_either_way():
    node = QUERY.unigrams().node
    old = Operation(node.type, "unigrams", 7, node.args)
    for text in ("unigrams@7(query)", "unigrams(query, version=7)"):
        assert Pattern.parse(text).matches(old)
        assert not Pattern.parse(text).matches(node)
        assert Pattern.parse(text).text == "unigrams@7(query)"
        assert Pattern.parse(text).operator_versions == {("unigrams", 7)}
    assert Pattern.parse("_@1(...)").matches(node)


def test_tuples_match_whole_or_by_their_first_item_and_size():
    near = PRICE.bucketize([1, 2.5, 7])
    assert matches("bucketize(price, boundaries=(1, 2.5, 7))", near)
    assert matches("bucketize(price, boundaries=[_, 2.5, _,])", near)
    assert not matches("bucketize(price, boundaries=(1, 2.5))", near)
    wide = PRICE.bucketize(list(range(50)))
    assert "… 50 in all" in expression_text(wide.node)
    assert matches(expression_text(wide.node), wide)
    assert not matches("bucketize(price, boundaries=(0.0, … 49 in all))", wide)
    assert not matches("bucketize(price, boundaries=(1.0, … 50 in all))", wide)


def test_functions_match_by_name_version_and_their_own_parameters():
    cut = hr.op(result="string")(pc.utf8_slice_codeunits)
    applied = cut(QUERY, start=2, stop=None)
    other = cut(QUERY, start=3, stop=None)
    text = expression_text(applied.node)
    assert text.startswith("python_function(query, utf8_slice_codeunits v-")
    assert matches(text, applied)
    assert not matches(text, other)
    assert matches("python_function(query)", other)
    assert matches("python_function(_, start=3)", other)
    assert not matches("python_function(_, step=3)", other)
    assert not matches("python_function(_, utf8_slice_codeunits v-00000000)", applied)
    assert Pattern.parse(text).text == text


def test_every_place_is_found_once_and_arguments_come_first():
    assert sorted(found("unigrams(_)")) == ["unigrams(lower(query))", "unigrams(title)"]
    assert found("intersect(unigrams(title), unigrams(lower(query)))") == [expression_text(OVERLAP.args[0])]
    assert [node.identity for node in find(Pattern.parse("_"), OVERLAP)] == [
        node.identity for node in topological([OVERLAP])
    ]
    assert found("split(...)") == []


_SOUGHT = ("unigrams(_)", "unigrams(...)", "concat(...)", "concat(_)", "concat(_, ...)", "concat(_, _)", "head(_)", "head(_, n=2)", "head(..., n=1)",
           "intersect(_, _)", "intersect(_, ...)", "lower(a)", "a", "_", "_(a)", "cross(_, _)", "hash_buckets@1(_)", "add(...)", "count(unique(_))")  # fmt: skip


@given(
    st.lists(st.one_of(INPUTS, TOKENS), min_size=1, max_size=6), st.sampled_from(_SOUGHT), st.sampled_from((0, 1000))
)
@settings(max_examples=scaled(300))
def test_a_pattern_is_in_the_components_in_which_it_is_found(expressions, text, kept_nodes):
    pattern = Pattern.parse(text)
    finder = PatternFinder(pattern, kept_nodes)
    for root in [canonicalize(one.node) for one in expressions] * 2:
        is_found = bool(find(pattern, root))
        assert finder.is_in(root) == is_found
        if pattern.is_by_names:
            nodes = tuple(topological([root]))
            applied = {(node.op, node.version) for node in nodes if isinstance(node, Operation)}
            read = {node.name for node in nodes if isinstance(node, RawColumn)}
            operators = pattern.operators <= {op for op, _ in applied} and pattern.operator_versions <= applied
            assert is_found == (operators and pattern.columns <= read)


def test_the_names_of_a_bare_pattern_say_where_it_matches():
    by_names = {text for text in _SOUGHT if Pattern.parse(text).is_by_names}
    assert by_names == {
        "unigrams(_)",
        "unigrams(...)",
        "concat(...)",
        "head(_)",
        "a",
        "_",
        "hash_buckets@1(_)",
        "add(...)",
    }
    assert not Pattern.parse("hash_buckets@7(_)").is_by_names


def test_required_nodes_of_a_pattern_are_given_for_indexes():
    pattern = Pattern.parse("concat(lower@2(query), @7d1f0c, vocabulary_lookup(_, artifact 3e30), _(title), ...)")
    assert pattern.operators == {"concat", "lower", "vocabulary_lookup"}
    assert pattern.operator_versions == {("lower", 2)}
    assert pattern.columns == {"query", "title"}
    assert pattern.fingerprints == {"7d1f0c"}
    assert pattern.artifacts == {"3e30"}
    assert Pattern.parse("_").operators == frozenset()


@pytest.mark.parametrize(
    ("text", "position", "told"),
    [
        ("hash_buckets(unigrms(query))", 14, "unigrams"),
        ("hash_buckets(query, bucket=3)", 21, "buckets"),
        ("_(query, bucketz=3)", 10, "buckets"),
        ("hash_buckets(query, buckets='a')", 29, "int"),
        ("bucketize(query, boundaries=3)", 29, "tuple"),
        ("lower(a, b)", 1, "lower(...)"),
        ("unigrams()", 1, "unigrams(...)"),
        ("concat(..., query)", 13, "..."),
        ("lower(weird name)", 13, 'column("its name")'),
        ("weird name", 7, 'column("its name")'),
        ("query.unigrams()", 6, "intersect(unigrams(query), _)"),
        ("unigrams(query) & unigrams(title)", 17, "intersect(unigrams(query), _)"),
        ("lower(query", 12, ")"),
        ("", 1, "an operator"),
        ("@7d", 1, "4 to 64"),
        ("@xyz12345", 1, "4 to 64"),
        ("unigrams@0(query)", 9, "from 1 on"),
        ("unigrams(query, version='a')", 25, "from 1 on"),
        ("unigrams@1(query, version=1)", 19, "version"),
        ("hash_buckets(_, buckets=1, buckets=2)", 28, "buckets"),
        ("hash_buckets(low…, buckets=1)", 17, "@7d1f0c"),
        ("'\\x'", 1, "quotes"),
        ("column(query)", 8, "quotes"),
        ("a b", 3, "column("),
        ("__import__('os')", 1, "unknown operator"),
        ("1_", 1, "number"),
        ("(" * 5, 1, "an operator"),
        ("bucketize(query, boundaries=(1.0, … many in all))", 35, "@7d1f0c"),
    ],
)
def test_errors_name_the_place_and_similar_names(text: str, position: int, told: str) -> None:
    with pytest.raises(InputError) as raised:
        Pattern.parse(text)
    assert f"character {position}," in raised.value.where
    assert told in str(raised.value)


def test_depth_and_length_are_limited_and_nothing_is_evaluated():
    for text in ("_(" * 5000, "_(" * (NESTING_MAX + 2) + "_" + ")" * (NESTING_MAX + 2), "x" * 30_000,
                 "bucketize(_, boundaries=" + "(" * 5000):  # fmt: skip
        with pytest.raises(InputError, match=r"nested less deeply|must be shorter"):
            Pattern.parse(text)
    deep = "_(" * NESTING_MAX + "_" + ")" * NESTING_MAX
    node = QUERY.node
    for _ in range(NESTING_MAX):
        node = Operation(node.type, "lower", 1, (node,))
    assert Pattern.parse(deep).matches(node)
    assert not Pattern.parse(deep).matches(QUERY.lower().node)


def test_shared_graphs_and_many_ways_to_pair_arguments_take_no_time():
    node: Node = hr.float64("x").node
    for _ in range(2000):
        node = Operation(node.type, "add", 1, (node, node))
    deep = "add(" * 12 + "x" + ", _)" * 12
    assert len(find(Pattern.parse(deep), node)) == 1
    many = [Literal(Dense(DType.INT64), i) for i in range(60)]
    root = Operation(many[0].type, "minimum", 1, tuple(many))
    assert Pattern.parse(f"minimum({', '.join(['_'] * 30 + [str(i) for i in range(30)])})").matches(root)
    assert not Pattern.parse(f"minimum({', '.join(['_'] * 30 + ['3', '3'])}, ...)").matches(root)


_NAMES = st.sampled_from(["query", "weird name", "and", "_", "nan", "搜索", "ﬁn", "a'b\"c\\d"]) | st.text(
    min_size=1, max_size=5
)
_CONSTANTS = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63), st.floats(), st.text(max_size=6), st.sampled_from([-0.0, math.nan])
).map(lambda value: Constant(math.nan) if isinstance(value, float) and math.isnan(value) else Constant(value))
_VALUES = st.recursive(
    _CONSTANTS | st.just(Anything()) | st.just(Constant(None)),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: Several(tuple(items)))
        | st.tuples(inner, st.integers(2, 10**9)).map(lambda pair: Several(pair[:1], pair[1]))
    ),
    max_leaves=4,
)
_DIGITS = st.text("0123456789abcdef", min_size=4, max_size=64)


@st.composite
def _calls(draw: st.DrawFn, inner: st.SearchStrategy[Term]) -> Call:
    operator = draw(st.sampled_from(["concat", "and", "minimum", "python_function", "coalesce", None]))
    args = tuple(draw(st.lists(inner, min_size=1, max_size=3)))
    further = draw(st.booleans())
    version = draw(st.none() | st.integers(1, 9))
    if operator != "python_function":
        return Call(operator, version, args, (), further)
    params = draw(st.dictionaries(st.sampled_from(["a", "sep", "version"]), _VALUES, max_size=3))
    return Call(
        operator, version, args, tuple(sorted(params.items())), further, draw(st.sampled_from(["", "f v-0123abcd"]))
    )


_TERMS = st.recursive(
    st.one_of(
        st.just(Anything()), _NAMES.map(ColumnTerm), _CONSTANTS, _DIGITS.map(Fingerprint), _DIGITS.map(ArtifactDigest)
    ),
    _calls,
    max_leaves=8,
)


@given(_TERMS)
@settings(max_examples=scaled(500))
def test_a_pattern_that_is_written_and_read_is_the_same(term):
    pattern = Pattern(term)
    # by their texts: since Python 3.13 a dataclass with a NaN does not equal itself
    assert repr(Pattern.parse(pattern.text)) == repr(pattern)
    assert repr(Pattern.parse(f"  {pattern.text}\n")) == repr(pattern)


@given(st.text(max_size=40) | st.text("_.(),=@'\"[]-1aq …", max_size=30))
@settings(max_examples=scaled(500))
def test_any_text_is_a_pattern_or_an_input_error(text):
    try:
        pattern = Pattern.parse(text)
    except InputError:
        return
    assert Pattern.parse(pattern.text) == pattern


def test_a_parameter_without_a_default_can_be_named_for_every_operator():
    for operator in REGISTRY:
        for param in operator.params:
            assert Pattern.parse(f"{operator.name}(..., {param.name}=_)").operators == {operator.name}


def test_patterns_of_the_documentation_are_patterns():
    lines = (Path(__file__).parents[3] / "docs" / "patterns.md").read_text(encoding="utf-8").splitlines()
    written = [line.split("`")[1] for line in lines if line.startswith("| `")]
    assert len(written) > 10
    for text in written:
        assert Pattern.parse(Pattern.parse(text).text) == Pattern.parse(text)
