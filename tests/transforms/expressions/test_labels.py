"""The labels of a model: one, or several by name."""

from __future__ import annotations

import pytest

from transforms.analysis.target import MULTITASK, Target, target_of
from transforms.errors import InputError
from transforms.expressions.expression import float32
from transforms.expressions.model import Label, Model


def model(label, **options):
    return Model("ads", client="search", label=label, **options)


def test_several_labels_have_names_tasks_and_columns():
    made = model({"click": "clicked", "conversion": float32("paid") > 0.0, "stars": Label("stars", "multiclass", 5)})
    target = made.target
    assert made.label == "click: clicked, conversion: greater(paid, 0.0), stars: stars (multiclass, 5 classes)"
    assert (target.kind, target.columns, target.is_plain, target.is_computed) == (
        MULTITASK, ("clicked", "paid", "stars"), False, True)  # fmt: skip
    assert [(name, one.kind) for name, one in target.each] == [
        ("click", "binary"), ("conversion", "binary"), ("stars", "multiclass")]  # fmt: skip
    assert target_of(made.label, target.document, None, 0) == target
    assert made.without_inputs().target == target


def test_names_order_and_tasks_are_part_of_the_identity():
    one = model({"a": "x", "b": "y"}).target.identity
    others = (
        {"b": "y", "a": "x"},
        {"a": "x", "c": "y"},
        {"a": "x", "b": "z"},
        {"a": "x", "b": Label("y", "regression")},
    )
    assert all(model(other).target.identity != one for other in others)
    assert model({"a": Label("x"), "b": "y"}).target.identity == one


def test_one_label_is_as_before():
    target = model("clicked").target
    assert target == Target("clicked")
    assert (target.identity, target.each, target.document) == ("clicked", (("", target),), None)


@pytest.mark.parametrize(
    ("label", "options", "words"),
    [
        ({"click": "clicked"}, {}, "must name several"),
        ({}, {}, "must name several"),
        ({f"l{k}": "x" for k in range(65)}, {}, "must name several"),
        ({"click": "clicked", "two words": "x"}, {}, "the name of a label must consist of"),
        ({"click": "clicked", 3: "x"}, {}, "the name of a label must consist of"),
        ({"click": "clicked", "buy": 3}, {}, "a label must be a raw column's name or an expression"),
        ({"click": "clicked", "buy": Label("x", "multiclass")}, {}, "must have a number of classes"),
        ({"click": "clicked", "buy": "x"}, {"task": "regression"}, "must have a task for each"),
        ({"click": "clicked", "buy": "x"}, {"classes": 3}, "must have a task for each"),
    ],
)
def test_labels_that_a_model_cannot_have_are_refused(label, options, words):
    with pytest.raises(InputError, match=words):
        model(label, **options)
