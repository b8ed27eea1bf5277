"""Full-pass operators: what they request, and what replaces them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, date, datetime, timedelta, timezone

import pyarrow as pa
import pytest

import transforms.expressions.expression as hr
from transforms.analysis.full_pass import AnalysisResult, analyses, is_resolved, resolve
from transforms.errors import InputError, TypeMismatch
from transforms.execution.plan import compile_plan
from transforms.graphs.canonical import canonicalize
from transforms.graphs.graph import Artifact, Operation, component_document, component_from_document, topological
from transforms.ranges import between
from transforms.types import Dense, DType, Ragged, Vector, Weighted

WEEK = between("2026-01-01", "2026-01-08")
PRICE, QUERY = hr.float64("price"), hr.text("query")
TERMS = AnalysisResult("d" * 64, 10)


def test_a_range_is_utc_half_open_and_frozen() -> None:
    assert (WEEK.start, WEEK.end) == (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 8, tzinfo=UTC))
    assert between(date(2026, 1, 1), datetime(2026, 1, 8)) == WEEK
    east = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert between(east, "2026-01-08T00:00:00Z") == WEEK
    with pytest.raises(FrozenInstanceError):
        WEEK.start = WEEK.end  # type: ignore[misc]


@pytest.mark.parametrize(
    ("start", "end"), [("2026-01-08", "2026-01-01"), ("2026-01-01", "2026-01-01"), ("soon", "later")]
)
def test_a_wrong_range_is_refused(start: str, end: str) -> None:
    with pytest.raises(InputError):
        between(start, end)


def test_equal_ranges_however_spelled_are_one_operation() -> None:
    one = PRICE.z_score(over=WEEK)
    two = PRICE.standardize_over(over=between("2026-01-01T00:00:00Z", datetime(2026, 1, 8)))
    assert one.node == two.node
    assert one.node != PRICE.z_score(over=between("2026-01-01", "2026-01-09")).node


def test_what_is_not_a_range_is_refused() -> None:
    with pytest.raises(InputError, match="over must be a range"):
        PRICE.z_score(over="2026-01-01")  # type: ignore[arg-type]


def test_the_types_before_and_after() -> None:
    tokens = QUERY.unigrams().vocabulary_ids(top_k=10, oov_buckets=5, over=WEEK)
    assert tokens.type == Ragged(DType.INT64)
    assert resolve(tokens.node, {tokens.node.identity: TERMS}).type == Ragged(DType.INT64, 15)
    weighted = hr.weighted("ids", "int64").vocabulary_ids(over=WEEK)
    assert weighted.type == Weighted(DType.INT64)
    assert resolve(weighted.node, {weighted.node.identity: TERMS}).type == Weighted(DType.INT64, 11)
    assert hr.ragged("prices", "float32").z_score(over=WEEK).type == Ragged(DType.FLOAT32)


def test_what_an_operator_does_not_take() -> None:
    with pytest.raises(TypeMismatch):
        QUERY.z_score(over=WEEK)
    with pytest.raises(TypeMismatch):
        PRICE.vocabulary_ids(over=WEEK)
    with pytest.raises(InputError, match="beside a label"):
        QUERY.vocabulary_ids(over=WEEK, label=hr.boolean("clicked"), min_frequency=3)


@pytest.mark.parametrize(
    ("expression", "numbers", "op", "params"),
    [
        (PRICE.z_score(over=WEEK), (2.0, 0.5), "standardize", {"mean": 2.0, "standard_deviation": 0.5}),
        (PRICE.min_max_over(over=WEEK), (1.0, 3.0), "min_max", {"low": 1.0, "high": 3.0, "clip": True}),
        (PRICE.quantile_buckets(3, over=WEEK), (1.0, 2.0), "bucketize", {"boundaries": (1.0, 2.0)}),
    ],
)
def test_numbers_become_parameters(expression: hr.Expr, numbers: tuple[float, ...], op: str, params: object) -> None:
    root = resolve(expression.node, {expression.node.identity: AnalysisResult("a" * 64, len(numbers), numbers)})
    assert isinstance(root, Operation)
    assert (root.op, dict(root.params), root.operands) == (op, params, (PRICE.node,))


def test_a_vocabulary_becomes_an_artifact() -> None:
    ids = QUERY.vocabulary_ids(oov_buckets=3, over=WEEK)
    root = resolve(ids.node, {ids.node.identity: TERMS})
    assert isinstance(root, Operation)
    assert root.op == "vocabulary_lookup"
    assert root.operands == (QUERY.node, Artifact(Vector(DType.STRING, 10), TERMS.digest))
    assert component_from_document(component_document(root)) == root


def test_readers_of_a_resolved_operator_are_typed_again() -> None:
    ids = QUERY.unigrams().vocabulary_ids(over=WEEK)
    root = resolve(ids.unique().head(3).node, {ids.node.identity: TERMS})
    assert root.type == Ragged(DType.INT64, 11)
    assert root == canonicalize(root)


@pytest.mark.medium
def test_a_resolved_component_computes() -> None:
    ids = QUERY.unigrams().vocabulary_ids(oov_buckets=1, over=WEEK)
    root = resolve(ids.node, {ids.node.identity: AnalysisResult("t", 2)})
    plan = compile_plan({"it": root}, lambda _: pa.array(["red", "shoe"]))
    assert plan.run(pa.table({"query": ["shoe red hat"]})).columns["it"].to_pylist() == [[1, 0, 2]]


def test_an_analysis_over_another_ones_outcome_comes_later() -> None:
    inner = PRICE.z_score(over=WEEK)
    outer = inner.quantile_buckets(4, over=WEEK)
    (first,) = analyses([outer.node, inner.node])
    assert first.node == inner.node
    half = resolve(outer.node, {inner.node.identity: AnalysisResult("a", 2, (0.0, 1.0))})
    (second,) = analyses([half])
    assert second.operator == "quantile_buckets"
    assert is_resolved([resolve(half, {second.node.identity: AnalysisResult("b", 1, (0.5,))})])
    assert not is_resolved([half])


def test_what_makes_two_analyses_one() -> None:
    def analysis(expression: hr.Expr) -> object:
        (found,) = analyses([expression.node])
        return found.fingerprint

    tokens = QUERY.unigrams()
    base = analysis(tokens.vocabulary_ids(top_k=5, over=WEEK))
    assert base == analysis(tokens.vocabulary_ids(top_k=5, oov_buckets=9, over=WEEK))
    assert base == analysis(tokens.vocabulary_ids(top_k=5, over=between("2026-02-01", "2026-02-02")))
    assert base != analysis(tokens.vocabulary_ids(top_k=6, over=WEEK))
    assert base != analysis(tokens.vocabulary_ids(top_k=5, min_frequency=2, over=WEEK))
    assert base != analysis(QUERY.lower().unigrams().vocabulary_ids(top_k=5, over=WEEK))
    assert base != analysis(tokens.vocabulary_ids(top_k=5, label=hr.boolean("clicked"), over=WEEK))


def test_what_partitions_contribute_does_not_depend_on_what_is_sought() -> None:
    cut = [analyses([QUERY.vocabulary_ids(top_k=k, over=WEEK).node])[0].partial for k in (0, 5)]
    assert cut[0] == cut[1]
    assert analyses([PRICE.quantile_buckets(4, over=WEEK).node])[0].partial != cut[0]


def test_beside_a_label_a_list_counts_as_a_set() -> None:
    (analysis,) = analyses([QUERY.unigrams().vocabulary_ids(label=hr.int64("clicked"), over=WEEK).node])
    assert analysis.expression == QUERY.unigrams().unique().node
    assert analysis.label == hr.int64("clicked").node


def test_an_unresolved_component_fails_with_the_next_step() -> None:
    result = compile_plan({"it": PRICE.z_score(over=WEEK).node}).run(pa.table({"price": [1.0]}))
    assert "headrace analyze" in result.failures["it"].error


def test_a_component_keeps_its_full_pass_operators_through_canonicalization() -> None:
    root = canonicalize(PRICE.z_score(over=WEEK).clip(-1, 1).node)
    assert any(isinstance(node, Operation) and node.op == "standardize_over" for node in topological([root]))
    assert root.type == Dense(DType.FLOAT64)
