"""Invalid documents raise one error, which names the place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import transforms.expressions.expression as hr
from transforms.documents import MOST_DEPTH, Part, parse_document
from transforms.errors import DataError
from transforms.graphs.graph import component_document, component_from_document
from transforms.types import type_from_document


def refusal(call: Callable[[], object]) -> DataError:
    """The error that a call raises."""
    with pytest.raises(DataError) as caught:
        call()
    return caught.value


def test_an_error_names_the_place_the_rule_and_the_value() -> None:
    document: Any = component_document(hr.text("query").unigrams().hash_buckets(10).node)
    document["nodes"][2]["args"][0] = 5
    error = refusal(lambda: component_from_document(document))
    assert error.what == "nodes[2].args[0] of the component must be a whole number from 0 to 1, got 5"
    assert error.where == "component, nodes[2].args[0]"
    assert error.value == 5
    assert error.allowed == "a whole number from 0 to 1"


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda document: document["nodes"].clear(), "nodes"),
        (lambda document: document["nodes"][0].update(column=None), "nodes[0].column"),
        (lambda document: document["nodes"][0].update(column="\ud800"), "nodes[0].column"),
        (lambda document: document["nodes"][0].update(colour="red"), "nodes[0].colour"),
        (lambda document: document["nodes"][0]["type"].update(dtype="int65"), "nodes[0].type.dtype"),
        (lambda document: document["nodes"][0]["type"].update(buckets=3), "nodes[0].type.buckets"),
        (lambda document: document["nodes"][1].update(version=True), "nodes[1].version"),
        (lambda document: document["nodes"][1].pop("args"), "nodes[1]"),
        (lambda document: document["nodes"][1].update(args=[-1]), "nodes[1].args[0]"),
        (lambda document: document["nodes"][2]["params"].update(salt=[1, "x"]), "nodes[2].params.salt"),
        (lambda document: document["nodes"][2]["params"].update(salt={"float": "x"}), "nodes[2].params.salt.float"),
        (lambda document: document["nodes"][2]["params"].update({"a b": None}), "nodes[2].params['a b']"),
        (lambda document: document.update(format="x"), "format"),
        (lambda document: document.update(nodes={}), "nodes"),
    ],
)
def test_damages_of_a_component(change: Callable[[Any], object], place: str) -> None:
    document: Any = component_document(hr.text("query").unigrams().hash_buckets(10).node)
    change(document)
    error = refusal(lambda: component_from_document(document))
    assert error.where == f"component, {place}"


@pytest.mark.parametrize("document", [None, [], "x", {}, 3, {"format": "headrace.component/1"}])
def test_what_is_no_component(document: object) -> None:
    refusal(lambda: component_from_document(document))


def test_a_literal_has_the_type_it_states() -> None:
    number = {"kind": "dense", "dtype": "int64"}
    for value in ("1", 2**63, True, 0.5, {"float": "0x1p+0"}, None):
        document = {"format": "headrace.component/1", "nodes": [{"literal": value, "type": number}]}
        assert (
            refusal(lambda document=document: component_from_document(document)).where == "component, nodes[0].literal"
        )
    vector = {"kind": "vector", "dtype": "int64", "size": 2}
    document = {"format": "headrace.component/1", "nodes": [{"literal": 1, "type": vector}]}
    assert "one value per event" in refusal(lambda: component_from_document(document)).allowed


def test_a_program_that_cannot_be_named() -> None:
    entry = {"op": "python_function", "version": 1, "args": [], "type": {"kind": "dense", "dtype": "string"}}
    for bundle in ("", "[]", '{"function": {"definition": 3}, "definitions": []}', "[" * 100_000):
        params = {"bundle": bundle, "keywords": "{}", "takes": [], "gives": "{}"}
        document = {"format": "headrace.component/1", "nodes": [{**entry, "params": params}]}
        assert (
            refusal(lambda document=document: component_from_document(document)).where == "component, nodes[0].params"
        )


@pytest.mark.parametrize("size", [0, -1, 2**31, "3", 2.0, None])
def test_sizes_of_vectors(size: object) -> None:
    assert refusal(lambda: type_from_document({"kind": "vector", "dtype": "int64", "size": size})).where.endswith(
        "size"
    )


def test_text_that_is_not_such_a_document() -> None:
    for text, said in (
        ("{", "a JSON document"),
        (b"\xff", "a JSON document"),
        ('{"a": 1, "a": 2}', "is repeated"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": 1e999}', ""),
        ("[" * 200_000, "a JSON document"),
        ("[" * (MOST_DEPTH + 2) + "]" * (MOST_DEPTH + 2), "deep"),
        ("9" * 5000, "a JSON document"),
    ):
        error = refusal(lambda text=text: parse_document(text, "thing").number())
        assert said in error.what
        assert len(error.what) < 300, "the value is shortened"
    assert "at most 10 bytes" in refusal(lambda: parse_document("[" * 11, "thing", most_bytes=10)).what
    assert parse_document("[" * MOST_DEPTH + "]" * MOST_DEPTH, "thing").value


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../x", "a//b", "a/./b", "a/", "gs://b/x", "a\\b", "a\0", ".", 3]
)
def test_paths_that_lead_outside(path: object) -> None:
    refusal(Part(path, "thing").inside_path)


def test_values_are_shortened() -> None:
    for value in ("x" * 10**6, list(range(1000)), 10**4000, {"a": 1}, b"x" * 1000, "\x1b[31m"):
        error = refusal(lambda value=value: Part(value, "thing").boolean())
        assert len(str(error)) < 1000
        assert "\x1b" not in str(error)


def test_components_round_trip_through_text() -> None:
    root = hr.if_else(hr.float32("x") > float("-inf"), hr.float32("x"), float("nan")).node
    text = json.dumps(component_document(root))
    assert component_from_document(parse_document(text, "component")) == root
