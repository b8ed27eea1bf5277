"""The nearest known component of a miss, and the differences."""

from __future__ import annotations

import pytest

import transforms.expressions.expression as hr
from tests.warehouse.scenes import model
from transforms.expressions.expression import Expr
from transforms.expressions.model import Model
from warehouse import Warehouse, submit_model
from warehouse.search.nearest import NearestKnown, nearest_known_of

pytestmark = pytest.mark.usefixtures("log")


def asked(warehouse: Warehouse, expression: Expr) -> NearestKnown | None:
    made = Model("new", client="ads", label="clicked", table="log")
    made.input("it", expression)
    submit_model(warehouse, made)
    found = nearest_known_of(warehouse, "new", ["it"])
    return found[0] if found else None


@pytest.mark.parametrize(
    ("expression", "sentences"),
    [
        (hr.text("query").unigrams().hash_buckets(77), ("hash_buckets: buckets 77 instead of 100",)),
        (hr.text("query").lower().unigrams().hash_buckets(100), ("lower() inserted around column query",)),
    ],
)
def test_the_nearest_component_is_shown_with_its_differences(
    warehouse: Warehouse, expression: Expr, sentences: tuple[str, ...]
) -> None:
    submit_model(warehouse, model("known", inputs=3))
    found = asked(warehouse, expression)
    assert found is not None
    assert found.models == ("known",)
    assert found.difference.sentences == sentences
    assert found.expression


def test_nothing_alike(warehouse: Warehouse) -> None:
    submit_model(warehouse, model("known", inputs=1))
    assert asked(warehouse, hr.text("title").length()) is None


def test_a_models_own_inputs_are_no_news_but_its_older_versions_are(warehouse: Warehouse) -> None:
    two = Model("new", client="ads", label="clicked", table="log")
    two.input("a", hr.text("query").unigrams().hash_buckets(10))
    two.input("b", hr.text("query").unigrams().hash_buckets(11))
    submit_model(warehouse, two)
    assert nearest_known_of(warehouse, "new", ["a", "b"]) == ()
    found = asked(warehouse, hr.text("query").unigrams().hash_buckets(12))
    assert found is not None
    assert (found.models, found.difference.distance) == (("new",), 1.0)
