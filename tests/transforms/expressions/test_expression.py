from __future__ import annotations

import math

import pytest

import headrace as hr
from transforms.errors import DuplicateInput, InputError, TypeMismatch, nearest
from transforms.render import expression_text, tree_text
from transforms.types import Dense, DType, Ragged


def test_the_papers_example_reads_naturally():
    query, title, category = hr.text("query"), hr.text("title"), hr.text("category")
    overlap = hr.concat(query.unigrams() & title.unigrams(), category.unigrams()).hash_buckets(1_000_000)
    assert overlap.type == Ragged(DType.INT64, buckets=1_000_000)
    assert expression_text(overlap.node) == (
        "hash_buckets(concat(intersect(unigrams(query), unigrams(title)), unigrams(category)), buckets=1000000)"
    )


def test_a_plain_number_beside_a_float_is_a_float():
    assert (hr.float32("x") + 1).type == Dense(DType.FLOAT32)
    assert (hr.float32("x") + 1).node == (hr.float32("x") + 1.0).node
    assert (2 / hr.float64("x")).type == Dense(DType.FLOAT64)
    assert (hr.int64("n") - 1).type == Dense(DType.INT64)


def test_plain_values_end_a_coalesce():
    price, age = hr.float32("price"), hr.int64("age")
    assert hr.coalesce(price, 0).node == hr.coalesce(price, 0.0).node
    assert hr.coalesce(price, 0).type == Dense(DType.FLOAT32)
    assert hr.coalesce(age, 0).type == Dense(DType.INT64)
    assert hr.coalesce(hr.text("city"), "").type == Dense(DType.STRING)
    with pytest.raises(TypeMismatch, match="equal types, or be numbers"):
        hr.coalesce(hr.text("city"), 0)


def test_a_bound_of_clip_may_be_left_out():
    assert hr.int64("age").clip(high=99).node == hr.int64("age").clip(-math.inf, 99).node
    assert hr.float32("price").clip(low=0).node == hr.float32("price").clip(0, math.inf).node


@pytest.mark.parametrize("ask", [lambda a: a and a, lambda a: not a, lambda a: 1 < a.cast("int64") < 3])
def test_a_truth_value_is_refused_with_what_to_write_instead(ask):
    with pytest.raises(InputError, match="truth value") as caught:
        ask(hr.boolean("a"))
    for instead in ("& | ~", "is_in", "(a < x) & (x < b)", "if_else"):
        assert instead in caught.value.next_step


def test_a_wrong_type_names_operator_argument_and_what_it_takes():
    with pytest.raises(TypeMismatch) as caught:
        hr.float32("price").lower()
    assert "operator lower does not take Dense[float32]" in str(caught.value)
    assert "argument 1" in caught.value.where
    assert caught.value.allowed == "Dense[string] or Ragged[string]"


def test_sets_of_different_items_do_not_mix():
    with pytest.raises(TypeMismatch, match="one element type") as caught:
        hr.text("a").unigrams() & hr.ragged("ids", "int64")
    assert caught.value.where == "operator intersect"


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: hr.text("a").hash_buckets(0), "parameter buckets"),
        (lambda: hr.text("a").hash_buckets("ten"), "parameter buckets"),
        (lambda: hr.text("a").split(""), "parameter sep"),
        (lambda: hr.text("a").unigrams().head(-1), "parameter n"),
        (lambda: hr.float32("a").bucketize([2, 1]), "parameter boundaries"),
        (lambda: hr.float32("a").bucketize("159"), "operator bucketize"),
        (lambda: hr.float32("a").bucketize(5), "operator bucketize"),
        (lambda: hr.float32("a").bucketize([1, "2"]), "parameter boundaries"),
        (lambda: hr.float32("a").clip(3, 1), ""),
        (lambda: hr.column("a", "int9"), ""),
        (lambda: hr.text(""), ""),
        (lambda: hr.literal(2**63), ""),
        (lambda: bool(hr.boolean("a")), ""),
    ],
)
def test_bad_parameters_are_refused(make, part):
    with pytest.raises(InputError) as caught:
        make()
    assert part in caught.value.where


def test_models_refuse_twice_the_same_name_and_things_that_are_no_expression():
    model = hr.Model("m", client="c", label="y")
    model.input("x", hr.float32("x"))
    with pytest.raises(DuplicateInput, match="different names"):
        model.input("x", hr.float32("z"))
    with pytest.raises(TypeMismatch, match="an input must be an expression"):
        model.input("w", 3)
    with pytest.raises(InputError, match="the name of a client must consist of letters"):
        hr.Model("m", client="a b", label="y")


def test_tree_prints_a_shared_subgraph_once():
    tokens = hr.text("a").lower().unigrams()
    tree = tree_text(hr.concat(tokens, tokens.ngrams(2)).node)
    assert tree.count("lower v1") == 1
    assert "(see 2)" in tree


def test_nearest_names():
    assert nearest("qury", ["title", "query", "price"]) == "query"
    assert nearest("zzz", []) == "(none)"


def test_the_error_of_a_misspelt_method_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"no .lowr.; allowed: lower"):
        hr.text("query").lowr()
    assert not hasattr(hr.text("query"), "_ipython_display_")
