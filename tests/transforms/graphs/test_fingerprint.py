"""Golden fingerprints: a change here invalidates every memo with the old fingerprint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import headrace as hr
from transforms.graphs.fingerprint import fingerprint
from transforms.graphs.graph import (
    Operation,
    component_document,
    component_from_document,
    operator_versions,
    shape_identity,
)

GOLDEN = Path(__file__).parents[1] / "goldens" / "fingerprints.json"


def components():
    query, title, category = hr.text("query"), hr.text("title"), hr.text("category")
    price = hr.float32("price")
    return {
        "the paper's example": hr.concat(query.unigrams() & title.unigrams(), category.unigrams()).hash_buckets(
            1_000_000
        ),
        "cross": hr.cross(query.lower(), hr.timestamp("time").hour_of_day(), buckets=100_000),
        "numeric": price.fill_null(0).log1p(),
        "negative zero": price.fill_null(-0.0),
        "nan": price.fill_null(float("nan")),
        "infinity": price.clip(float("-inf"), float("inf")),
        "salted": query.normalize().char_ngrams(3).hash_buckets(10, salt="ß"),
        "buckets": hr.int64("age").bucketize([18, 25.5]),
        "ragged": hr.ragged("history", "int64").unique().head(5),
        "branch": hr.if_else(price > 10, 1, 0),
        "raw": price,
        "constants in brackets": hr.minimum(hr.int64("age"), hr.minimum(2, 1)),
        "numbers of several types": hr.maximum(hr.maximum(hr.int64("age"), hr.int64("n")), hr.float64("ratio"), 3),
        "one of several": hr.coalesce(price),
        "sets in brackets": (query.unigrams() | (title.unigrams() | query.unigrams())).unique(),
    }


def test_golden_fingerprints():
    found = {name: fingerprint(expression.node) for name, expression in components().items()}
    assert found == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_fingerprints_are_the_same_in_another_process_with_another_hash_seed():
    program = (
        "import json; from tests.transforms.graphs.test_fingerprint import components; from transforms.graphs.fingerprint import fingerprint;"
        "print(json.dumps({k: fingerprint(e.node) for k, e in components().items()}))"
    )
    root = Path(__file__).parents[3]
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        answer = subprocess.run([sys.executable, "-c", program], env=environment, cwd=root, capture_output=True, text=True, check=True)  # fmt: skip
        assert json.loads(answer.stdout) == json.loads(GOLDEN.read_text(encoding="utf-8"))


def bumped(root, op):
    document = component_document(root)
    for node in document["nodes"]:
        if node.get("op") == op:
            node["version"] += 1
    return component_from_document(document)


def test_a_new_operator_version_changes_the_fingerprint_and_not_the_shape():
    root = hr.text("query").lower().unigrams().node
    newer = bumped(root, "lower")
    assert newer.identity != root.identity
    assert shape_identity(newer) == shape_identity(root)
    assert operator_versions(newer)["lower"] == operator_versions(root)["lower"] + 1


def test_names_of_inputs_and_models_do_not_matter_and_types_do():
    one = hr.Model("one", client="a", label="y")
    two = hr.Model("two", client="b", label="z", priority=3)
    one.input("x", hr.float32("price").log1p())
    two.input("another", hr.float32("price").log1p())
    two.input("wider", hr.float64("price").log1p())
    assert one.inputs["x"].fingerprint == two.inputs["another"].fingerprint
    assert one.inputs["x"].fingerprint != two.inputs["wider"].fingerprint


def test_parameters_are_part_of_identity():
    ids = hr.text("query").unigrams()
    distinct = {
        fingerprint(e.node) for e in (ids.hash_buckets(10), ids.hash_buckets(11), ids.hash_buckets(10, salt="a"))
    }
    assert len(distinct) == 3
    assert isinstance(ids.node, Operation)
